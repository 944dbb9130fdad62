/* failure.c - owns what a failure does to a handle: a rank keeps its own failure until the step
 * status tells all; a failure that all know ends the handle. */
#include "base/error.h"
#include "ddp/ddp.h"
#include "group/device/group_device.h"

cddp_status cddpi_ddp_usable(const cddp_ddp *ddp)
{
    if (ddp->broken || ddp->pending_failure.status != CDDP_OK) {
        (void)cddpi_fail_again(CDDP_ERR_CLOSED,
                               ddp->broken ? &ddp->failure : &ddp->pending_failure);
        return cddpi_fail_prefix(CDDP_ERR_CLOSED, "ddp: an earlier call failed");
    }
    return CDDP_OK;
}

/* Whether a failure of this status is the group's, so that the other ranks learn of it anyway. */
static bool is_of_group(cddp_status status)
{
    return status == CDDP_ERR_PEER || status == CDDP_ERR_TIMEOUT || status == CDDP_ERR_MISMATCH ||
           status == CDDP_ERR_CLOSED;
}

/* The commonest reason why a rank leaves while others take a step: its data were shorter. */
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
        return status; /* nothing was done, and no rank waits */
    }
    status = add_advice(status);
    ddp->broken = true;
    ddp->failure = *cddpi_last_failure();
    if (!ddp->reported && !is_of_group(status)) {
        cddp_group_abort(ddp->group, cddp_last_error()); /* the other ranks wait for this one */
        return cddpi_fail_again(status, &ddp->failure);
    }
    return status;
}

cddp_status cddpi_ddp_set_pending(cddp_ddp *ddp, cddp_status status)
{
    if (ddp->pending_failure.status == CDDP_OK) {
        ddp->pending_failure = *cddpi_last_failure();
        ddp->pending_failure.status = status;
    }
    return status;
}
