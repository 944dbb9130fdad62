/* launch_slurm.h - what Slurm says of a step besides each rank's number: its nodes. */
#ifndef CDDPI_GROUP_LAUNCH_SLURM_H
#define CDDPI_GROUP_LAUNCH_SLURM_H

#include "group/launch_env.h"

/** Read how many ranks are on this node into @p env, which has rank and sizes of the step. If the
 *  step has several nodes, also where its ranks find each other, and by which token.
 *  @param name           Of the job and the step, fit for a file's name.
 *  @param out_one_node   True: store and token are still to be chosen.
 *  @return CDDP_OK; CDDP_ERR_ARGUMENT or CDDP_ERR_IO, whose text names what is wrong. */
cddp_status cddpi_launch_slurm(struct cddpi_launch_env *env, const char *name, bool *out_one_node);

#endif
