/* launch_daemon.h - whether launchers' own processes are there: those that started this one. */
#ifndef CDDPI_GROUP_LAUNCH_DAEMON_H
#define CDDPI_GROUP_LAUNCH_DAEMON_H

#include "base/ancestors.h"
#include "group/launch/launch_claim.h"

/** Whether @p ancestor is a process by which @p by starts ranks. */
bool cddpi_launch_is_starter(const struct cddpi_ancestor *ancestor, enum cddpi_launcher by);

/** How many generations up the nearest of those is, 1 for the parent; -1: there is none. */
int cddpi_launch_starter(const struct cddpi_ancestors *ancestors, enum cddpi_launcher by);

/** Find out whether @p claim, Open MPI's, is alive: a daemon of its is a parent, or its server
 *  answers; or stale: neither, though its variables say where that is, or lack it. */
void cddpi_launch_look_for_daemon(const struct cddpi_ancestors *ancestors,
                                  struct cddpi_claim *claim);

#endif
