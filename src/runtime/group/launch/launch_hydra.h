/* launch_hydra.h - what names a job of Hydra's, the mpirun of MPICH and Intel MPI, and of others
 * that give it no name. */
#ifndef CDDPI_GROUP_LAUNCH_HYDRA_H
#define CDDPI_GROUP_LAUNCH_HYDRA_H

#include "group/launch/launch_claim.h"

#include <stddef.h>

/** The process by which @p by has started the ranks of this machine, which names the job here. Its
 *  parents are looked through, since a script may lie between; the direct one if none has the name.
 *  @param out_start  When it was started, in the kernel's ticks. */
long cddpi_launch_proxy(enum cddpi_launcher by, char *out_start, size_t bytes);

#endif
