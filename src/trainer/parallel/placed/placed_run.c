/* placed_run.c - owns the passes of a placed model: each device's thread runs its actions in order,
 * and before each waits for the result of the previous or next segment. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/shape.h"
#include "parallel/device_trace.h"
#include "parallel/placed/placed_state.h"

#include <string.h>
#include <time.h>

/* State shared by all devices during a pass. */
struct placed_run {
    struct cddpi_placed *placed;
    const struct cddpi_placed_plan *plan;
    const struct cddpi_batch *batches;
    const double *scales;
    bool training, accumulate;
    bool separate; /* struct cddpi_placed_work */
    cddpi_grad_ready_fn ready;
    cddp_status (*forwarded_fn)(void *context, int index);
    void *context;
    struct cddpi_loss_result *results; /* one per micro-batch, written by the last segment's device
                                        */
    struct cddpi_device_trace *trace;
    pthread_mutex_t lock; /* protects the fields below */
    pthread_cond_t moved;
    bool *forwarded, *backed; /* part_count x micro-batches: which passes are done */
    int *slots;               /* part_count x micro-batches: the slot of a micro-batch in a part */
    bool failed;              /* a device has failed, so the others stop */
};

static size_t place_of(const struct placed_run *run, int part, int micro_batch)
{
    return (size_t)part * (size_t)run->plan->micro_batches + (size_t)micro_batch;
}

static cddp_status fail_late(const struct placed_run *run, int part, int from)
{
    const struct cddpi_placed *placed = run->placed;
    const cddp_devices *devices = placed->devices;

    return cddpi_fail(CDDP_ERR_TIMEOUT,
                      "stage %d has waited %u ms for what stage %d hands over, on %s", part,
                      placed->timeout_ms, from, devices->cores[placed->segments[from].device].name);
}

/* Wait until an action's input is ready. @p out_ends: another device has failed. */
static cddp_status await(struct placed_run *run, const struct cddpi_pipeline_action *action,
                         bool *out_ends)
{
    bool backward = action->pass == CDDPI_PASS_BACKWARD;
    int from = action->chunk + (backward ? 1 : -1);
    const bool *done = backward ? run->backed : run->forwarded;
    int64_t deadline = cddpi_deadline_ns(run->placed->timeout_ms);
    struct timespec until = {deadline / 1000000000, deadline % 1000000000};
    bool alone = from < 0 || from == run->placed->part_count || action->pass == CDDPI_PASS_WEIGHTS;
    int error = 0;

    pthread_mutex_lock(&run->lock);
    while (!alone && !run->failed && error == 0 &&
           !done[place_of(run, from, action->micro_batch)]) {
        error = pthread_cond_timedwait(&run->moved, &run->lock, &until);
    }
    *out_ends = run->failed;
    alone = alone || done[place_of(run, from, action->micro_batch)];
    pthread_mutex_unlock(&run->lock);
    return alone || *out_ends ? CDDP_OK : fail_late(run, action->chunk, from);
}

static void tell(struct placed_run *run, const struct cddpi_pipeline_action *action,
                 cddp_status status)
{
    size_t place = place_of(run, action->chunk, action->micro_batch);

    pthread_mutex_lock(&run->lock);
    if (status != CDDP_OK) {
        run->failed = true;
    } else if (action->pass == CDDPI_PASS_BACKWARD) {
        run->backed[place] = true;
    } else if (action->pass == CDDPI_PASS_FORWARD) {
        run->forwarded[place] = true;
        run->slots[place] = action->slot;
    }
    pthread_cond_broadcast(&run->moved);
    pthread_mutex_unlock(&run->lock);
}

/* Bind both ends of each edge to one memory, in the slot of the part that computes the value. */
static void bind_edges(const struct placed_run *run, const struct cddpi_pipeline_action *action)
{
    struct cddpi_placed_part *part = &run->placed->parts[action->chunk];
    struct cddpi_edge_buffer *own = part->buffers + (size_t)action->slot * part->out_count;

    for (size_t k = 0; k < part->out_count; k++) {
        cddpi_device_model_bind_edge(part->model, CDDPI_EDGE_OUT, k, own[k].data, own[k].grad);
    }
    if (part->in_count > 0) {
        const struct cddpi_placed_part *before = part - 1;
        size_t place = place_of(run, action->chunk - 1, action->micro_batch);
        const struct cddpi_edge_buffer *in = before->buffers +
                                             (size_t)run->slots[place] * before->out_count;

        for (size_t k = 0; k < part->in_count; k++) {
            cddpi_device_model_bind_edge(part->model, CDDPI_EDGE_IN, k, in[k].data, in[k].grad);
        }
    }
}

