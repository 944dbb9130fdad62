/* pipeline_messages.c - owns a pipeline's messages: activations to the next rank, gradients to the
 * previous one, and their memory. On a device, a message waits for the work that the compute stream
 * has at the call, and later work there waits for the message: no thread does. */
#include "base/error.h"
#include "group/engine/queue.h"
#include "parallel/pipeline/pipeline_state.h"

static int next_rank(const struct cddpi_pipeline *pipeline)
{
    return (pipeline->rank + 1) % pipeline->shape.ranks;
}

static int previous_rank(const struct cddpi_pipeline *pipeline)
{
    return (pipeline->rank + pipeline->shape.ranks - 1) % pipeline->shape.ranks;
}

void cddpi_pipeline_set_beside(struct cddpi_pipeline *pipeline, cddp_group *group)
{
    pipeline->beside = group;
}

/* Messages of a group without a thread of its own move only in calls of that group: while this rank
 * waits in one of them, let the others go on, since the sender of what it waits for may wait for
 * them. Those of a device have a thread. */
cddp_status cddpi_pipeline_finish(struct cddpi_pipeline *pipeline, cddp_work **work)
{
    bool alone = cddpi_device_is_async(pipeline->device) ||
                 (pipeline->beside == NULL && pipeline->gradients == pipeline->values);
    cddp_group *groups[] = {pipeline->values, pipeline->gradients, pipeline->beside};
    bool done = alone || *work == NULL;

    while (!done) {
        CDDPI_TRY(cddp_work_wait_host(*work, 1, &done));
        for (size_t g = 0; g < sizeof groups / sizeof *groups && !done; g++) {
            if (groups[g] != NULL) {
                cddpi_group_poll(groups[g]);
            }
        }
    }
    return cddpi_message_finish(work);
}

static bool wants_input(const struct cddpi_pipeline *pipeline,
                        const struct cddpi_pipeline_action *action)
{
    int stage = cddpi_pipeline_stage_of(pipeline, action->chunk);

    return action->pass == CDDPI_PASS_BACKWARD  ? stage < cddpi_pipeline_last_stage(pipeline)
           : action->pass == CDDPI_PASS_FORWARD ? stage > 0
                                                : false;
}

cddp_status cddpi_pipeline_start_input(struct cddpi_pipeline *pipeline,
                                       const struct cddpi_pipeline_action *action, size_t samples)
{
    struct cddpi_pipeline_chunk *chunk = &pipeline->chunks[action->chunk];
    struct cddpi_pipeline_slot *slot = &chunk->slots[action->slot];
    bool backward = action->pass == CDDPI_PASS_BACKWARD;

    if (samples == 0 || !wants_input(pipeline, action)) {
        return CDDP_OK;
    }
    for (size_t k = 0; !backward && k < chunk->in_count; k++) {
        CDDPI_TRY(cddp_recv(pipeline->values, slot->in[k].data, samples * chunk->in[k].elements,
                            CDDP_F32, previous_rank(pipeline), &slot->in[k].data_work));
    }
    for (size_t k = 0; backward && k < chunk->out_count; k++) {
        if (chunk->out[k].has_grad) {
            CDDPI_TRY(cddp_recv(pipeline->gradients, slot->out[k].grad,
                                samples * chunk->out[k].elements, CDDP_F32, next_rank(pipeline),
                                &slot->out[k].grad_work));
        }
    }
    return CDDP_OK;
}

