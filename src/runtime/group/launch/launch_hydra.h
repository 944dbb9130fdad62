/* launch_hydra.h - finds what identifies a job of Hydra (the mpirun of MPICH and Intel MPI) and of
 * other launchers that give a job no name. */
#ifndef CDDPI_GROUP_LAUNCH_HYDRA_H
#define CDDPI_GROUP_LAUNCH_HYDRA_H

#include "group/launch/launch_claim.h"

#include <stddef.h>

/** The process id of the launcher process through which @p by started the ranks of this machine; it
 *  identifies the job here. Searches all ancestors, since a script may be in between. If no
 *  ancestor matches: the parent.
 *  @param out_start  Its start time, in the kernel's clock ticks. */
long cddpi_launch_proxy(enum cddpi_launcher by, char *out_start, size_t bytes);

#endif
