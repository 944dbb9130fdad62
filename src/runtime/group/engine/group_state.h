/* group_state.h - what a group is, and that it is broken. */
#ifndef CDDPI_GROUP_STATE_H
#define CDDPI_GROUP_STATE_H

#include "base/error.h"

#include <cddp/group.h>

/** The rank in the job of rank @p rank of @p group. */
int cddpi_group_rank_of_job(const cddp_group *group, int rank);
/** A call fails with @p status for what broke @p group. */
cddp_status cddpi_group_fail_broken(cddp_group *group, cddp_status status);
/** End the group on all ranks: @p failure, from now on of this @p status and with a culprit, says
 *  why. Any thread. */
void cddpi_group_end(cddp_group *group, cddp_status status, struct cddpi_failure *failure);

/** Something failed here with @p status and the thread's text: tell all others through the backend,
 *  unless another rank's failure was first. Returns the status of the first failure, with a text
 *  that names its rank. Called by the group's thread, or the watchdog. */
cddp_status cddpi_group_fail_all(cddp_group *group, cddp_status status);

#endif
