/* wait.h - waiting between generations: for other nodes, or for the time of a restart. A signal
 * that asks the job to end also ends the waiting. */
#ifndef CDDPI_LAUNCHER_WAIT_H
#define CDDPI_LAUNCHER_WAIT_H

#include "launcher/supervise/monitor.h"

#include <cddp/status.h>

#include <stdbool.h>

struct cddpi_wait {
    const struct cddpi_monitor *monitor;
    int signal_fd;
    int head_fd;      /* at its end, the cddp-run that started this one is gone; -1: none */
    int64_t began_ns; /* of the whole waiting, for texts */
    int number;       /* the signal that asked the job to end; 0: none */
    bool is_over;     /* the job has to end */
};

/** Wait until @p fd (-1: none) is readable, @p milliseconds have passed or the job has to end.
 *  False if it has. */
bool cddpi_wait_for(struct cddpi_wait *wait, int fd, int milliseconds);

/** The failure that says why the job has to end. */
cddp_status cddpi_wait_fail(const struct cddpi_wait *wait);

/** Read and forget what has come on @p head_fd; true at its end. */
bool cddpi_head_is_gone(int head_fd);

#endif
