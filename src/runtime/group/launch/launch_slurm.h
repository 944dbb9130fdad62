/* launch_slurm.h - what Slurm says of a step besides each rank's number: its nodes. */
#ifndef CDDPI_GROUP_LAUNCH_SLURM_H
#define CDDPI_GROUP_LAUNCH_SLURM_H

#include "group/launch/launch_claim.h"
#include "group/launch/launch_env.h"

/** The step's number; NULL: there is none, as in a job's script. */
const char *cddpi_launch_slurm_step(void);

/** Which step this is: a claim of 1 for a job's script and for salloc's shell. */
void cddpi_launch_read_slurm(struct cddpi_claim *claim);

/** Of the nodes of the job whose script or shell this is, how many there are: ranks that are
 * started here leave all but one of them idle. 0: this is a rank, or no job of Slurm's.
 *  @param out_is_batch  A script that nobody looks at while it runs, and no shell. */
int cddpi_launch_slurm_idle_nodes(bool *out_is_batch);

/** Read how many ranks are on this node into @p env, which has rank and sizes of the step. If the
 *  step has several nodes, also where its ranks find each other, and by which token.
 *  @param name           Of the job and the step, fit for a file's name.
 *  @param out_one_node   True: store and token are still to be chosen.
 *  @return CDDP_OK; CDDP_ERR_ARGUMENT or CDDP_ERR_IO, whose text names what is wrong. */
cddp_status cddpi_launch_slurm(struct cddpi_launch_env *env, const char *name, bool *out_one_node);

#endif
