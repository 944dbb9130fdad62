/* monitor.h - two processes that watch each other. The process that the user started (the monitor)
 * passes signals on and waits; its child (the supervisor) supervises the ranks. If either is
 * killed, the other ends all remaining processes, including grandchildren in their own sessions. */
#ifndef CDDPI_LAUNCHER_MONITOR_H
#define CDDPI_LAUNCHER_MONITOR_H

#include <signal.h>

/* What the supervisor needs from its start. */
struct cddpi_monitor {
    int lifeline;       /* at end of file once the monitor has died */
    sigset_t blocked;   /* signals that the supervisor must receive through a signalfd */
    sigset_t ending;    /* the subset of `blocked` that asks the job to end */
    sigset_t inherited; /* the signal mask for ranks */
};

/** Fork. The monitor does not return; it exits with the supervisor's status. The supervisor runs @p
 *  body and exits with its result. It has its own session, so that a terminal's signals reach it
 *  once, through the monitor. */
int cddpi_monitor_run(int (*body)(const struct cddpi_monitor *monitor, void *argument),
                      void *argument);

#endif
