/* reducer.c - owns the course of a step: begin, gradients becoming ready, buckets started strictly
 * in index order, and the wait at its end. */
#include "base/clock.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "ddp/ddp.h"
#include "group/device/device.h"

#include <math.h>
#include <string.h>

static const cddp_step plain_step = CDDP_STEP_INIT;

static cddp_status begin(cddp_ddp *ddp, const cddp_step *step)
{
    cddp_step read = CDDP_STEP_INIT;
    cddp_status status;

    status = cddpi_ddp_usable(ddp);
    if (status != CDDP_OK) {
        return status;
    }
    if (ddp->in_backward) {
        return cddpi_fail(CDDP_ERR_STATE,
                          "ddp: begin in the middle of backward %llu: %zu of %zu gradients are "
                          "ready, and wait was not called",
                          (unsigned long long)ddp->backward, ddp->arrival_count, ddp->slot_count);
    }
    if (step != NULL) {
        status = cddpi_struct_read("step", "CDDP_STEP_INIT", step, sizeof read,
                                   sizeof read.struct_size, &read);
        if (status != CDDP_OK) {
            return status;
        }
    }
    if (!isfinite(read.weight)) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "ddp: the weight of a step is %g", read.weight);
    }
    ddp->step = read;
    return ddp->shards != NULL ? cddpi_shard_finish(ddp) : CDDP_OK;
}

cddp_status cddp_ddp_begin(cddp_ddp *ddp, const cddp_step *step)
{
    cddp_status status = cddpi_ddp_enter(ddp, "ddp_begin");

    return status == CDDP_OK ? cddpi_ddp_leave(ddp, begin(ddp, step)) : status;
}

cddp_status cddp_ddp_begin_samples(cddp_ddp *ddp, uint64_t samples)
{
    cddp_step step = CDDP_STEP_INIT;

    cddp_status status = cddpi_ddp_enter(ddp, "ddp_begin_samples");

    step.weight = (double)samples;
    return status == CDDP_OK ? cddpi_ddp_leave(ddp, begin(ddp, &step)) : status;
}

/* See which of the running buckets have ended meanwhile: for the statistics, and so that a failure
 * is known before backward ends. */
static cddp_status look(cddp_ddp *ddp)
{
    if (cddpi_device_is_async(ddp->device)) { /* there events tell when they end */
        return cddpi_group_healthy(ddp->group);
    }
    while (ddp->seen < ddp->next_bucket) {
        struct cddp_bucket *bucket = &ddp->layout.buckets[ddp->seen];
        bool done = bucket->finished;

        if (!done) {
            cddp_status status = cddp_work_test(bucket->work, &done);

            if (status != CDDP_OK) {
                return cddpi_bucket_failed(bucket, status);
            }
        }
        if (!done) {
            return CDDP_OK;
        }
        if (bucket->end_ns == 0) {
            bucket->end_ns = cddpi_now_ns();
        }
        ddp->seen++;
    }
    return CDDP_OK;
}

/* The next bucket could not be started, with @p status and the thread's text: because one before it
 * has failed meanwhile? Then that says why. */
static cddp_status why_not_started(cddp_ddp *ddp, cddp_status status)
{
    struct cddpi_failure failure = *cddpi_last_failure();
    cddp_status earlier;

    ddp->next_bucket--;
    earlier = status == CDDP_ERR_CLOSED ? look(ddp) : CDDP_OK;
    return earlier == CDDP_OK ? cddpi_fail_again(status, &failure) : earlier;
}

/* Start all buckets that are complete and whose predecessors were started. */
static cddp_status start_buckets(cddp_ddp *ddp)
{
    while (ddp->next_bucket < ddp->layout.plan->bucket_count &&
           ddp->layout.buckets[ddp->next_bucket].missing == 0) {
        struct cddp_bucket *bucket = &ddp->layout.buckets[ddp->next_bucket++];
        cddp_status status;

        bucket->start_ns = cddpi_now_ns();
        ddp->arrival_ns = bucket->start_ns;
        status = cddpi_timing_bucket_start(bucket);
        if (status == CDDP_OK) {
            status = cddpi_bucket_advance(bucket);
        }
        if (status != CDDP_OK) {
            return why_not_started(ddp, status);
        }
    }
    return CDDP_OK;
}

static cddp_status find_slot(const cddp_ddp *ddp, size_t index, struct cddpi_slot **out)
{
    if (index >= ddp->param_count) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "ddp: gradient %zu is ready, but there are only %zu",
                          index, ddp->param_count);
    }
    if (ddp->params[index].slot == UINT32_MAX) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "ddp: gradient %zu is ready, but parameter %zu (%.200s) is frozen", index,
                          index, ddp->params[index].name);
    }
    *out = &ddp->slots[ddp->params[index].slot];
    return CDDP_OK;
}

