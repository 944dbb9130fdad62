/* group_entry.c - owns the entry into a group's public calls. */
#include "group/engine/group_entry.h"

cddp_status cddpi_group_enter_kept(cddp_group *group, const char *call)
{
    CDDPI_TRY(cddpi_handle_enter((struct cddpi_handle *)group, CDDPI_HANDLE_GROUP, call));
    if (group->handle.depth == 0) {
        group->call_is_counted = group->call_is_of_ddp = false;
        group->call_found_broken = atomic_load_explicit(&group->broken, memory_order_acquire);
    }
    return CDDP_OK;
}

cddp_status cddpi_group_enter(cddp_group *group, const char *call)
{
    cddp_status status = cddpi_group_enter_kept(group, call);

    if (status == CDDP_OK && group->is_closed && group->handle.depth == 0) {
        return cddpi_group_leave(group, cddpi_fail(CDDP_ERR_STATE,
                                                   "%s: the group was destroyed before, and lives "
                                                   "on only for its cddp_ddp",
                                                   call));
    }
    return status;
}

bool cddpi_group_may_ask(const cddp_group *group, const char *call)
{
    return cddpi_handle_check_life((const struct cddpi_handle *)group, CDDPI_HANDLE_GROUP, call) ==
           CDDP_OK;
}
