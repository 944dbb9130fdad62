/* launch_place.h - where the ranks meet that a launcher has started. */
#ifndef CDDPI_GROUP_LAUNCH_PLACE_H
#define CDDPI_GROUP_LAUNCH_PLACE_H

#include "group/launch/launch_env.h"
#include "group/launch/launch_judge.h"

/** Whether @p claim's launcher says where ranks meet. */
bool cddpi_launch_knows_place(const struct cddpi_claim *claim);

/** Of those that agree about who this process is, the first that says where the ranks meet. */
const struct cddpi_claim *cddpi_launch_place(const struct cddpi_finding *finding);

/** Fill in where the ranks meet that @p finding's launcher has started, and how: store, job, token.
 *  @p env has rank and sizes. */
cddp_status cddpi_launch_meet(const struct cddpi_finding *finding, struct cddpi_launch_env *env);

/** The same by MASTER_ADDR and MASTER_PORT. */
cddp_status cddpi_launch_meet_torchrun(struct cddpi_launch_env *env);

/** torchrun's job and generation, which a single rank has, too. */
cddp_status cddpi_launch_read_elastic(struct cddpi_launch_env *env, int *out_restarts);

#endif