static cddp_status ready_twice(cddp_ddp *ddp, size_t index)
{
    cddp_status status = cddpi_fail(
        CDDP_ERR_STATE, "the gradient of parameter %zu (%.200s) was ready twice in backward %llu",
        index, ddp->params[index].name, (unsigned long long)ddp->backward);

    /* its bucket may have been started, so the sum is wrong: all ranks must learn of it */
    return ddp->step.no_sync ? status : cddpi_ddp_set_pending(ddp, status);
}

/* The bytes of @p bucket that are @p slot's, from its first one on. */
static size_t part_of(const struct cddp_bucket *bucket, const struct cddpi_slot *slot,
                      size_t *out_first)
{
    const struct cddpi_bucket_plan_bucket *planned =
        &bucket->ddp->layout.plan->buckets[bucket->index];

    *out_first = planned->is_part ? (size_t)((unsigned char *)bucket->data - slot->slice) : 0;
    return planned->is_part ? planned->payload : slot->bytes;
}

/* A gradient is ready: start what it completes. Of one in several buckets each part goes as soon as
 * it is copied, while the next is. */
static cddp_status complete(cddp_ddp *ddp, const struct cddpi_slot *slot)
{
    size_t index = (size_t)(slot - ddp->slots);
    struct cddp_bucket *bucket = &ddp->layout.buckets[ddp->layout.plan->bucket_of[index]];
    cddp_status status = CDDP_OK;

    for (uint32_t p = 0; p < ddp->layout.plan->parts_of[index] && status == CDDP_OK; p++) {
        size_t first;
        size_t bytes = part_of(&bucket[p], slot, &first);

        if (slot->copied) {
            status = cddpi_ddp_copy(ddp, slot->slice + first, (char *)slot->grad + first, bytes);
        }
        bucket[p].missing--;
        if (status == CDDP_OK) {
            status = start_buckets(ddp);
        }
    }
    return status;
}

static cddp_status begin_backward(cddp_ddp *ddp, int64_t now_ns)
{
    ddp->in_backward = true;
    ddp->begin_ns = now_ns;
    cddpi_ddp_trace_begin(ddp);
    return cddpi_timing_begin(ddp);
}

/* Let what was started move on, and look at it. */
static cddp_status move_on(cddp_ddp *ddp)
{
    cddpi_group_poll(ddp->group);
    return look(ddp);
}

/* Gradient @p index, which exists, is ready. */
static cddp_status take_ready(cddp_ddp *ddp, size_t index)
{
    struct cddpi_slot *slot = &ddp->slots[ddp->params[index].slot];

    slot->ready = true;
    slot->used = true;
    ddp->arrivals[ddp->arrival_count++] = ddp->params[index].slot;
    if (ddp->rebuild_due && ddp->chooses_sizes) {
        ddp->ready_s[ddp->params[index].slot] = (double)(cddpi_now_ns() - ddp->begin_ns) * 1e-9;
    }
    return ddp->step.no_sync ? CDDP_OK : complete(ddp, slot);
}

/* All those of [first, first + count) that are not frozen are ready; they were checked. */
static cddp_status take_all_ready(cddp_ddp *ddp, size_t first, size_t count)
{
    cddp_status status = ddp->in_backward ? CDDP_OK : begin_backward(ddp, cddpi_now_ns());

    for (size_t i = first; i < first + count && status == CDDP_OK; i++) {
        if (ddp->params[i].slot != UINT32_MAX) {
            status = take_ready(ddp, i);
        }
    }
    if (status == CDDP_OK && !ddp->step.no_sync) {
        status = move_on(ddp);
    }
    return status == CDDP_OK ? CDDP_OK : cddpi_ddp_break(ddp, status);
}

static cddp_status grad_ready(cddp_ddp *ddp, size_t index)
{
    struct cddpi_slot *slot = NULL;
    cddp_status status;

    status = cddpi_ddp_usable(ddp);
    if (status == CDDP_OK) {
        status = find_slot(ddp, index, &slot);
    }
    if (status != CDDP_OK) {
        return status;
    }
    return slot->ready ? ready_twice(ddp, index) : take_all_ready(ddp, index, 1);
}

static cddp_status grads_ready(cddp_ddp *ddp, size_t first, size_t count)
{
    cddp_status status = cddpi_ddp_usable(ddp);

    if (status != CDDP_OK) {
        return status;
    }
    if (first > ddp->param_count || count > ddp->param_count - first) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "ddp: %zu gradients from %zu on are ready, but there are only %zu", count,
                          first, ddp->param_count);
    }
    for (size_t i = first; i < first + count; i++) {
        if (ddp->params[i].slot != UINT32_MAX && ddp->slots[ddp->params[i].slot].ready) {
            return ready_twice(ddp, i);
        }
    }
    return count > 0 ? take_all_ready(ddp, first, count) : CDDP_OK;
}

