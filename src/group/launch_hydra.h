/* launch_hydra.h - what names a job of Hydra's, the mpirun of MPICH and Intel MPI. */
#ifndef CDDPI_GROUP_LAUNCH_HYDRA_H
#define CDDPI_GROUP_LAUNCH_HYDRA_H

#include <stddef.h>

/** The proxy by which Hydra has started the ranks of this machine, which names the job here: it
 *  gives no variable that does. Its parents are looked through, since a script may lie between; the
 *  direct one if none has the name.
 *  @param out_start  When it was started, in the kernel's ticks. */
long cddpi_launch_hydra_proxy(char *out_start, size_t bytes);

#endif
