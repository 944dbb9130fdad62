/* finish.c - owns the end of a step: it waits for open buckets, copies results to the caller's
 * gradients, adds the step to the statistics, and makes the handle ready for the next one. */
#include "base/clock.h"
#include "base/error.h"
#include "ddp/ddp_layout.h"
#include "ddp/ddp_observe.h"
#include "ddp/ddp_shard.h"
#include "ddp/ddp_step.h"
#include "ddp/micro_sums.h"
#include "group/device/group_device.h"

/* Copy results to gradients outside the bucket, except zero-filled ones: whether another rank has
 * used those is known only after the exchange of step statuses. */
static cddp_status copy_out(struct cddpi_bucket *bucket)
{
    cddp_ddp *ddp = bucket->ddp;
    const struct cddpi_bucket_plan_bucket *planned = &ddp->layout.plan->buckets[bucket->index];

    for (size_t i = 0; i < planned->count; i++) {
        struct cddpi_ddp_slot *slot = &ddp->slots[ddp->layout.plan->members[planned->first + i]];
        size_t first;
        size_t bytes = cddpi_bucket_part_of(bucket, slot, &first);

        if (slot->copied && !slot->zero_filled) {
            CDDPI_TRY(cddpi_ddp_copy(ddp, (char *)slot->grad + first, slot->slice + first, bytes));
        }
    }
    bucket->copied = true;
    return CDDP_OK;
}

/* Wait for the current stage of @p bucket and start its next one. */
static cddp_status push_bucket(struct cddpi_bucket *bucket)
{
    if (!bucket->finished) {
        cddp_status status = cddp_work_wait(bucket->work);

        if (status != CDDP_OK) {
            return cddpi_bucket_failed(bucket, status);
        }
        cddp_work_destroy(bucket->work);
        bucket->work = NULL;
        if (bucket->end_ns == 0) {
            bucket->end_ns = cddpi_now_ns();
        }
        CDDPI_TRY(cddpi_bucket_advance(bucket));
    }
    return bucket->finished && !bucket->copied ? copy_out(bucket) : CDDP_OK;
}

/* Finish all buckets in rounds: one stage of each bucket in order, then the next stage of each. */
static cddp_status finish_buckets(cddp_ddp *ddp)
{
    bool open = true;

    while (open) {
        open = false;
        for (size_t b = 0; b < ddp->layout.plan->bucket_count; b++) {
            struct cddpi_bucket *bucket = &ddp->layout.buckets[b];

            if (!bucket->copied) {
                CDDPI_TRY(push_bucket(bucket));
            }
            open = open || !bucket->finished;
        }
    }
    return CDDP_OK;
}

/* Capture a step. It contains no exchange of step statuses, since replays cannot check them. */
static cddp_status record_buckets(cddp_ddp *ddp)
{
    if (ddp->backward.arrival_count < ddp->slot_count) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE,
                          "ddp: %zu of %zu parameters got no gradient, so the step cannot be "
                          "captured",
                          ddp->slot_count - ddp->backward.arrival_count, ddp->slot_count);
    }
    CDDPI_TRY(cddpi_ddp_start_buckets(ddp));
    return finish_buckets(ddp);
}

static cddp_status synchronise_step(cddp_ddp *ddp)
{
    cddp_status status;

    cddpi_unused_complete(ddp);
    CDDPI_TRY(cddpi_ddp_start_buckets(ddp));
    status = cddpi_step_status_start(ddp);
    if (status != CDDP_OK) {
        return cddpi_ddp_not_started(ddp, status);
    }
    CDDPI_TRY(cddpi_timing_mark(ddp, CDDPI_AT_WAIT));
    CDDPI_TRY(finish_buckets(ddp));
    CDDPI_TRY(cddpi_timing_mark(ddp, CDDPI_AFTER_WAIT));
    CDDPI_TRY(cddpi_step_status_finish(ddp));
    return cddpi_unused_restore(ddp);
}

