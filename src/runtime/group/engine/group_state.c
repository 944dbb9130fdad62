/* group_state.c - owns a group's properties, and its transition to the broken state; all transports
 * use it.
 */
#include "group/engine/group_state.h"

#include "base/error.h"
#include "group/device/group_device.h"
#include "group/engine/group_entry.h"
#include "group/group.h"
#include "group/watch/dump.h"

#include <stdio.h>

int cddp_group_rank(const cddp_group *group)
{
    return cddpi_group_may_ask(group, "group_rank") ? group->rank : -1;
}

int cddp_group_world_size(const cddp_group *group)
{
    return cddpi_group_may_ask(group, "group_world_size") ? group->world_size : 0;
}

int cddpi_group_rank_of_job(const cddp_group *group, int rank)
{
    return group->ranks_of_job != NULL && rank >= 0 ? group->ranks_of_job[rank] : rank;
}

cddp_status cddpi_group_fail_broken(cddp_group *group, cddp_status status)
{
    group->is_told = true;
    if (cddpi_group_has_device(group)) {
        return cddpi_group_device_tell(group->device, status, &group->failure);
    }
    return cddpi_fail_again(status, &group->failure);
}

void cddpi_group_end(cddp_group *group, cddp_status status, struct cddpi_failure *failure)
{
    failure->status = status;
    if (failure->culprit < 0 && status != CDDP_ERR_MISMATCH) { /* a mismatch has no culprit */
        failure->culprit = cddpi_group_rank_of_job(group, group->rank);
    }
    atomic_store_explicit(&group->ended, true, memory_order_release);
    group->backend->ops->abort(group->backend, failure);
}

cddp_status cddpi_group_fail_all(cddp_group *group, cddp_status status)
{
    struct cddpi_failure failure = *cddpi_last_failure();
    cddp_status first = group->backend->ops->broken(group->backend);

    if (first != CDDP_OK) {
        return first;
    }
    /* a transport names the culprit by its rank in the part */
    failure.culprit = cddpi_group_rank_of_job(group, failure.culprit);
    cddpi_group_end(group, status, &failure);
    (void)cddpi_fail_again(status, &failure);
    return status != CDDP_ERR_MISMATCH ? cddpi_fail_name(status, group->rank) : status;
}

void cddp_group_abort(cddp_group *group, const char *reason)
{
    struct cddpi_failure failure = {.rank = -1, .culprit = -1};

    if (cddpi_handle_check((struct cddpi_handle *)group, CDDPI_HANDLE_GROUP, "group_abort") !=
        CDDP_OK) {
        return;
    }
    if (reason != NULL && reason == cddp_last_error()) {
        failure = *cddpi_last_failure(); /* now with rank and culprit */
    } else {
        snprintf(failure.text, sizeof failure.text, "%s", reason != NULL ? reason : "aborted");
    }
    cddpi_group_end(group, CDDP_ERR_PEER, &failure);
    cddpi_dump_failure(group, &failure);
}
