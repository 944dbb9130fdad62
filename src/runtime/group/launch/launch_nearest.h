/* launch_nearest.h - which of several launchers is the innermost one, for launch_judge.c. */
#ifndef CDDPI_GROUP_LAUNCH_NEAREST_H
#define CDDPI_GROUP_LAUNCH_NEAREST_H

#include "base/ancestors.h"
#include "group/launch/launch_claim.h"

/** Whether @p outer is one that starts a process a node, in each of which @p inner has started its
 *  ranks: numbers fit. */
bool cddpi_claim_is_within(const struct cddpi_claim *inner, const struct cddpi_claim *outer);

/** Of those of the @p count @p claims that are @p in, the one whose variables were set last, on the
 *  way down to this process; of several that came together, the one whose launcher the process is
 *  that passed them on. -1: that is not to be seen. */
int cddpi_claims_nearest(const struct cddpi_ancestors *ancestors, const struct cddpi_claim *claims,
                         const bool *in, int count);

#endif
