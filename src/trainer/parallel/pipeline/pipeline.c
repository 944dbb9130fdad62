/* pipeline.c - owns a rank's chunks of a model, and the execution of a schedule.
 *
 * Chunk c of rank s is stage c x ranks + s. Ranks form a ring: activations go to the next rank,
 * gradients to the previous one. With several chunks, both may go from one rank to the same other
 * rank, so gradients have a group of their own. Within a group, sender and receiver handle a pair's
 * messages in the same order. */
#include "parallel/pipeline/pipeline.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "group/group_info.h"
#include "group/watch/group_trace.h"
#include "parallel/device_trace.h"
#include "parallel/pipeline/pipeline_state.h"

#include <string.h>

/* The arguments of one step or one evaluation. */
struct pipeline_run {
    struct cddpi_pipeline *pipeline;
    const struct cddpi_pipeline_work *work;
    bool training;
    int first;                        /* number of the first micro-batch in the feeds */
    int chunk;                        /* the current one */
    struct cddpi_loss_result *result; /* one for each micro-batch */
};

bool cddpi_pipeline_has_loss(const struct cddpi_pipeline *pipeline)
{
    return pipeline->rank == pipeline->shape.ranks - 1;
}

struct cddpi_model *cddpi_pipeline_model(const struct cddpi_pipeline *pipeline, int chunk)
{
    return pipeline->chunks[chunk].model;
}

struct cddpi_pipeline_times cddpi_pipeline_times(const struct cddpi_pipeline *pipeline)
{
    return pipeline->times;
}

/* Record that something lasted from @p begun_ns until now. */
static void note_time(struct cddpi_pipeline *pipeline, enum cddpi_span kind, int64_t begun_ns,
                      int micro_batch)
{
    int64_t now = cddpi_now_ns();
    struct cddpi_pipeline_times *times = &pipeline->times;

    *(kind == CDDPI_SPAN_FORWARD ? &times->forward_ns
      : kind == CDDPI_SPAN_WAIT  ? &times->wait_ns
                                 : &times->backward_ns) += now - begun_ns;
    if (pipeline->traced != NULL && kind != CDDPI_SPAN_WAIT) {
        cddpi_trace_add_work(pipeline->traced, kind, begun_ns, now, micro_batch);
    } else if (pipeline->traced != NULL) {
        cddpi_trace_add(pipeline->traced, kind, begun_ns, now, micro_batch, 0);
    }
}

/* --- memory --- */

size_t cddpi_pipeline_edge_bytes(const struct cddpi_pipeline *pipeline)
{
    size_t bytes = 0;

    for (int c = 0; c < pipeline->shape.chunks; c++) {
        const struct cddpi_pipeline_chunk *chunk = &pipeline->chunks[c];

        bytes += cddpi_pipeline_message_bytes(pipeline, chunk) +
                 cddpi_pipeline_feed_bytes(chunk->feed);
    }
    return bytes;
}

/* Called before a step, when no message is under way in the slots. */
static cddp_status make_room(struct cddpi_pipeline *pipeline, const struct cddpi_batch *batches,
                             int count)
{
    int samples = 0;

    for (int m = 0; m < count; m++) {
        samples = batches[m].count > samples ? batches[m].count : samples;
    }
    for (int c = 0; c < pipeline->shape.chunks; c++) {
        if (pipeline->chunks[c].feed != NULL) {
            CDDPI_TRY(cddpi_pipeline_feed_make_room(pipeline->chunks[c].feed, samples));
        }
    }
    return cddpi_pipeline_make_room(pipeline, samples);
}

cddp_status cddpi_pipeline_settle(struct cddpi_pipeline *pipeline)
{
    for (int c = 0; c < pipeline->shape.chunks; c++) {
        if (pipeline->chunks[c].feed != NULL) {
            CDDPI_TRY(cddpi_pipeline_feed_settle(pipeline->chunks[c].feed));
        }
    }
    return CDDP_OK;
}

/* --- a step --- */

static cddp_status on_ready(void *context, size_t index)
{
    const struct pipeline_run *run = context;

    return run->work->ready(run->work->context, run->chunk, index);
}

