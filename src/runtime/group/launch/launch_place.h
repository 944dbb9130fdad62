/* launch_place.h - finds out where the ranks that a launcher started meet. */
#ifndef CDDPI_GROUP_LAUNCH_PLACE_H
#define CDDPI_GROUP_LAUNCH_PLACE_H

#include "group/launch/launch_env.h"
#include "group/launch/launch_judge.h"

/** Whether @p claim's launcher says where ranks meet. */
bool cddpi_launch_knows_place(const struct cddpi_claim *claim);

/** The first of the agreeing claims that says where the ranks meet. */
const struct cddpi_claim *cddpi_launch_place(const struct cddpi_finding *finding);

/** Fill in where and how the ranks of @p finding's launcher meet: store, job, token. @p env already
 *  has rank and sizes. */
cddp_status cddpi_launch_meet(const struct cddpi_finding *finding, struct cddpi_launch_env *env);

/** The same from MASTER_ADDR and MASTER_PORT. */
cddp_status cddpi_launch_meet_torchrun(struct cddpi_launch_env *env);

/** Read torchrun's job and generation, which a single rank has, too. */
cddp_status cddpi_launch_read_elastic(struct cddpi_launch_env *env, int *out_restarts);

#endif
