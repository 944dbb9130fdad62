/* ddp_capture.c - owns what capturing and replaying steps changes in a cddp_ddp: only which step it
 * is at, and the handles of running updates (a replay waits for updates by itself). */
#include "ddp/copies.h"

#include "base/error.h"
#include "ddp/ddp_shard.h"
#include "ddp/ddp_step.h"

/* CDDP_ERR_UNAVAILABLE: the backend cannot capture, the hook is the caller's, or no step is
 * complete yet. */
static cddp_status can_capture(const cddp_ddp *ddp)
{
    cddp_hook_fn hook = ddp->hook;

    if (ddp->planning.rebuild_due ||
        (ddp->shards != NULL && ddp->world_size > 1 && !ddp->shards->updated)) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE,
                          "ddp: nothing can be captured before the first step is done");
    }
    if (hook != cddp_hook_identity && hook != cddp_hook_bf16 && hook != cddp_hook_fp16) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "ddp: a hook of the caller's cannot be captured");
    }
    return cddpi_group_can_capture(ddp->group);
}

cddp_status cddpi_ddp_capture_begin(cddp_ddp *ddp)
{
    CDDPI_TRY(cddpi_ddp_usable(ddp));
    CDDPI_TRY(can_capture(ddp));
    if (ddp->shards != NULL) {
        cddpi_shard_capture(ddp);
    }
    return cddpi_group_capture_begin(ddp->group);
}

cddp_status cddpi_ddp_capture_end(cddp_ddp *ddp, struct cddpi_group_capture *out)
{
    struct cddpi_group_capture made = {NULL, 0};
    cddp_status status = cddpi_group_capture_end(ddp->group, &made);

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

cddp_status cddpi_ddp_replay(cddp_ddp *ddp, const struct cddpi_group_capture *captured,
                             const cddp_step *step)
{
    cddp_status status;

    if (step->kind == CDDP_STEP_BY_MICRO_BATCHES) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "ddp: a sum over micro-batches is not replayed");
    }
    CDDPI_TRY(cddpi_ddp_open(ddp, step));
    if (!ddp->backward.accumulates) {
        status = cddpi_group_replay(ddp->group, captured);
    } else { /* other ranks take no part in it */
        status = cddpi_group_healthy(ddp->group);
        status = status == CDDP_OK ? ddp->device->ops->replay(ddp->device, captured->work) : status;
    }
    if (status != CDDP_OK) {
        return cddpi_ddp_break(ddp, status);
    }
    if (ddp->shards != NULL) {
        cddpi_shard_forget(ddp);
    }
    ddp->backward.opened = false;
    ddp->stats.steps += !ddp->backward.accumulates;
    cddpi_ddp_close(ddp);
    return CDDP_OK;
}