static void bind_edges(struct cddpi_pipeline_chunk *chunk, const struct cddpi_pipeline_slot *slot)
{
    for (size_t k = 0; k < chunk->in_count; k++) {
        cddpi_model_bind_edge(chunk->model, CDDPI_EDGE_IN, k, slot->in[k].data.memory,
                              slot->in[k].grad.memory);
    }
    for (size_t k = 0; k < chunk->out_count; k++) {
        cddpi_model_bind_edge(chunk->model, CDDPI_EDGE_OUT, k, slot->out[k].data.memory,
                              slot->out[k].grad.memory);
    }
}

/* Whether nothing is computed for a micro-batch, since it has no samples. */
static bool is_skipped(const struct pipeline_run *run, int micro_batch)
{
    return run->work->separate && run->work->batches[micro_batch].count == 0;
}

static cddp_status compute_action(struct pipeline_run *run,
                                  const struct cddpi_pipeline_action *action)
{
    struct cddpi_pipeline_chunk *chunk = &run->pipeline->chunks[action->chunk];
    const struct cddpi_pipeline_work *work = run->work;
    int m = action->micro_batch;
    bool adds = m > 0 && !work->separate;
    bool completes = m == work->count - 1 || work->separate;
    cddpi_grad_ready_fn ready = completes && work->ready != NULL ? on_ready : NULL;
    struct cddpi_loss_result result = {0};
    struct cddpi_batch batch = work->batches[m];
    const struct cddpi_model_slots slots = {action->slot, action->kept, action->grads};

    run->chunk = action->chunk;
    CDDPI_TRY(cddpi_model_use_slots(chunk->model, &slots));
    if (action->pass == CDDPI_PASS_WEIGHTS) {
        return cddpi_model_weights(chunk->model, adds, ready, run);
    }
    bind_edges(chunk, &chunk->slots[action->slot]);
    if (action->pass == CDDPI_PASS_BACKWARD) {
        CDDPI_TRY(cddpi_model_backward(chunk->model, work->scales[m], adds, ready, run));
        return chunk->feed != NULL ? cddpi_pipeline_feed_release(chunk->feed, run->first + m)
                                   : CDDP_OK;
    }
    if (chunk->feed != NULL) {
        CDDPI_TRY(cddpi_pipeline_feed_take(chunk->feed, run->first + m, &batch));
    }
    CDDPI_TRY(cddpi_model_forward(chunk->model, &batch, run->training, &result));
    if (chunk->feed != NULL && !run->training) {
        CDDPI_TRY(cddpi_pipeline_feed_release(chunk->feed, run->first + m));
    }
    if (cddpi_pipeline_stage_of(run->pipeline, action->chunk) ==
        cddpi_pipeline_last_stage(run->pipeline)) {
        run->result[m] = result;
    }
    return work->forwarded != NULL ? work->forwarded(work->context, action->chunk) : CDDP_OK;
}

/* Let the caller wait for messages of its own. */
static cddp_status call_before(const struct pipeline_run *run,
                               const struct cddpi_pipeline_action *action)
{
    int64_t begun = cddpi_now_ns();
    cddp_status status;

    if (run->work->before == NULL) {
        return CDDP_OK;
    }
    status = run->work->before(run->work->context, action->chunk, action->pass);
    note_time(run->pipeline, CDDPI_SPAN_WAIT, begun, action->micro_batch);
    return status;
}

/* The samples of an action. */
static size_t count_of(const struct pipeline_run *run, const struct cddpi_pipeline_action *action)
{
    return (size_t)run->work->batches[action->micro_batch].count;
}

/* Start bringing what an action needs: from other ranks, and on a device its batch. */
static cddp_status begin_action(const struct pipeline_run *run,
                                const struct cddpi_pipeline_action *action)
{
    struct cddpi_pipeline *pipeline = run->pipeline;
    struct cddpi_pipeline_feed *feed = pipeline->chunks[action->chunk].feed;

    CDDPI_TRY(cddpi_pipeline_start_input(pipeline, action, count_of(run, action)));
    return feed != NULL && action->pass == CDDPI_PASS_FORWARD
               ? cddpi_pipeline_feed_put(feed, run->first + action->micro_batch,
                                         &run->work->batches[action->micro_batch], run->training)
               : CDDP_OK;
}

/* Run an action. Its own messages have been started already; start the next action's, so that they
 * progress meanwhile. */
