/* launch_nearest.h - finds the innermost of several launchers, for launch_judge.c. */
#ifndef CDDPI_GROUP_LAUNCH_NEAREST_H
#define CDDPI_GROUP_LAUNCH_NEAREST_H

#include "base/ancestors.h"
#include "group/launch/launch_claim.h"

/** Whether the numbers fit this case: @p outer started one process per node, and in each of these
 *  @p inner started its ranks. */
bool cddpi_claim_is_within(const struct cddpi_claim *inner, const struct cddpi_claim *outer);

/** Among the @p count @p claims that are @p in, find the one whose variables were set last on the
 *  way down to this process. If several were set together: the one whose launcher is the process
 *  that passed them on. -1: this cannot be seen. */
int cddpi_claims_nearest(const struct cddpi_ancestors *ancestors, const struct cddpi_claim *claims,
                         const bool *in, int count);

#endif
