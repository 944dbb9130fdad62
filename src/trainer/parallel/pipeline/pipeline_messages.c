/* pipeline_messages.c - owns a pipeline's messages: activations to the next rank, gradients to the
 * previous one, and their memory.
 *
 * On a device, a message waits for the work that the compute stream has at the call, and later work
 * there waits for the message: no thread does. Where the group cannot send a device's memory, since
 * ranks are on several hosts, messages go through pinned memory, and this thread waits until what
 * it sends is there. */
#include "base/alloc.h"
#include "base/error.h"
#include "group/engine/queue.h"
#include "group/on_device.h"
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
    bool alone = (cddpi_device_is_async(pipeline->device) && !pipeline->through_host) ||
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

/* --- one message --- */

/* Enqueue the copy of a buffer to its pinned memory, or back. */
static cddp_status move_buffer(struct cddpi_pipeline *pipeline,
                               struct cddpi_pipeline_buffer *buffer, size_t bytes, bool arrives)
{
    const struct cddpi_device_ops *ops = pipeline->device->ops;

    CDDPI_TRY(ops->copy(pipeline->device, CDDPI_STREAM_COMPUTE,
                        arrives ? buffer->memory : buffer->host,
                        arrives ? buffer->host : buffer->memory, bytes));
    return ops->record(pipeline->device, buffer->moved, CDDPI_STREAM_COMPUTE);
}

static cddp_status start_receive(struct cddpi_pipeline *pipeline, cddp_group *group,
                                 struct cddpi_pipeline_buffer *buffer, size_t count, cddp_type type,
                                 int from)
{
    buffer->arrives = true;
    buffer->bytes = count * cddp_type_bytes(type);
    if (buffer->host != NULL) { /* the last copy from there was long ago */
        CDDPI_TRY(
            pipeline->device->ops->wait(pipeline->device, buffer->moved, pipeline->timeout_ms));
    }
    return cddp_recv(group, buffer->host != NULL ? buffer->host : buffer->memory, count, type, from,
                     &buffer->work);
}

static cddp_status start_send(struct cddpi_pipeline *pipeline, cddp_group *group,
                              struct cddpi_pipeline_buffer *buffer, size_t count, cddp_type type,
                              int to)
{
    buffer->arrives = false;
    if (buffer->host == NULL) {
        return cddp_send(group, buffer->memory, count, type, to, &buffer->work);
    }
    pipeline->dues[pipeline->due_count++] = (struct cddpi_pipeline_due){buffer, group, count, type,
                                                                        to};
    return move_buffer(pipeline, buffer, count * cddp_type_bytes(type), false);
}

/* Start the sends whose data are on their way to pinned memory. */
static cddp_status send_dues(struct cddpi_pipeline *pipeline)
{
    int count = pipeline->due_count;

    pipeline->due_count = 0;
    for (int i = 0; i < count; i++) {
        const struct cddpi_pipeline_due *due = &pipeline->dues[i];

        CDDPI_TRY(pipeline->device->ops->wait(pipeline->device, due->buffer->moved,
                                              pipeline->timeout_ms));
        CDDPI_TRY(cddp_send(due->group, due->buffer->host, due->count, due->type, due->to,
                            &due->buffer->work));
    }
    return CDDP_OK;
}

/* Wait for a buffer's message, if one is under way. */
static cddp_status finish_buffer(struct cddpi_pipeline *pipeline,
                                 struct cddpi_pipeline_buffer *buffer)
{
    bool moves = buffer->work != NULL && buffer->host != NULL && buffer->arrives;

    CDDPI_TRY(cddpi_pipeline_finish(pipeline, &buffer->work));
    return moves ? move_buffer(pipeline, buffer, buffer->bytes, true) : CDDP_OK;
}

