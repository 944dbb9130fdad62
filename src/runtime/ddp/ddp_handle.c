/* ddp_handle.c - owns what all calls on a handle share: how they begin, what a failure does to the
 * handle, and copying, clearing and checking memory of the group's device. A rank keeps its own
 * failure until the step status tells all ranks; a failure that all ranks know ends the handle. */
#include "ddp/ddp.h"
#include "group/device/group_device.h"
#include "group/engine/group_state.h"

cddp_status cddpi_ddp_enter(cddp_ddp *ddp, const char *call)
{
    CDDPI_TRY(cddpi_handle_check((struct cddpi_handle *)ddp, CDDPI_HANDLE_DDP, call));
    CDDPI_TRY(cddpi_group_enter_kept(ddp->group, call));
    cddpi_group_call_of_ddp(ddp->group);
    return CDDP_OK;
}

bool cddpi_ddp_may_ask(const cddp_ddp *ddp, const char *call)
{
    return cddpi_handle_check((const struct cddpi_handle *)ddp, CDDPI_HANDLE_DDP, call) == CDDP_OK;
}

cddp_status cddpi_ddp_usable(const cddp_ddp *ddp)
{
    if (ddp->failure.broken || ddp->failure.pending.status != CDDP_OK) {
        (void)cddpi_fail_again(CDDP_ERR_BROKEN,
                               ddp->failure.broken ? &ddp->failure.cause : &ddp->failure.pending);
        cddpi_error_fatal();
        return cddpi_fail_prefix(CDDP_ERR_BROKEN, "ddp: an earlier call failed");
    }
    return CDDP_OK;
}

cddp_status cddpi_ddp_between(const cddp_ddp *ddp, const char *call)
{
    if (!ddp->backward.begun) {
        return CDDP_OK;
    }
    return cddpi_fail(CDDP_ERR_INCOMPLETE,
                      "ddp: %s in the middle of step %llu: %zu of %zu gradients are ready, and "
                      "wait was not called",
                      call, (unsigned long long)ddp->backward.step.number,
                      ddp->backward.arrival_count, ddp->slot_count);
}

/* Whether a failure with this status is one of the group, which the other ranks learn of anyway. */
static bool is_of_group(cddp_status status)
{
    return status == CDDP_ERR_PEER || status == CDDP_ERR_TIMEOUT || status == CDDP_ERR_MISMATCH ||
           status == CDDP_ERR_BROKEN || status == CDDP_ERR_CLOSED;
}

cddp_status cddpi_ddp_break(cddp_ddp *ddp, cddp_status status)
{
    if (cddpi_group_is_capturing(ddp->group)) {
        return status; /* a capture runs nothing, so no rank waits */
    }
    /* the most common reason why a rank leaves during a step of the others is that it has less
     * data; if the handle had ended before, the text has the advice */
    if (!ddp->failure.broken && status == CDDP_ERR_PEER && cddpi_last_failure()->has_left) {
        (void)cddpi_fail_suffix(status, "; if its data ended before the others', let each rank "
                                        "call cddp_ddp_follow() after its last step");
    }
    if (!ddp->failure.reported && !is_of_group(status)) {
        (void)cddpi_ddp_abort(ddp->group, status);
    }
    ddp->failure.broken = true;
    cddpi_error_fatal();
    ddp->failure.cause = *cddpi_last_failure();
    return status;
}

cddp_status cddpi_ddp_abort(cddp_group *group, cddp_status status)
{
    struct cddpi_failure failure;

    if (cddpi_error_culprit() < 0 && status != CDDP_ERR_MISMATCH) { /* which has no culprit */
        cddpi_error_blame(cddpi_group_rank_of_job(group, group->rank));
    }
    cddpi_error_fatal();
    failure = *cddpi_last_failure();
    cddp_group_abort(group, cddp_last_error());
    return cddpi_fail_again(status, &failure);
}

cddp_status cddpi_ddp_set_pending(cddp_ddp *ddp, cddp_status status)
{
    cddpi_error_fatal();
    if (ddp->failure.pending.status == CDDP_OK) {
        ddp->failure.pending = *cddpi_last_failure();
        ddp->failure.pending.status = status;
    }
    return status;
}

cddp_status cddpi_ddp_copy(const cddp_ddp *ddp, void *to, const void *from, size_t bytes)
{
    return bytes == 0 ? CDDP_OK
                      : ddp->device->ops->copy(ddp->device, CDDPI_STREAM_COMPUTE, to, from, bytes);
}

cddp_status cddpi_ddp_clear(const cddp_ddp *ddp, void *memory, size_t bytes)
{
    return bytes == 0 ? CDDP_OK
                      : ddp->device->ops->clear(ddp->device, CDDPI_STREAM_COMPUTE, memory, bytes);
}

static cddp_status check_owner(const cddp_ddp *ddp, const struct cddpi_ddp_slot *slot,
                               const char *what, const void *memory)
{
    const struct cddpi_device *device = ddp->device;

    if (memory == NULL || slot->bytes == 0 || device->ops->owns(device, memory)) {
        return CDDP_OK;
    }
    return cddpi_fail(CDDP_ERR_ARGUMENT,
                      "ddp: the %s of parameter %u (%.200s) does not lie in the memory of device "
                      "%s %d, where its group is",
                      what, slot->param, ddp->params[slot->param].name, device->ops->name,
                      device->index);
}

cddp_status cddpi_ddp_check_memory(const cddp_ddp *ddp, bool sharded)
{
    if (!cddpi_device_is_async(ddp->device)) {
        return CDDP_OK; /* there is only the CPU's memory */
    }
    for (size_t s = 0; s < ddp->slot_count; s++) {
        const struct cddpi_ddp_slot *slot = &ddp->slots[s];

        CDDPI_TRY(check_owner(ddp, slot, "gradient", slot->grad));
        if (sharded) {
            CDDPI_TRY(check_owner(ddp, slot, "data", ddp->params[slot->param].data));
        }
    }
    return CDDP_OK;
}
