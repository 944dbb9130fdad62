/* launch.h - runs a job, from its parsed command line to its exit status. */
#ifndef CDDPI_LAUNCHER_LAUNCH_H
#define CDDPI_LAUNCHER_LAUNCH_H

#include "launcher/run_options.h"
#include "launcher/supervise/job.h"

/** Run the job, or print what it would run. Returns the exit status; messages go to stderr. */
int cddpi_launch(const struct cddpi_launch_options *options);

/** Print the configuration or the command, and one line per rank. Returns the exit status. */
int cddpi_dry_run_print(const struct cddpi_job *job);

#endif