/* --- the messages of an action --- */

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
        CDDPI_TRY(start_receive(pipeline, pipeline->values, &slot->in[k].data,
                                samples * chunk->in[k].elements, chunk->in[k].type,
                                previous_rank(pipeline)));
    }
    for (size_t k = 0; backward && k < chunk->out_count; k++) {
        if (chunk->out[k].has_grad) {
            CDDPI_TRY(start_receive(pipeline, pipeline->gradients, &slot->out[k].grad,
                                    samples * chunk->out[k].elements, chunk->out[k].type,
                                    next_rank(pipeline)));
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

    CDDPI_TRY(send_dues(pipeline));
    if (action->pass == CDDPI_PASS_WEIGHTS) {
        return CDDP_OK;
    }
    for (size_t k = 0; k < chunk->in_count; k++) {
        CDDPI_TRY(finish_buffer(pipeline, backward ? &slot->in[k].grad : &slot->in[k].data));
    }
    for (size_t k = 0; k < chunk->out_count; k++) {
        CDDPI_TRY(finish_buffer(pipeline, backward ? &slot->out[k].grad : &slot->out[k].data));
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
        CDDPI_TRY(start_send(pipeline, pipeline->values, &slot->out[k].data,
                             samples * chunk->out[k].elements, chunk->out[k].type,
                             next_rank(pipeline)));
    }
    for (size_t k = 0; !forward && k < chunk->in_count; k++) {
        if (chunk->in[k].has_grad) {
            CDDPI_TRY(start_send(pipeline, pipeline->gradients, &slot->in[k].grad,
                                 samples * chunk->in[k].elements, chunk->in[k].type,
                                 previous_rank(pipeline)));
        }
    }
    return CDDP_OK;
}

cddp_status cddpi_pipeline_finish_all(struct cddpi_pipeline *pipeline)
{
    CDDPI_TRY(send_dues(pipeline));
    for (int c = 0; c < pipeline->shape.chunks; c++) {
        struct cddpi_pipeline_chunk *chunk = &pipeline->chunks[c];

        for (int s = 0; s < pipeline->slot_count; s++) {
            for (size_t k = 0; k < chunk->in_count; k++) {
                CDDPI_TRY(finish_buffer(pipeline, &chunk->slots[s].in[k].grad));
            }
            for (size_t k = 0; k < chunk->out_count; k++) {
                CDDPI_TRY(finish_buffer(pipeline, &chunk->slots[s].out[k].data));
            }
        }
    }
    return CDDP_OK;
}

/* --- other messages of the pipeline's ranks --- */

cddp_status cddpi_pipeline_exchange(struct cddpi_pipeline *pipeline, void *memory, size_t count,
                                    cddp_type type, int rank, bool arrives)
{
    const struct cddpi_device_ops *ops = pipeline->device->ops;
    size_t bytes = count * cddp_type_bytes(type);
    void *host = NULL;
    cddp_status status;

    if (!pipeline->through_host) {
        return arrives ? cddp_recv(pipeline->values, memory, count, type, rank, NULL)
                       : cddp_send(pipeline->values, memory, count, type, rank, NULL);
    }
    CDDPI_TRY(ops->pin(pipeline->device, bytes, &host));
    if (arrives) {
        CDDPI_TRY_GOTO(end, status, cddp_recv(pipeline->values, host, count, type, rank, NULL));
    }
    CDDPI_TRY_GOTO(end, status,
                   ops->copy(pipeline->device, CDDPI_STREAM_COMPUTE, arrives ? memory : host,
                             arrives ? host : memory, bytes));
    CDDPI_TRY_GOTO(end, status, ops->finish(pipeline->device, pipeline->timeout_ms));
    if (!arrives) {
        status = cddp_send(pipeline->values, host, count, type, rank, NULL);
    }
end:
    ops->unpin(pipeline->device, host);
    return status;
}

/* --- memory --- */

static void release_buffer(struct cddpi_pipeline *pipeline, struct cddpi_pipeline_buffer *buffer)
{
    const struct cddpi_device_ops *ops = pipeline->device->ops;

    cddp_work_destroy(buffer->work);
    if (buffer->moved != NULL) {
        (void)ops->wait(pipeline->device, buffer->moved, pipeline->timeout_ms);
    }
    ops->event_destroy(pipeline->device, buffer->moved);
    ops->unpin(pipeline->device, buffer->host);
    ops->release(pipeline->device, buffer->memory);
    *buffer = (struct cddpi_pipeline_buffer){.memory = NULL};
}

static void release_edges(struct cddpi_pipeline *pipeline, struct cddpi_pipeline_edge *edges,
                          size_t count)
{
    for (size_t k = 0; edges != NULL && k < count; k++) {
        release_buffer(pipeline, &edges[k].data);
        release_buffer(pipeline, &edges[k].grad);
    }
}

static cddp_status allocate_buffer(struct cddpi_pipeline *pipeline,
                                   struct cddpi_pipeline_buffer *buffer, size_t bytes,
                                   const char *what)
{
    const struct cddpi_device_ops *ops = pipeline->device->ops;

    CDDPI_TRY(ops->alloc(pipeline->device, bytes, what, &buffer->memory));
    if (!pipeline->through_host) {
        return CDDP_OK;
    }
    CDDPI_TRY(ops->event_create(pipeline->device, false, &buffer->moved));
    return ops->pin(pipeline->device, bytes, &buffer->host);
}

static cddp_status allocate_edges(struct cddpi_pipeline *pipeline,
                                  struct cddpi_pipeline_edge *edges,
                                  const struct cddpi_edge *descriptions, size_t count, int samples)
{
    for (size_t k = 0; k < count; k++) {
        const struct cddpi_edge *edge = &descriptions[k];
        size_t bytes = (size_t)samples * edge->elements * cddp_type_bytes(edge->type);

        CDDPI_TRY(allocate_buffer(pipeline, &edges[k].data, bytes, "values between stages"));
        if (edge->has_grad) {
            CDDPI_TRY(allocate_buffer(pipeline, &edges[k].grad, bytes, "gradients between stages"));
        }
    }
    return CDDP_OK;
}

/* Make room for @p samples samples. */
static cddp_status grow_slot(struct cddpi_pipeline *pipeline, struct cddpi_pipeline_chunk *chunk,
                             struct cddpi_pipeline_slot *slot, int samples)
{
    if (samples <= slot->samples) {
        return CDDP_OK;
    }
    release_edges(pipeline, slot->in, chunk->in_count);
    release_edges(pipeline, slot->out, chunk->out_count);
    slot->samples = 0;
    CDDPI_TRY(allocate_edges(pipeline, slot->in, chunk->in, chunk->in_count, samples));
    CDDPI_TRY(allocate_edges(pipeline, slot->out, chunk->out, chunk->out_count, samples));
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

size_t cddpi_pipeline_message_bytes(const struct cddpi_pipeline *pipeline,
                                    const struct cddpi_pipeline_chunk *chunk)
{
    size_t bytes = 0;

    for (int s = 0; s < pipeline->slot_count; s++) {
        int samples = chunk->slots[s].samples;

        bytes += cddpi_edge_buffers_bytes(chunk->in, chunk->in_count, samples) +
                 cddpi_edge_buffers_bytes(chunk->out, chunk->out_count, samples);
    }
    return bytes;
}

static cddp_status create_slots(struct cddpi_pipeline *pipeline, struct cddpi_pipeline_chunk *chunk)
{
    chunk->slots = cddpi_zalloc_array((size_t)pipeline->slot_count, sizeof *chunk->slots);
    for (int s = 0; chunk->slots != NULL && s < pipeline->slot_count; s++) {
        chunk->slots[s].in = cddpi_zalloc_array(chunk->in_count + 1, sizeof *chunk->slots[s].in);
        chunk->slots[s].out = cddpi_zalloc_array(chunk->out_count + 1, sizeof *chunk->slots[s].out);
        CDDPI_TRY_MEMORY(chunk->slots[s].in != NULL && chunk->slots[s].out != NULL,
                         "pipeline: no memory for its messages");
    }
    return chunk->slots != NULL
               ? CDDP_OK
               : cddpi_fail(CDDP_ERR_NO_MEMORY, "pipeline: no memory for %d micro-batches",
                            pipeline->slot_count);
}

/* All ranks decide the same. */
cddp_status cddpi_pipeline_create_messages(struct cddpi_pipeline *pipeline)
{
    size_t most = 0;

    pipeline->through_host = cddpi_device_is_async(pipeline->device) &&
                             !cddpi_group_sends_on_device(pipeline->values);
    for (int c = 0; c < pipeline->shape.chunks; c++) {
        struct cddpi_pipeline_chunk *chunk = &pipeline->chunks[c];
        size_t edges = chunk->in_count > chunk->out_count ? chunk->in_count : chunk->out_count;

        most = edges > most ? edges : most;
        CDDPI_TRY(create_slots(pipeline, chunk));
    }
    pipeline->dues = cddpi_zalloc_array(most + 1, sizeof *pipeline->dues);
    CDDPI_TRY_MEMORY(pipeline->dues != NULL, "pipeline: no memory for its messages");
    return CDDP_OK;
}

void cddpi_pipeline_release_messages(struct cddpi_pipeline *pipeline)
{
    for (int c = 0; pipeline->chunks != NULL && c < pipeline->shape.chunks; c++) {
        struct cddpi_pipeline_chunk *chunk = &pipeline->chunks[c];

        for (int s = 0; chunk->slots != NULL && s < pipeline->slot_count; s++) {
            release_edges(pipeline, chunk->slots[s].in, chunk->in_count);
            release_edges(pipeline, chunk->slots[s].out, chunk->out_count);
            cddpi_free(chunk->slots[s].in);
            cddpi_free(chunk->slots[s].out);
        }
        cddpi_free(chunk->slots);
        chunk->slots = NULL;
    }
    cddpi_free(pipeline->dues);
}
