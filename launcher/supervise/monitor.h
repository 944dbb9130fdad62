/* monitor.h - two processes that watch each other. The one that the user started (the monitor)
 * passes signals on and waits; its child supervises the ranks. Whichever of them is killed, the
 * other ends all that is left, grandchildren in sessions of their own included. */
#ifndef CDDPI_LAUNCHER_MONITOR_H
#define CDDPI_LAUNCHER_MONITOR_H

#include <signal.h>

/* What the supervising process needs from its start. */
struct cddpi_monitor {
    int lifeline;       /* readable (at its end) once the monitor has died */
    sigset_t blocked;   /* the signals that it must take through a signalfd */
    sigset_t ending;    /* those of them that ask the job to end */
    sigset_t inherited; /* the mask that ranks get */
};

/** Fork. The monitor does not return but exits as the supervisor does; the supervisor (a session of
 *  its own, so that a terminal's signals reach it once, through the monitor) runs @p body and exits
 *  with its result. */
int cddpi_monitor_run(int (*body)(const struct cddpi_monitor *monitor, void *argument),
                      void *argument);

#endif
