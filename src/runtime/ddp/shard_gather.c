/* shard_gather.c - owns how what a sharded optimizer has divided comes together again: updated
 * parameters on all ranks, in the caller's memory, and the optimizer's state, of which each rank
 * has its spans. */
#include "base/alloc.h"
#include "base/clock.h"
#include "ddp/copies.h"
#include "ddp/ddp_shard.h"
#include "ddp/ddp_step.h"
#include "group/device/group_device.h"
#include "group/watch/group_trace.h"

#include <cddp/exchange.h>

static cddp_status gather_failed(cddp_ddp *ddp, size_t b, cddp_status status)
{
    return cddpi_ddp_break(ddp,
                           cddpi_fail_prefix(status, "ddp: updated parameters of bucket %zu of %zu",
                                             b, ddp->layout.plan->bucket_count));
}

static cddp_status finish_gather(cddp_ddp *ddp, size_t b)
{
    struct cddpi_shard_bucket *bucket = &ddp->shards->buckets[b];
    int64_t entered_ns, ended_ns;
    cddp_status status;

    /* each replay waits for the updates of the previous step, which may be a replay, too */
    if (cddpi_group_is_capturing(ddp->group)) {
        bool awaited = bucket->awaited;

        bucket->awaited = true;
        return awaited
                   ? CDDP_OK
                   : ddp->device->ops->order(ddp->device, CDDPI_STREAM_COMPUTE, bucket->gathered);
    }
    if (bucket->gather == NULL) {
        return CDDP_OK;
    }
    entered_ns = cddpi_now_ns();
    status = cddp_work_wait(bucket->gather);
    ended_ns = cddpi_now_ns();
    ddp->shards->waited_ns += (uint64_t)(ended_ns - entered_ns);
    if (!cddpi_device_is_async(ddp->device)) {
        cddpi_trace_add(ddp->group, CDDPI_SPAN_WAIT, entered_ns, ended_ns, (int32_t)b, 0);
    }
    if (status != CDDP_OK) {
        return gather_failed(ddp, b, status);
    }
    cddp_work_destroy(bucket->gather);
    bucket->gather = NULL;
    return CDDP_OK;
}

/* Start the gather of a bucket's parameters, or of their copies. */
static cddp_status start_gather(cddp_ddp *ddp, size_t b, bool copies, cddp_work **out_work)
{
    const struct cddpi_bucket *bucket = &ddp->layout.buckets[b];
    size_t shard = cddpi_shard_elements(bucket);
    size_t offset = ddp->layout.plan->buckets[b].offset;
    cddp_type type = copies ? ddp->shards->copy_type : bucket->type;
    unsigned char *all = copies ? cddpi_shard_copy_at(ddp, offset) : ddp->shards->block + offset;
    unsigned char *own = all + (size_t)ddp->rank * shard * cddp_type_bytes(type);

    return cddp_all_gather(ddp->group, own, all, shard, type, out_work);
}

/* Start all gathers, the last bucket's first: forward needs its parameters first. */
static cddp_status start_gathers(cddp_ddp *ddp)
{
    size_t b = ddp->layout.plan->bucket_count;
    cddp_status status;

    while (b-- > 0) {
        struct cddpi_shard_bucket *bucket = &ddp->shards->buckets[b];

        CDDPI_TRY_GOTO(
            failed, status,
            start_gather(ddp, b, ddp->layout.plan->buckets[b].separate, &bucket->gather));
        CDDPI_TRY_GOTO(failed, status,
                       ddp->device->ops->record(ddp->device, bucket->gathered, CDDPI_STREAM_COMM));
    }
    ddp->shards->updated = true;
    return CDDP_OK;

failed:
    return gather_failed(ddp, b, status);
}

void cddpi_shard_capture(cddp_ddp *ddp)
{
    for (size_t b = 0; b < ddp->layout.plan->bucket_count; b++) {
        ddp->shards->buckets[b].awaited = false;
    }
}

void cddpi_shard_forget(cddp_ddp *ddp)
{
    for (size_t b = 0; b < ddp->layout.plan->bucket_count; b++) {
        cddp_work_destroy(ddp->shards->buckets[b].gather);
        ddp->shards->buckets[b].gather = NULL;
    }
}

static cddp_status check_sharded(const cddp_ddp *ddp)
{
    if (ddp->shards == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "ddp: the optimizer is not sharded");
    }
    return cddpi_ddp_usable(ddp);
}

cddp_status cddp_ddp_params_start(cddp_ddp *ddp)
{
    CDDPI_ENTER_DDP(ddp, "ddp_params_start");
    CDDPI_TRY(check_sharded(ddp));
    CDDPI_TRY(cddpi_ddp_between(ddp, "params_start"));
    CDDPI_TRY(cddpi_shard_finish(ddp));
    return ddp->world_size > 1 ? start_gathers(ddp) : CDDP_OK;
}

