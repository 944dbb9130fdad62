/* supervise.h - one generation of a job, from the start of its ranks to the end of the last one. */
#ifndef CDDPI_LAUNCHER_SUPERVISE_H
#define CDDPI_LAUNCHER_SUPERVISE_H

#include "launcher/output/output.h"
#include "launcher/supervise/job.h"
#include "launcher/supervise/job_state.h"
#include "launcher/supervise/monitor.h"

/** Start the ranks of job->generation and supervise them until the last has ended and none of their
 *  processes is left. Prints every failure to @p output.
 *  @param signal_fd  A signalfd of monitor->blocked. */
struct cddpi_generation_outcome cddpi_supervise(struct cddpi_job *job,
                                                const struct cddpi_monitor *monitor, int signal_fd,
                                                struct cddpi_output *output);

#endif