static cddp_status act(struct pipeline_run *run, const struct cddpi_pipeline_action *action,
                       const struct cddpi_pipeline_action *next)
{
    int64_t begun = cddpi_now_ns();
    cddp_status status = cddpi_pipeline_finish_input(run->pipeline, action);

    note_time(run->pipeline, CDDPI_SPAN_WAIT, begun, action->micro_batch);
    CDDPI_TRY(status);
    if (next != NULL) {
        CDDPI_TRY(begin_action(run, next));
    }
    if (is_skipped(run, action->micro_batch)) {
        return CDDP_OK;
    }
    CDDPI_TRY(call_before(run, action));
    begun = cddpi_now_ns();
    status = compute_action(run, action);
    note_time(run->pipeline, cddpi_span_of_pass(action->pass), begun, action->micro_batch);
    CDDPI_TRY(status);
    return count_of(run, action) > 0
               ? cddpi_pipeline_start_output(run->pipeline, action, count_of(run, action))
               : CDDP_OK;
}

static cddp_status act_all(struct pipeline_run *run, const struct cddpi_pipeline_action *actions,
                           size_t count)
{
    cddp_status status;
    int64_t begun;

    CDDPI_TRY(begin_action(run, &actions[0]));
    for (size_t i = 0; i < count; i++) {
        CDDPI_TRY(act(run, &actions[i], i + 1 < count ? &actions[i + 1] : NULL));
    }
    begun = cddpi_now_ns();
    status = cddpi_pipeline_finish_all(run->pipeline);
    note_time(run->pipeline, CDDPI_SPAN_WAIT, begun, actions[count - 1].micro_batch);
    return status;
}

cddp_status cddpi_pipeline_step(struct cddpi_pipeline *pipeline,
                                const struct cddpi_pipeline_work *work,
                                struct cddpi_loss_result *out)
{
    struct pipeline_run run = {.pipeline = pipeline, .work = work, .training = true, .result = out};
    struct cddpi_pipeline_shape shape = pipeline->shape;
    struct cddpi_pipeline_action *actions = NULL;
    size_t action_count = 0;
    int count = work->count;
    cddp_status status;

    memset(out, 0, (size_t)count * sizeof *out);
    shape.micro_batches = count;
    if (count > pipeline->shape.micro_batches) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "pipeline: %d micro-batches; it was made for %d",
                          count, pipeline->shape.micro_batches);
    }
    pipeline->times = (struct cddpi_pipeline_times){0, 0, 0};
    CDDPI_TRY(cddpi_pipeline_plan(&shape, pipeline->rank, &actions, &action_count));
    CDDPI_TRY_GOTO(end, status, make_room(pipeline, work->batches, count));
    CDDPI_TRY_GOTO(end, status, act_all(&run, actions, action_count));
end:
    cddpi_free(actions);
    return status;
}

cddp_status cddpi_pipeline_evaluate(struct cddpi_pipeline *pipeline,
                                    const struct cddpi_batch *batch, struct cddpi_loss_result *out)
{
    struct cddpi_loss_result result = {0};
    const struct cddpi_pipeline_work work = {.batches = batch, .count = 1};
    struct pipeline_run run = {.pipeline = pipeline,
                               .work = &work,
                               .first = pipeline->evaluated++ % 2,
                               .training = false,
                               .result = &result};

    CDDPI_TRY(make_room(pipeline, batch, 1));
    for (int c = 0; c < pipeline->shape.chunks; c++) {
        struct cddpi_pipeline_action action = {.chunk = c};

        CDDPI_TRY(act_all(&run, &action, 1));
    }
    *out = result;
    return cddpi_pipeline_settle(pipeline);
}

/* --- life --- */

static cddp_status create_chunk(struct cddpi_pipeline *pipeline,
                                const struct cddpi_model_spec *whole, uint64_t seed,
                                const struct cddpi_pipeline_options *options, int index)
{
    struct cddpi_pipeline_chunk *chunk = &pipeline->chunks[index];
    struct cddpi_model_spec spec = *whole;

    spec.part = options->stages[cddpi_pipeline_stage_of(pipeline, index)];
    spec.own_edges = cddpi_device_is_async(pipeline->device);
    spec.split = pipeline->shape.schedule == CDDPI_PIPELINE_ZERO_BUBBLE;
    if (options->recompute != NULL) {
        spec.recompute = spec.recompute ||
                         options->recompute[cddpi_pipeline_stage_of(pipeline, index)];
    }
    CDDPI_TRY(cddpi_model_create(&spec, seed, options->replicas, &chunk->model));
    chunk->in = cddpi_model_edges(chunk->model, CDDPI_EDGE_IN, &chunk->in_count);
    chunk->out = cddpi_model_edges(chunk->model, CDDPI_EDGE_OUT, &chunk->out_count);
    if (cddpi_device_is_async(pipeline->device)) {
        CDDPI_TRY(cddpi_pipeline_feed_create(whole, pipeline->slot_count, chunk->model,
                                             pipeline->device, pipeline->timeout_ms, &chunk->feed));
    }
    return CDDP_OK;
}

