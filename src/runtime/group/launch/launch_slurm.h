/* launch_slurm.h - reads what Slurm says about a step besides each rank's number: its nodes. */
#ifndef CDDPI_GROUP_LAUNCH_SLURM_H
#define CDDPI_GROUP_LAUNCH_SLURM_H

#include "group/launch/launch_claim.h"
#include "group/launch/launch_env.h"

/** The step's number; NULL: there is no step, as in a job's script. */
const char *cddpi_launch_slurm_step(void);

/** Read which step this is. A job's script or salloc's shell gives a claim of size 1. */
void cddpi_launch_read_slurm(struct cddpi_claim *claim);

/** If this is a job's script or shell: the number of the job's nodes. Ranks that are started here
 * leave all nodes but one idle. 0: this is a rank, or not a Slurm job.
 * @param out_is_batch  True: a batch script, which nobody watches; false: a shell. */
int cddpi_launch_slurm_idle_nodes(bool *out_is_batch);

/** Read how many ranks are on this node into @p env, which already has rank and size of the step.
 *  If the step has several nodes, also read where its ranks meet, and their token.
 *  @param name           Name of the job and the step, usable as a file name.
 *  @param out_one_node   True: the caller must still choose store and token.
 *  @return CDDP_OK; CDDP_ERR_ARGUMENT or CDDP_ERR_IO with a text that says what is wrong. */
cddp_status cddpi_launch_slurm(struct cddpi_launch_env *env, const char *name, bool *out_one_node);

#endif