/* A callback's context: which part reports. */
struct report {
    const struct placed_run *run;
    const struct cddpi_placed_part *part;
};

static cddp_status on_ready(void *context, size_t index)
{
    const struct report *report = context;
    const struct cddpi_placed_part *part = report->part;
    struct cddpi_placed *placed = part->placed;
    cddp_status status;

    if (part->is_later[index] || cddpi_placed_comes_later(part, index)) {
        return CDDP_OK; /* the owner reports it, or cddpi_placed_add_shares() completes it later */
    }
    pthread_mutex_lock(&placed->gate);
    status = report->run->ready(report->run->context, part->numbers[index]);
    pthread_mutex_unlock(&placed->gate);
    return status;
}

/* The caller hears that a forward of @p part has run. */
static cddp_status tell_forwarded(const struct placed_run *run, struct cddpi_placed_part *part)
{
    struct cddpi_placed *placed = run->placed;
    cddp_status status;

    if (run->forwarded_fn == NULL) {
        return CDDP_OK;
    }
    pthread_mutex_lock(&placed->gate);
    status = run->forwarded_fn(run->context, (int)(part - placed->parts));
    pthread_mutex_unlock(&placed->gate);
    return status;
}

static cddp_status compute_backward(struct placed_run *run,
                                    const struct cddpi_pipeline_action *action,
                                    struct cddpi_loss_result *late)
{
    struct cddpi_placed_part *part = &run->placed->parts[action->chunk];
    int m = action->micro_batch;
    bool completes = run->ready != NULL && (run->separate || m == run->plan->micro_batches - 1);
    bool accumulate = run->accumulate || (m > 0 && !run->separate);
    struct report report = {run, part};

    if (action->pass == CDDPI_PASS_WEIGHTS) {
        return cddpi_device_model_weights(part->model, accumulate, completes ? on_ready : NULL,
                                          &report);
    }
    if (run->separate) {
        cddpi_placed_begin_shares(part, m);
    }
    return cddpi_device_model_backward(part->model, run->scales[m], accumulate,
                                       completes ? on_ready : NULL, &report, late);
}

static cddp_status compute_action(struct placed_run *run,
                                  const struct cddpi_pipeline_action *action)
{
    struct cddpi_placed_part *part = &run->placed->parts[action->chunk];
    struct cddpi_loss_result result = {0};
    const struct cddpi_model_slots slots = {action->slot, action->kept, action->grads};

    CDDPI_TRY(cddpi_device_model_use_slots(part->model, &slots));
    if (action->pass != CDDPI_PASS_WEIGHTS) {
        bind_edges(run, action);
    }
    if (action->pass != CDDPI_PASS_FORWARD) {
        CDDPI_TRY(compute_backward(run, action, &result));
    } else {
        CDDPI_TRY(cddpi_device_model_forward(part->model, &run->batches[action->micro_batch],
                                             run->training, &result));
        CDDPI_TRY(tell_forwarded(run, part));
    }
    if (action->chunk == run->placed->part_count - 1) {
        struct cddpi_loss_result *sum = &run->results[action->micro_batch];

        sum->loss_sum += result.loss_sum;
        sum->correct += result.correct;
        sum->count += result.count;
    }
    return CDDP_OK;
}

static cddp_status run_device(int device, void *arg)
{
    struct placed_run *run = arg;
    const struct cddpi_pipeline_action *actions = run->plan->actions[device];
    cddp_status status = CDDP_OK;
    bool ends = false;

    for (size_t i = 0; status == CDDP_OK && !ends && i < run->plan->counts[device]; i++) {
        status = await(run, &actions[i], &ends);
        if (status == CDDP_OK && !ends) {
            int64_t begun = cddpi_now_ns();

            status = compute_action(run, &actions[i]);
            cddpi_device_trace_add(run->trace, device, cddpi_span_of_pass(actions[i].pass), begun,
                                   run->plan->micro_batches > 1 ? actions[i].micro_batch : -1);
        }
        if (!ends) {
            tell(run, &actions[i], status);
        }
    }
    return status;
}

/* Make room in every slot for what passes between segments. */
static cddp_status make_room(struct cddpi_placed_part *part, int samples)
{
    struct cddpi_device *device = cddpi_device_cpu();
    size_t slots = (size_t)part->placed->slots;

    if (samples <= part->room || part->out_count == 0) {
        return CDDP_OK;
    }
    cddpi_edge_buffers_release(device, part->buffers, slots * part->out_count);
    part->room = 0;
    for (size_t i = 0; i < slots; i++) {
        CDDPI_TRY(cddpi_edge_buffers_allocate(device, part->buffers + i * part->out_count,
                                              part->out, part->out_count, samples));
    }
    part->room = samples;
    return CDDP_OK;
}

