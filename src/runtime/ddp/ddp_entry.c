/* ddp_entry.c - owns what every public call on a handle begins and ends with. */
#include "base/error.h"
#include "ddp/ddp.h"
#include "group/engine/group_entry.h"
#include "group/group.h"

cddp_status cddpi_ddp_enter(cddp_ddp *ddp, const char *call)
{
    CDDPI_TRY(cddpi_handle_check((struct cddpi_handle *)ddp, CDDPI_HANDLE_DDP, call));
    CDDPI_TRY(cddpi_group_enter_kept(ddp->group, call));
    cddpi_group_call_of_ddp(ddp->group);
    return CDDP_OK;
}

cddp_status cddpi_ddp_leave(cddp_ddp *ddp, cddp_status status)
{
    return cddpi_group_leave(ddp->group, status);
}

bool cddpi_ddp_may_ask(const cddp_ddp *ddp, const char *call)
{
    return cddpi_handle_check((const struct cddpi_handle *)ddp, CDDPI_HANDLE_DDP, call) == CDDP_OK;
}