static cddp_status progress(cddp_ddp *ddp)
{
    cddp_status status = cddpi_ddp_usable(ddp);

    if (status != CDDP_OK) {
        return status;
    }
    status = move_on(ddp);
    return status == CDDP_OK ? CDDP_OK : cddpi_ddp_break(ddp, status);
}

cddp_status cddp_ddp_grad_ready(cddp_ddp *ddp, size_t index)
{
    cddp_status status = cddpi_ddp_enter(ddp, "ddp_grad_ready");

    return status == CDDP_OK ? cddpi_ddp_leave(ddp, grad_ready(ddp, index)) : status;
}

cddp_status cddp_ddp_grads_ready(cddp_ddp *ddp, size_t first, size_t count)
{
    cddp_status status = cddpi_ddp_enter(ddp, "ddp_grads_ready");

    return status == CDDP_OK ? cddpi_ddp_leave(ddp, grads_ready(ddp, first, count)) : status;
}

cddp_status cddp_ddp_progress(cddp_ddp *ddp)
{
    cddp_status status = cddpi_ddp_enter(ddp, "ddp_progress");

    return status == CDDP_OK ? cddpi_ddp_leave(ddp, progress(ddp)) : status;
}

/* Copy results to gradients that lie elsewhere. Zero-filled ones are left out: only the step
 * statuses tell whether another rank has used them. */
static cddp_status copy_out(struct cddp_bucket *bucket)
{
    cddp_status status = CDDP_OK;
    cddp_ddp *ddp = bucket->ddp;
    const struct cddpi_bucket_plan_bucket *planned = &ddp->layout.plan->buckets[bucket->index];

    for (size_t i = 0; i < planned->count && status == CDDP_OK; i++) {
        struct cddpi_slot *slot = &ddp->slots[ddp->layout.plan->members[planned->first + i]];
        size_t first;
        size_t bytes = part_of(bucket, slot, &first);

        if (slot->copied && !slot->zero_filled) {
            status = cddpi_ddp_copy(ddp, (char *)slot->grad + first, slot->slice + first, bytes);
        }
    }
    bucket->copied = true;
    return status;
}

/* Wait for a bucket's present stage and go on to its next. */
static cddp_status push(struct cddp_bucket *bucket)
{
    if (!bucket->finished) {
        cddp_status status = cddp_work_wait(bucket->work, 0);

        if (status != CDDP_OK) {
            return cddpi_bucket_failed(bucket, status);
        }
        cddp_work_destroy(bucket->work);
        bucket->work = NULL;
        if (bucket->end_ns == 0) {
            bucket->end_ns = cddpi_now_ns();
        }
        status = cddpi_bucket_advance(bucket);
        if (status != CDDP_OK) {
            return status;
        }
    }
    return bucket->finished && !bucket->copied ? copy_out(bucket) : CDDP_OK;
}

/* Finish all buckets in rounds: a stage of each, in bucket order, then the next stage. */
static cddp_status finish_buckets(cddp_ddp *ddp)
{
    bool open = true;

    while (open) {
        open = false;
        for (size_t b = 0; b < ddp->layout.plan->bucket_count; b++) {
            struct cddp_bucket *bucket = &ddp->layout.buckets[b];
            cddp_status status = bucket->copied ? CDDP_OK : push(bucket);

            if (status != CDDP_OK) {
                return status;
            }
            open = open || !bucket->finished;
        }
    }
    return CDDP_OK;
}

/* A captured step contains no exchange of step statuses: it is replayed as it is. */
static cddp_status record_buckets(cddp_ddp *ddp)
{
    cddp_status status;

    if (ddp->arrival_count < ddp->slot_count) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE,
                          "ddp: %zu of %zu parameters got no gradient, so the step cannot be "
                          "captured",
                          ddp->slot_count - ddp->arrival_count, ddp->slot_count);
    }
    status = start_buckets(ddp);
    return status == CDDP_OK ? finish_buckets(ddp) : status;
}

static cddp_status synchronise(cddp_ddp *ddp)
{
    cddp_status status;

    cddpi_unused_complete(ddp);
    status = start_buckets(ddp);
    if (status == CDDP_OK) {
        status = cddpi_step_status_start(ddp);
    }
    if (status == CDDP_OK) {
        status = cddpi_timing_mark(ddp, CDDPI_AT_WAIT);
    }
    if (status == CDDP_OK) {
        status = finish_buckets(ddp);
    }
    if (status == CDDP_OK) {
        status = cddpi_timing_mark(ddp, CDDPI_AFTER_WAIT);
    }
    if (status == CDDP_OK) {
        status = cddpi_step_status_finish(ddp);
    }
    return status == CDDP_OK ? cddpi_unused_restore(ddp) : status;
}