static cddp_status start_run(struct placed_run *run)
{
    size_t all = (size_t)run->placed->part_count * (size_t)run->plan->micro_batches;
    pthread_condattr_t monotonic;
    cddp_status status;

    run->forwarded = cddpi_zalloc_array(all, sizeof *run->forwarded);
    run->backed = cddpi_zalloc_array(all, sizeof *run->backed);
    run->slots = cddpi_zalloc_array(all, sizeof *run->slots);
    if (run->forwarded == NULL || run->backed == NULL || run->slots == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "parallel: no memory for %zu actions", all);
    } else {
        pthread_condattr_init(&monotonic);
        pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
        pthread_mutex_init(&run->lock, NULL);
        pthread_cond_init(&run->moved, &monotonic);
        pthread_condattr_destroy(&monotonic);
        run->trace = cddpi_device_trace_begin(run->placed->traced, run->placed->devices->count,
                                              3 * all);
        status = cddpi_workers_run(run->placed->workers, run_device, run);
        cddpi_device_trace_end(run->trace);
        pthread_cond_destroy(&run->moved);
        pthread_mutex_destroy(&run->lock);
    }
    cddpi_free(run->forwarded);
    cddpi_free(run->backed);
    cddpi_free(run->slots);
    return status;
}

cddp_status cddpi_placed_forward(struct cddpi_placed *placed, const struct cddpi_batch *batch,
                                 bool training, struct cddpi_loss_result *out)
{
    struct cddpi_loss_result result = {0};
    struct placed_run run = {.placed = placed,
                             .plan = &placed->forward,
                             .batches = batch,
                             .training = training,
                             .results = &result};

    for (int s = 0; s < placed->part_count; s++) {
        CDDPI_TRY(make_room(&placed->parts[s], batch->count));
    }
    CDDPI_TRY(start_run(&run));
    if (out != NULL) {
        *out = result;
    }
    return CDDP_OK;
}

cddp_status cddpi_placed_backward(struct cddpi_placed *placed, double scale, bool accumulate,
                                  cddpi_grad_ready_fn ready, void *context)
{
    struct placed_run run = {.placed = placed,
                             .plan = &placed->backward,
                             .scales = &scale,
                             .accumulate = accumulate,
                             .ready = ready,
                             .context = context,
                             .results = &placed->late};
    cddp_status status;

    placed->late = (struct cddpi_loss_result){0};
    status = start_run(&run);
    return status == CDDP_OK && ready != NULL && placed->has_gpu
               ? cddpi_placed_add_shares(placed, ready, context)
               : status;
}

struct cddpi_loss_result cddpi_placed_late(const struct cddpi_placed *placed)
{
    return placed->late;
}

static cddp_status plan_step(struct cddpi_placed *placed, int count)
{
    struct cddpi_placed_shape shape = {placed->segments, placed->part_count, placed->devices->count,
                                       placed->schedule, count};

    if (placed->step.micro_batches == count) {
        return CDDP_OK;
    }
    cddpi_placed_plan_fini(&placed->step);
    return cddpi_placed_plan(&shape, CDDPI_PLACED_BOTH, &placed->step);
}

cddp_status cddpi_placed_step(struct cddpi_placed *placed, const struct cddpi_placed_work *work,
                              struct cddpi_loss_result *out)
{
    struct placed_run run = {.placed = placed,
                             .plan = &placed->step,
                             .batches = work->batches,
                             .scales = work->scales,
                             .training = true,
                             .separate = work->separate,
                             .ready = work->ready,
                             .forwarded_fn = work->forwarded,
                             .context = work->context,
                             .results = out};

    memset(out, 0, (size_t)work->count * sizeof *out);
    CDDPI_TRY(plan_step(placed, work->count));
    if (placed->step.slots > placed->slots) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "parallel: %d micro-batches at once; it was made for %d",
                          placed->step.slots, placed->slots);
    }
    for (int s = 0; s < placed->part_count; s++) {
        for (int m = 0; m < work->count; m++) {
            CDDPI_TRY(make_room(&placed->parts[s], work->batches[m].count));
        }
    }
    CDDPI_TRY(start_run(&run));
    return work->separate ? CDDP_OK : cddpi_placed_add_shares(placed, work->ready, work->context);
}
