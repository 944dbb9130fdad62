/* wait.h - waits between generations: for other nodes, or for the pause before a restart. A signal
 * that asks the job to end also ends the wait. */
#ifndef CDDPI_LAUNCHER_WAIT_H
#define CDDPI_LAUNCHER_WAIT_H

#include "launcher/supervise/monitor.h"

#include <cddp/status.h>

#include <stdbool.h>

struct cddpi_wait {
    const struct cddpi_monitor *monitor;
    int signal_fd;
    int head_fd;      /* end of file when the cddp-run that started this one is gone; -1: none */
    int64_t began_ns; /* start of the whole wait, for messages */
    int number;       /* the signal that asked the job to end; 0: none */
    bool is_over;     /* the job has to end */
};

/** Wait until @p fd (-1: none) is readable, @p milliseconds have passed or the job has to end.
 *  Returns false if the job has to end. */
bool cddpi_wait_for(struct cddpi_wait *wait, int fd, int milliseconds);

/** Fail with a message that says why the job has to end. */
cddp_status cddpi_wait_fail(const struct cddpi_wait *wait);

/** Discard what has arrived on @p head_fd. Returns true at end of file. */
bool cddpi_head_is_gone(int head_fd);

#endif
