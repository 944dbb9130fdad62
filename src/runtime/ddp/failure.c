/* failure.c - owns what a failure does to a handle. A rank keeps its own failure until the step
 * status tells all ranks; a failure that all ranks know ends the handle. */
#include "base/error.h"
#include "ddp/ddp.h"
#include "group/device/group_device.h"

cddp_status cddpi_ddp_usable(const cddp_ddp *ddp)
{
    if (ddp->failure.broken || ddp->failure.pending.status != CDDP_OK) {
        (void)cddpi_fail_again(CDDP_ERR_CLOSED,
                               ddp->failure.broken ? &ddp->failure.cause : &ddp->failure.pending);
        return cddpi_fail_prefix(CDDP_ERR_CLOSED, "ddp: an earlier call failed");
    }
    return CDDP_OK;
}

/* Whether a failure with this status is one of the group, which the other ranks learn of anyway. */
static bool is_of_group(cddp_status status)
{
    return status == CDDP_ERR_PEER || status == CDDP_ERR_TIMEOUT || status == CDDP_ERR_MISMATCH ||
           status == CDDP_ERR_CLOSED;
}

/* Add the most common reason why a rank leaves during a step of the others: it has less data. */
static cddp_status add_advice(cddp_status status)
{
    return status == CDDP_ERR_PEER && cddpi_last_failure()->has_left
               ? cddpi_fail_suffix(status, "; if its data ended before the others', let each rank "
                                           "call cddp_ddp_join() after its last step")
               : status;
}

cddp_status cddpi_ddp_break(cddp_ddp *ddp, cddp_status status)
{
    if (cddpi_group_is_capturing(ddp->group)) {
        return status; /* a capture runs nothing, so no rank waits */
    }
    if (!ddp->failure.broken) { /* else the text has it */
        status = add_advice(status);
    }
    ddp->failure.broken = true;
    ddp->failure.cause = *cddpi_last_failure();
    if (!ddp->failure.reported && !is_of_group(status)) {
        cddp_group_abort(ddp->group, cddp_last_error()); /* the other ranks wait for this one */
        return cddpi_fail_again(status, &ddp->failure.cause);
    }
    return status;
}

cddp_status cddpi_ddp_set_pending(cddp_ddp *ddp, cddp_status status)
{
    if (ddp->failure.pending.status == CDDP_OK) {
        ddp->failure.pending = *cddpi_last_failure();
        ddp->failure.pending.status = status;
    }
    return status;
}
