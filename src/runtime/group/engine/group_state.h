/* group_state.h - owns a group's properties, and its transition to the broken state. */
#ifndef CDDPI_GROUP_STATE_H
#define CDDPI_GROUP_STATE_H

#include "base/error.h"

#include <cddp/group.h>

/** The job's rank for rank @p rank of @p group. */
int cddpi_group_rank_of_job(const cddp_group *group, int rank);
/** Fail a call with @p status and the failure that broke @p group. */
cddp_status cddpi_group_fail_broken(cddp_group *group, cddp_status status);
/** Abort the group on all ranks because of @p failure, into which @p status and a culprit are
 *  stored. Any thread. */
void cddpi_group_end(cddp_group *group, cddp_status status, struct cddpi_failure *failure);

/** Report a failure with @p status and the thread's error text to all other ranks through the
 *  backend, unless another rank failed first. Returns the status of the first failure, with a text
 *  that names its rank. Called by the group's thread or the watchdog. */
cddp_status cddpi_group_fail_all(cddp_group *group, cddp_status status);

#endif
