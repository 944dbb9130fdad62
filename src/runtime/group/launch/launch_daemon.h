/* launch_daemon.h - what launchers' own processes, above this one, show: whether they are alive,
 * which launcher is the innermost, and what identifies a job without a name. */
#ifndef CDDPI_GROUP_LAUNCH_DAEMON_H
#define CDDPI_GROUP_LAUNCH_DAEMON_H

#include "base/process.h"
#include "group/launch/launch_claim.h"

#include <stddef.h>

/** How many generations up the nearest launcher process is; 1: the parent, -1: there is none. */
int cddpi_launch_starter(const struct cddpi_ancestors *ancestors, enum cddpi_launcher by);

/** Find out whether @p claim, which is Open MPI's, is alive or stale. Alive: one of its daemons is
 *  an ancestor, or its server answers. Stale: the server does not answer; or the variables name no
 *  server, and no folder of the job that still exists. */
void cddpi_launch_look_for_daemon(const struct cddpi_ancestors *ancestors,
                                  struct cddpi_claim *claim);

/** Whether the numbers fit this case: @p outer started one process per node, and in each of these
 *  @p inner started its ranks. */
bool cddpi_claim_is_within(const struct cddpi_claim *inner, const struct cddpi_claim *outer);

/** Among the @p count @p claims that are @p in, find the one whose variables were set last on the
 *  way down to this process. If several were set together: the one whose launcher is the process
 *  that passed them on. -1: this cannot be seen. */
int cddpi_claims_nearest(const struct cddpi_ancestors *ancestors, const struct cddpi_claim *claims,
                         const bool *in, int count);

/** The process id of the launcher process through which @p by started the ranks of this machine; it
 *  identifies the job here, because Hydra (the mpirun of MPICH and Intel MPI) and others give their
 *  jobs no name. Searches all ancestors, since a script may be in between. If no ancestor matches:
 *  the parent.
 *  @param out_start  Its start time, in the kernel's clock ticks. */
long cddpi_launch_proxy(enum cddpi_launcher by, char *out_start, size_t bytes);

#endif