cddp_status cddp_ddp_param_wait(cddp_ddp *ddp, size_t index)
{
    CDDPI_ENTER_DDP(ddp, "ddp_param_wait");
    CDDPI_TRY(check_sharded(ddp));
    if (index >= ddp->param_count) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "ddp: parameter %zu of %zu", index, ddp->param_count);
    }
    if (ddp->params[index].slot == UINT32_MAX) {
        return CDDP_OK;
    }
    return finish_gather(ddp, ddp->layout.plan->bucket_of[ddp->params[index].slot]);
}

cddp_status cddpi_shard_finish(cddp_ddp *ddp)
{
    /* finish gathers in the order in which they were started */
    for (size_t b = ddp->layout.plan->bucket_count; b-- > 0;) {
        CDDPI_TRY(finish_gather(ddp, b));
    }
    return CDDP_OK;
}

cddp_status cddp_ddp_params_wait(cddp_ddp *ddp)
{
    CDDPI_ENTER_DDP(ddp, "ddp_params_wait");
    CDDPI_TRY(check_sharded(ddp));
    return cddpi_shard_finish(ddp);
}

cddp_status cddpi_ddp_params_whole(cddp_ddp *ddp)
{
    if (ddp->shards != NULL) {
        CDDPI_TRY(cddp_ddp_params_wait(ddp));
    }
    for (size_t b = 0; b < ddp->layout.plan->bucket_count; b++) {
        cddp_status status = ddp->layout.plan->buckets[b].separate
                                 ? start_gather(ddp, b, false, NULL)
                                 : CDDP_OK;

        if (status != CDDP_OK) {
            return gather_failed(ddp, b, status);
        }
    }
    return CDDP_OK;
}

cddp_status cddp_ddp_unshard(cddp_ddp *ddp)
{
    CDDPI_ENTER_DDP(ddp, "ddp_unshard");
    CDDPI_TRY(cddpi_ddp_usable(ddp));
    CDDPI_TRY(cddpi_ddp_between(ddp, "unshard"));
    CDDPI_TRY(cddpi_ddp_params_whole(ddp));
    for (size_t s = 0; s < ddp->slot_count && ddp->shards != NULL; s++) {
        const struct cddpi_param *param = &ddp->params[ddp->slots[s].param];

        CDDPI_TRY(cddpi_ddp_copy(ddp, param->home, param->data, ddp->slots[s].bytes));
    }
    return CDDP_OK;
}

/* How many elements of parameter @p index each rank updates. */
static void count_spans(const cddp_ddp *ddp, size_t index, size_t *counts)
{
    for (int rank = 0; rank < ddp->world_size; rank++) {
        size_t count;
        const cddp_span *spans = cddp_ddp_spans(ddp, rank, &count);

        for (size_t s = 0; s < count; s++) {
            counts[rank] += spans[s].param == index ? spans[s].count : 0;
        }
    }
}

cddp_status cddp_ddp_gather_state(cddp_ddp *ddp, size_t index, const void *own, cddp_type type,
                                  void *out)
{
    size_t *counts;
    cddp_status status;

    CDDPI_ENTER_DDP(ddp, "ddp_gather_state");
    CDDPI_TRY(check_sharded(ddp));
    if (index >= ddp->param_count || ddp->params[index].slot == UINT32_MAX) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "ddp: parameter %zu is %s", index,
                          index < ddp->param_count ? "frozen" : "not registered");
    }
    if (out == NULL && ddp->params[index].count > 0) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "ddp: state of parameter %zu: out is NULL", index);
    }
    counts = cddpi_zalloc_array((size_t)ddp->world_size, sizeof *counts);
    if (counts == NULL) {
        return cddpi_ddp_abort(
            ddp->group,
            cddpi_fail(CDDP_ERR_NO_MEMORY, "ddp: no memory for %d counts", ddp->world_size));
    }
    count_spans(ddp, index, counts);
    /* a parameter's spans are in the order of ranks, so the gathered state is in order */
    status = cddp_all_gatherv(ddp->group, own, ddp->params[index].count > 0 ? out : counts, counts,
                              type, NULL);
    cddpi_free(counts);
    return status == CDDP_OK ? CDDP_OK
                             : cddpi_fail_prefix(status, "ddp: state of parameter %zu (%.200s)",
                                                 index, ddp->params[index].name);
}

uint64_t cddpi_ddp_exposed_ns(const cddp_ddp *ddp)
{
    bool waits_here = ddp->shards != NULL && !cddpi_device_is_async(ddp->device);

    return ddp->stats.total_exposed_ns + (waits_here ? ddp->shards->waited_ns : 0);
}
