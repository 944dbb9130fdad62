/* record.c - owns what recordings change in a cddp_ddp: nothing but the handles of updates that a
 * replay waits for, and the count of backward passes. */
#include "ddp/record.h"

#include "base/error.h"
#include "ddp/ddp.h"

cddp_status cddpi_ddp_records(const cddp_ddp *ddp)
{
    cddp_hook_fn hook = ddp->hook;

    if (ddp->rebuild_due || (ddp->shards != NULL && ddp->world_size > 1 && !ddp->shards->updated)) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE,
                          "ddp: nothing can be recorded before the first step is done");
    }
    if (hook != cddp_hook_identity && hook != cddp_hook_bf16 && hook != cddp_hook_fp16) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "ddp: a hook of the caller's cannot be recorded");
    }
    return cddpi_group_records(ddp->group);
}

cddp_status cddpi_ddp_record_begin(cddp_ddp *ddp)
{
    cddp_status status = cddpi_ddp_usable(ddp);

    if (status == CDDP_OK) {
        status = cddpi_ddp_records(ddp);
    }
    if (status == CDDP_OK && ddp->shards != NULL) {
        cddpi_shard_record(ddp);
    }
    return status == CDDP_OK ? cddpi_group_record_begin(ddp->group) : status;
}

cddp_status cddpi_ddp_record_end(cddp_ddp *ddp, struct cddpi_group_recording *out)
{
    struct cddpi_group_recording made = {NULL, 0};
    cddp_status status = cddpi_group_record_end(ddp->group, &made);

    for (size_t b = 0; b < ddp->layout.plan->bucket_count; b++) {
        cddp_work_destroy(ddp->layout.buckets[b].work);
        ddp->layout.buckets[b].work = NULL;
    }
    cddpi_ddp_end_backward(ddp);
    if (status == CDDP_OK) {
        *out = made;
    }
    return status;
}

cddp_status cddpi_ddp_replay(cddp_ddp *ddp, const struct cddpi_group_recording *recording,
                             bool synchronised)
{
    cddp_status status = cddpi_ddp_usable(ddp);

    if (status != CDDP_OK) {
        return status;
    }
    if (synchronised) {
        status = cddpi_group_replay(ddp->group, recording);
    } else {
        status = cddpi_group_healthy(ddp->group);
        if (status == CDDP_OK) {
            status = ddp->device->ops->replay(ddp->device, recording->work);
        }
    }
    if (status != CDDP_OK) {
        return cddpi_ddp_break(ddp, status);
    }
    if (ddp->shards != NULL) {
        cddpi_shard_forget(ddp);
    }
    ddp->backward++;
    ddp->stats.steps += synchronised;
    return CDDP_OK;
}