/* Calculate how many micro-batches a chunk of this rank holds at most. */
static cddp_status count_slots(struct cddpi_pipeline *pipeline)
{
    struct cddpi_pipeline_action *actions = NULL;
    size_t count = 0;
    int most = 0;

    CDDPI_TRY(cddpi_pipeline_plan(&pipeline->shape, pipeline->rank, &actions, &count));
    for (int c = 0; c < pipeline->shape.chunks; c++) {
        int kept;
        int slots = cddpi_pipeline_slots(actions, count, c, &kept);

        pipeline->slot_count = slots > pipeline->slot_count ? slots : pipeline->slot_count;
        most = kept > most ? kept : most;
    }
    cddpi_free(actions);
    return most <= CDDPI_MODEL_SLOTS
               ? CDDP_OK
               : cddpi_fail(CDDP_ERR_ARGUMENT,
                            "pipeline: %d micro-batches at once; %d are possible, and 1f1b needs "
                            "fewer",
                            most, CDDPI_MODEL_SLOTS);
}

cddp_status cddpi_pipeline_create(const struct cddpi_model_spec *spec, uint64_t seed,
                                  const struct cddpi_pipeline_options *options,
                                  struct cddpi_pipeline **out)
{
    struct cddpi_pipeline *pipeline = cddpi_zalloc(sizeof *pipeline);
    cddp_status status;

    CDDPI_TRY_MEMORY(pipeline != NULL, "pipeline: no memory for %zu bytes", sizeof *pipeline);
    pipeline->shape = (struct cddpi_pipeline_shape){options->schedule,
                                                    cddp_group_world_size(options->group),
                                                    options->chunks, options->most_micro_batches};
    pipeline->rank = cddp_group_rank(options->group);
    pipeline->traced = options->traced;
    pipeline->device = cddpi_device_or_cpu(spec->device);
    pipeline->timeout_ms = cddpi_group_timeout_ms(options->group);
    pipeline->values = options->group;
    pipeline->gradients = options->group;
    CDDPI_TRY_GOTO(fail, status, count_slots(pipeline));
    if (options->chunks > 1) {
        CDDPI_TRY_GOTO(fail, status,
                       cddp_group_split(options->group, 0, pipeline->rank, &pipeline->gradients));
    }
    pipeline->chunks = cddpi_zalloc_array((size_t)options->chunks, sizeof *pipeline->chunks);
    if (pipeline->chunks == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "pipeline: no memory for %d chunks",
                            options->chunks);
        goto fail;
    }
    for (int c = 0; c < options->chunks; c++) {
        CDDPI_TRY_GOTO(fail, status, create_chunk(pipeline, spec, seed, options, c));
    }
    CDDPI_TRY_GOTO(fail, status, cddpi_pipeline_create_messages(pipeline));
    *out = pipeline;
    return CDDP_OK;

fail:
    cddpi_pipeline_destroy(pipeline);
    return status;
}

static void destroy_chunk(struct cddpi_pipeline_chunk *chunk)
{
    cddpi_pipeline_feed_destroy(chunk->feed);
    cddpi_model_destroy(chunk->model);
}

void cddpi_pipeline_destroy(struct cddpi_pipeline *pipeline)
{
    if (pipeline == NULL) {
        return;
    }
    cddpi_pipeline_release_messages(pipeline);
    for (int c = 0; pipeline->chunks != NULL && c < pipeline->shape.chunks; c++) {
        destroy_chunk(&pipeline->chunks[c]);
    }
    cddpi_free(pipeline->chunks);
    if (pipeline->gradients != pipeline->values) {
        cddp_group_destroy(pipeline->gradients);
    }
    cddpi_free(pipeline);
}