/* Computing gradients of parameters has neither input nor output. */
cddp_status cddpi_pipeline_finish_input(struct cddpi_pipeline *pipeline,
                                        const struct cddpi_pipeline_action *action)
{
    struct cddpi_pipeline_chunk *chunk = &pipeline->chunks[action->chunk];
    struct cddpi_pipeline_slot *slot = &chunk->slots[action->slot];
    bool backward = action->pass == CDDPI_PASS_BACKWARD;

    if (action->pass == CDDPI_PASS_WEIGHTS) {
        return CDDP_OK;
    }
    for (size_t k = 0; k < chunk->in_count; k++) {
        CDDPI_TRY(cddpi_pipeline_finish(pipeline, backward ? &slot->in[k].grad_work
                                                           : &slot->in[k].data_work));
    }
    for (size_t k = 0; k < chunk->out_count; k++) {
        CDDPI_TRY(cddpi_pipeline_finish(pipeline, backward ? &slot->out[k].grad_work
                                                           : &slot->out[k].data_work));
    }
    return CDDP_OK;
}

cddp_status cddpi_pipeline_start_output(struct cddpi_pipeline *pipeline,
                                        const struct cddpi_pipeline_action *action, size_t samples)
{
    struct cddpi_pipeline_chunk *chunk = &pipeline->chunks[action->chunk];
    struct cddpi_pipeline_slot *slot = &chunk->slots[action->slot];
    bool forward = action->pass == CDDPI_PASS_FORWARD;

    if (action->pass == CDDPI_PASS_WEIGHTS) {
        return CDDP_OK;
    }
    for (size_t k = 0; forward && k < chunk->out_count; k++) {
        CDDPI_TRY(cddp_send(pipeline->values, slot->out[k].data, samples * chunk->out[k].elements,
                            CDDP_F32, next_rank(pipeline), &slot->out[k].data_work));
    }
    for (size_t k = 0; !forward && k < chunk->in_count; k++) {
        if (chunk->in[k].has_grad) {
            CDDPI_TRY(cddp_send(pipeline->gradients, slot->in[k].grad,
                                samples * chunk->in[k].elements, CDDP_F32, previous_rank(pipeline),
                                &slot->in[k].grad_work));
        }
    }
    return CDDP_OK;
}

cddp_status cddpi_pipeline_finish_all(struct cddpi_pipeline *pipeline)
{
    for (int c = 0; c < pipeline->shape.chunks; c++) {
        struct cddpi_pipeline_chunk *chunk = &pipeline->chunks[c];

        for (int s = 0; s < pipeline->slot_count; s++) {
            for (size_t k = 0; k < chunk->in_count; k++) {
                CDDPI_TRY(cddpi_pipeline_finish(pipeline, &chunk->slots[s].in[k].grad_work));
            }
            for (size_t k = 0; k < chunk->out_count; k++) {
                CDDPI_TRY(cddpi_pipeline_finish(pipeline, &chunk->slots[s].out[k].data_work));
            }
        }
    }
    return CDDP_OK;
}

/* --- memory --- */

/* Make room for @p samples samples. */
static cddp_status grow_slot(struct cddpi_pipeline *pipeline, struct cddpi_pipeline_chunk *chunk,
                             struct cddpi_pipeline_slot *slot, int samples)
{
    if (samples <= slot->samples) {
        return CDDP_OK;
    }
    cddpi_edge_buffers_release(pipeline->device, slot->in, chunk->in_count);
    cddpi_edge_buffers_release(pipeline->device, slot->out, chunk->out_count);
    slot->samples = 0;
    CDDPI_TRY(cddpi_edge_buffers_allocate(pipeline->device, slot->in, chunk->in, chunk->in_count,
                                          samples));
    CDDPI_TRY(cddpi_edge_buffers_allocate(pipeline->device, slot->out, chunk->out, chunk->out_count,
                                          samples));
    slot->samples = samples;
    return CDDP_OK;
}

cddp_status cddpi_pipeline_make_room(struct cddpi_pipeline *pipeline, int samples)
{
    for (int c = 0; c < pipeline->shape.chunks; c++) {
        struct cddpi_pipeline_chunk *chunk = &pipeline->chunks[c];

        for (int s = 0; s < pipeline->slot_count; s++) {
            CDDPI_TRY(grow_slot(pipeline, chunk, &chunk->slots[s], samples));
        }
    }
    return CDDP_OK;
}