/* Keep what the step has cost; the buckets themselves may be rebuilt. On a device that is known
 * later. */
static cddp_status note_costs(cddp_ddp *ddp, int64_t entered_ns)
{
    const struct cddpi_layout *layout = &ddp->layout;
    int64_t first_ns = layout->buckets[0].start_ns;
    int64_t last_ns = first_ns;

    ddp->stats.steps++;
    if (cddpi_device_is_async(ddp->device)) {
        return cddpi_timing_read(ddp);
    }
    ddp->stats.bytes = 0;
    for (size_t b = 0; b < layout->plan->bucket_count; b++) {
        const struct cddp_bucket *bucket = &layout->buckets[b];
        cddp_bucket_stats *stats = &ddp->bucket_stats[b];

        stats->bytes = layout->plan->buckets[b].payload;
        stats->params = layout->plan->buckets[b].count;
        stats->start_ns = (uint64_t)(bucket->start_ns - ddp->begin_ns);
        stats->end_ns = (uint64_t)(bucket->end_ns - ddp->begin_ns);
        ddp->stats.bytes += stats->bytes;
        last_ns = bucket->end_ns > last_ns ? bucket->end_ns : last_ns;
    }
    ddp->stats.buckets = layout->plan->bucket_count;
    ddp->stats.comm_ns = (uint64_t)(last_ns - first_ns);
    ddp->stats.exposed_ns = (uint64_t)(cddpi_now_ns() - entered_ns);
    ddp->stats.peer_wait_ns = (uint64_t)ddp->peers_ns < ddp->stats.exposed_ns
                                  ? (uint64_t)ddp->peers_ns
                                  : ddp->stats.exposed_ns;
    if (ddp->shards != NULL) { /* forward has waited for parameters */
        ddp->stats.exposed_ns += ddp->shards->waited_ns;
        ddp->shards->waited_ns = 0;
    }
    ddp->stats.transfer_ns = ddp->stats.exposed_ns - ddp->stats.peer_wait_ns;
    ddp->stats.total_exposed_ns += ddp->stats.exposed_ns;
    ddp->stats.total_peer_wait_ns += ddp->stats.peer_wait_ns;
    ddp->stats.total_transfer_ns += ddp->stats.transfer_ns;
    return CDDP_OK;
}

void cddpi_ddp_end_backward(cddp_ddp *ddp)
{
    for (size_t s = 0; s < ddp->slot_count; s++) {
        ddp->slots[s].ready = false;
        ddp->slots[s].used = ddp->slots[s].used && ddp->step.no_sync;
    }
    for (size_t b = 0; b < ddp->layout.plan->bucket_count; b++) {
        struct cddp_bucket *bucket = &ddp->layout.buckets[b];

        bucket->missing = ddp->layout.plan->buckets[b].count;
        bucket->stage = 0;
        bucket->finished = false;
        bucket->copied = false;
        bucket->end_ns = 0;
    }
    ddp->next_bucket = 0;
    ddp->seen = 0;
    ddp->arrival_count = 0;
    ddp->in_backward = false;
    ddp->step = plain_step;
}

cddp_status cddpi_ddp_wait(cddp_ddp *ddp)
{
    int64_t entered_ns = cddpi_now_ns();
    cddp_status status = CDDP_OK;

    if (ddp->broken) {
        return cddpi_ddp_usable(ddp);
    }
    ddp->wait_ns = entered_ns;
    if (cddpi_group_is_capturing(ddp->group)) {
        return ddp->step.no_sync ? CDDP_OK : record_buckets(ddp);
    }
    if (ddp->step.no_sync) {
        cddpi_ddp_end_backward(ddp);
        ddp->backward++;
        return CDDP_OK;
    }
    if (!ddp->in_backward) {
        status = begin_backward(ddp, entered_ns);
    }
    if (status == CDDP_OK) {
        status = synchronise(ddp);
    }
    if (status == CDDP_OK) {
        status = note_costs(ddp, entered_ns);
        cddpi_ddp_trace_end(ddp, entered_ns);
    }
    if (status == CDDP_OK && ddp->rebuild_due) {
        status = cddpi_layout_rebuild(ddp);
    }
    if (status == CDDP_OK) {
        cddpi_layout_tell_late(ddp);
    }
    if (status != CDDP_OK) {
        return cddpi_ddp_break(ddp, status);
    }
    ddp->last = ddp->step;
    cddpi_ddp_end_backward(ddp);
    ddp->backward++;
    return CDDP_OK;
}

cddp_status cddp_ddp_wait(cddp_ddp *ddp)
{
    cddp_status status = cddpi_ddp_enter(ddp, "ddp_wait");

    return status == CDDP_OK ? cddpi_ddp_leave(ddp, cddpi_ddp_wait(ddp)) : status;
}
