/* reducer.c - owns a backward until its end: gradients become ready, and buckets are started
 * strictly in the order of their indices. */
#include "base/clock.h"
#include "base/error.h"
#include "base/types.h"
#include "ddp/copies.h"
#include "ddp/ddp_observe.h"
#include "ddp/ddp_step.h"
#include "ddp/micro_sums.h"
#include "group/device/group_device.h"

/* Note which of the running buckets have ended: for the statistics, and to learn of a failure
 * before backward ends. */
static cddp_status test_buckets(cddp_ddp *ddp)
{
    if (cddpi_device_is_async(
            ddp->device)) { /* ddp_observe.c learns from events when buckets end */
        return cddpi_group_healthy(ddp->group);
    }
    while (ddp->backward.seen < ddp->backward.next_bucket) {
        struct cddpi_bucket *bucket = &ddp->layout.buckets[ddp->backward.seen];
        bool done = bucket->finished;
        cddp_status status = done ? CDDP_OK : cddp_work_test(bucket->work, &done);

        if (status != CDDP_OK) {
            return cddpi_bucket_failed(bucket, status);
        }
        if (!done) {
            return CDDP_OK;
        }
        if (bucket->end_ns == 0) {
            bucket->end_ns = cddpi_now_ns();
        }
        ddp->backward.seen++;
    }
    return CDDP_OK;
}

/* Wait for the bucket that failed. The group has ended, so all started buckets end at once: the
 * thread that runs them marks the group as ended first, then ends the buckets. */
static cddp_status await_failed_bucket(cddp_ddp *ddp)
{
    if (cddpi_device_is_async(ddp->device)) {
        return cddpi_group_healthy(ddp->group);
    }
    for (size_t b = ddp->backward.seen; b < ddp->backward.next_bucket; b++) {
        struct cddpi_bucket *bucket = &ddp->layout.buckets[b];
        cddp_status status = bucket->work != NULL ? cddp_work_wait(bucket->work) : CDDP_OK;

        if (status != CDDP_OK) {
            return cddpi_bucket_failed(bucket, status);
        }
    }
    return CDDP_OK;
}

cddp_status cddpi_ddp_not_started(cddp_ddp *ddp, cddp_status status)
{
    struct cddpi_failure failure = *cddpi_last_failure();
    cddp_status earlier = status == CDDP_ERR_BROKEN ? await_failed_bucket(ddp) : CDDP_OK;

    return earlier == CDDP_OK ? cddpi_fail_again(status, &failure) : earlier;
}

cddp_status cddpi_ddp_start_buckets(cddp_ddp *ddp)
{
    while (ddp->backward.next_bucket < ddp->layout.plan->bucket_count &&
           ddp->layout.buckets[ddp->backward.next_bucket].missing == 0) {
        struct cddpi_bucket *bucket = &ddp->layout.buckets[ddp->backward.next_bucket++];
        cddp_status status;

        bucket->start_ns = cddpi_now_ns();
        ddp->backward.arrival_ns = bucket->start_ns;
        status = cddpi_timing_bucket_start(bucket);
        status = status == CDDP_OK ? cddpi_bucket_advance(bucket) : status;
        if (status != CDDP_OK) {
            ddp->backward.next_bucket--;
            return cddpi_ddp_not_started(ddp, status);
        }
    }
    return CDDP_OK;
}

static cddp_status find_slot(const cddp_ddp *ddp, size_t index, struct cddpi_ddp_slot **out)
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
        CDDP_ERR_STATE, "the gradient of parameter %zu (%.200s) was ready twice in step %llu",
        index, ddp->params[index].name, (unsigned long long)ddp->backward.step.number);

    /* its bucket may have been started, and then the sum is wrong: tell all ranks */
    return ddp->backward.accumulates ? status : cddpi_ddp_set_pending(ddp, status);
}

/* A gradient is ready: start the buckets that it completes. If several buckets hold parts of it,
 * each is started as soon as its part is copied. */
static cddp_status complete_buckets(cddp_ddp *ddp, const struct cddpi_ddp_slot *slot)
{
    size_t index = (size_t)(slot - ddp->slots);
    struct cddpi_bucket *bucket = &ddp->layout.buckets[ddp->layout.plan->bucket_of[index]];

    for (uint32_t p = 0; p < ddp->layout.plan->parts_of[index]; p++) {
        size_t first;
        size_t bytes = cddpi_bucket_part_of(&bucket[p], slot, &first);

        if (slot->copied) {
            CDDPI_TRY(cddpi_ddp_copy(ddp, slot->slice + first, (char *)slot->grad + first, bytes));
        }
        bucket[p].missing--;
        CDDPI_TRY(cddpi_ddp_start_buckets(ddp));
    }
    return CDDP_OK;
}

