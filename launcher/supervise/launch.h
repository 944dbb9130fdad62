/* launch.h - runs a job, from its parsed command line to its exit status. */
#ifndef CDDPI_LAUNCHER_LAUNCH_H
#define CDDPI_LAUNCHER_LAUNCH_H

#include "launcher/run_options.h"

/** Run the job, or print what it would run. Returns the exit status; messages go to stderr. */
int cddpi_launch(const struct cddpi_launch_options *options);

#endif
