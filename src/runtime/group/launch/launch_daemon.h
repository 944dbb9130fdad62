/* launch_daemon.h - finds out whether launchers' own processes, which started this one, are
 * alive. */
#ifndef CDDPI_GROUP_LAUNCH_DAEMON_H
#define CDDPI_GROUP_LAUNCH_DAEMON_H

#include "base/ancestors.h"
#include "group/launch/launch_claim.h"

/** Whether @p ancestor is a process through which @p by starts ranks. */
bool cddpi_launch_is_starter(const struct cddpi_ancestor *ancestor, enum cddpi_launcher by);

/** How many generations up the nearest launcher process is; 1: the parent, -1: there is none. */
int cddpi_launch_starter(const struct cddpi_ancestors *ancestors, enum cddpi_launcher by);

/** Find out whether @p claim, which is Open MPI's, is alive or stale. Alive: one of its daemons is
 *  an ancestor, or its server answers. Stale: the server does not answer; or the variables name no
 *  server, and no folder of the job that still exists. */
void cddpi_launch_look_for_daemon(const struct cddpi_ancestors *ancestors,
                                  struct cddpi_claim *claim);

#endif