cddp_status cddpi_ddp_begin_backward(cddp_ddp *ddp, int64_t now_ns)
{
    ddp->backward.begun = true;
    ddp->backward.begin_ns = now_ns;
    cddpi_ddp_trace_begin(ddp);
    return cddpi_timing_begin(ddp);
}

/* Let the group's running operations advance, and note which buckets have ended. */
static cddp_status poll_buckets(cddp_ddp *ddp)
{
    cddpi_group_poll(ddp->group);
    return test_buckets(ddp);
}

/* Gradient @p index is ready; the caller has checked that it exists. */
static cddp_status take_ready(cddp_ddp *ddp, size_t index)
{
    struct cddpi_ddp_slot *slot = &ddp->slots[ddp->params[index].slot];

    slot->ready = true;
    slot->used = true;
    ddp->backward.arrivals[ddp->backward.arrival_count++] = ddp->params[index].slot;
    if (ddp->planning.rebuild_due && ddp->planning.chooses_sizes) {
        ddp->backward.ready_s[ddp->params[index].slot] =
            (double)(cddpi_now_ns() - ddp->backward.begin_ns) * 1e-9;
    }
    return ddp->backward.accumulates ? CDDP_OK : complete_buckets(ddp, slot);
}

/* Check that gradients may be ready, and begin the backward with the first one. */
static cddp_status begin_gradients(cddp_ddp *ddp)
{
    cddp_status status;

    if (ddp->backward.opened && cddpi_micro_is_idle(ddp)) {
        return cddpi_fail(
            CDDP_ERR_ARGUMENT,
            "ddp_grad_ready: step %llu has %llu micro-batches for %d ranks, so rank %d "
            "has none, and no gradients",
            (unsigned long long)ddp->backward.step.number,
            (unsigned long long)ddp->backward.step.micro_batches, ddp->world_size, ddp->rank);
    }
    if (ddp->backward.begun) {
        return CDDP_OK;
    }
    if (!ddp->backward.opened) {
        return cddpi_ddp_not_open("ddp_grad_ready");
    }
    status = cddpi_ddp_begin_backward(ddp, cddpi_now_ns());
    return status == CDDP_OK ? CDDP_OK : cddpi_ddp_break(ddp, status);
}

/* All gradients of [first, first + count) that are not frozen are ready; the caller has checked
 * them.
 */
static cddp_status take_all_ready(cddp_ddp *ddp, size_t first, size_t count)
{
    cddp_status status;

    CDDPI_TRY(begin_gradients(ddp));
    for (size_t i = first; i < first + count; i++) {
        if (ddp->params[i].slot != UINT32_MAX) {
            CDDPI_TRY_GOTO(broken, status, take_ready(ddp, i));
        }
    }
    if (!ddp->backward.accumulates) {
        CDDPI_TRY_GOTO(broken, status, poll_buckets(ddp));
    }
    return CDDP_OK;

broken:
    return cddpi_ddp_break(ddp, status);
}

cddp_status cddp_ddp_grad_ready(cddp_ddp *ddp, size_t index)
{
    struct cddpi_ddp_slot *slot = NULL;

    CDDPI_ENTER_DDP(ddp, "ddp_grad_ready");
    CDDPI_TRY(cddpi_ddp_usable(ddp));
    CDDPI_TRY(find_slot(ddp, index, &slot));
    return slot->ready ? ready_twice(ddp, index) : take_all_ready(ddp, index, 1);
}

cddp_status cddpi_ddp_run_grad_ready(cddp_ddp *ddp, size_t index)
{
    struct cddpi_ddp_slot *slot = NULL;
    cddp_status status;
    bool last = false;

    CDDPI_ENTER_DDP(ddp, "ddp_grad_ready");
    CDDPI_TRY(cddpi_ddp_usable(ddp));
    CDDPI_TRY(find_slot(ddp, index, &slot));
    if (slot->ready) {
        return ready_twice(ddp, index);
    }
    CDDPI_TRY(begin_gradients(ddp));
    status = cddpi_micro_arrive(ddp, slot, &last);
    if (status != CDDP_OK) {
        return cddpi_ddp_break(ddp, status);
    }
    return last ? take_all_ready(ddp, index, 1) : CDDP_OK;
}

cddp_status cddp_ddp_grads_ready(cddp_ddp *ddp, size_t first, size_t count)
{
    CDDPI_ENTER_DDP(ddp, "ddp_grads_ready");
    CDDPI_TRY(cddpi_ddp_usable(ddp));
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

cddp_status cddp_ddp_progress(cddp_ddp *ddp)
{
    cddp_status status;

    CDDPI_ENTER_DDP(ddp, "ddp_progress");
    CDDPI_TRY(cddpi_ddp_usable(ddp));
    status = poll_buckets(ddp);
    return status == CDDP_OK ? CDDP_OK : cddpi_ddp_break(ddp, status);
}