/* Add the step to the statistics before its buckets may be rebuilt. On a device its times are read
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
        const struct cddpi_bucket *bucket = &layout->buckets[b];
        cddp_bucket_stats *stats = &ddp->bucket_stats[b];

        stats->bytes = layout->plan->buckets[b].payload;
        stats->params = layout->plan->buckets[b].count;
        stats->start_ns = (uint64_t)(bucket->start_ns - ddp->backward.begin_ns);
        stats->end_ns = (uint64_t)(bucket->end_ns - ddp->backward.begin_ns);
        ddp->stats.bytes += stats->bytes;
        last_ns = bucket->end_ns > last_ns ? bucket->end_ns : last_ns;
    }
    ddp->stats.buckets = layout->plan->bucket_count;
    ddp->stats.comm_ns = (uint64_t)(last_ns - first_ns);
    ddp->stats.exposed_ns = (uint64_t)(cddpi_now_ns() - entered_ns);
    ddp->stats.peer_wait_ns = (uint64_t)ddp->end.peers_ns < ddp->stats.exposed_ns
                                  ? (uint64_t)ddp->end.peers_ns
                                  : ddp->stats.exposed_ns;
    if (ddp->shards != NULL) { /* add the time that forward has waited for updates */
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
        ddp->slots[s].used = ddp->slots[s].used && ddp->backward.accumulates;
    }
    for (size_t b = 0; b < ddp->layout.plan->bucket_count; b++) {
        struct cddpi_bucket *bucket = &ddp->layout.buckets[b];

        bucket->missing = ddp->layout.plan->buckets[b].count;
        bucket->stage = 0;
        bucket->finished = false;
        bucket->copied = false;
        bucket->end_ns = 0;
    }
    ddp->backward.next_bucket = ddp->backward.seen = ddp->backward.arrival_count = 0;
    ddp->backward.begun = ddp->backward.opened = false;
}

/* End a synchronised step. @p entered_ns: when its cddp_ddp_wait() was entered. */
static cddp_status finish_step(cddp_ddp *ddp, int64_t entered_ns)
{
    cddp_status status;

    if (ddp->shards != NULL) {
        ddp->shards->has_moved = false;
    }
    if (!ddp->backward.begun) {
        CDDPI_TRY(cddpi_ddp_begin_backward(ddp, entered_ns));
    }
    CDDPI_TRY(synchronise_step(ddp));
    status = note_costs(ddp, entered_ns);
    cddpi_ddp_trace_end(ddp, entered_ns);
    if (status != CDDP_OK) {
        return status;
    }
    if (ddp->planning.rebuild_due) {
        CDDPI_TRY(cddpi_layout_rebuild(ddp));
    }
    cddpi_layout_tell_late(ddp);
    return CDDP_OK;
}

cddp_status cddpi_ddp_wait(cddp_ddp *ddp)
{
    int64_t entered_ns = cddpi_now_ns();

    ddp->backward.wait_ns = entered_ns;
    if (cddpi_group_is_capturing(ddp->group)) {
        return ddp->backward.accumulates ? CDDP_OK : record_buckets(ddp);
    }
    if (!ddp->backward.accumulates) {
        cddp_status status = finish_step(ddp, entered_ns);

        if (status != CDDP_OK) {
            return cddpi_ddp_break(ddp, status);
        }
        cddpi_micro_end(ddp);
    } else if (cddpi_is_by_micro_batches(ddp)) {
        cddp_status status = cddpi_micro_keep(ddp);

        if (status != CDDP_OK) {
            return cddpi_ddp_break(ddp, status);
        }
    }
    cddpi_ddp_end_backward(ddp);
    cddpi_ddp_close(ddp);
    return CDDP_OK;
}

cddp_status cddp_ddp_wait(cddp_ddp *ddp)
{
    CDDPI_ENTER_DDP(ddp, "ddp_wait");
    if (ddp->failure.broken) {
        return cddpi_ddp_usable(ddp);
    }
    if (!ddp->backward.opened) {
        return cddpi_ddp_not_open("ddp_wait");
    }
    return cddpi_ddp_wait(ddp);
}
