/* launch_dry_run.h - what --dry-run prints about a job on this machine. */
#ifndef CDDPI_LAUNCHER_DRY_RUN_H
#define CDDPI_LAUNCHER_DRY_RUN_H

#include "launcher/supervise/job.h"

/** Print the configuration or the command, and one line per rank. Returns the exit status. */
int cddpi_dry_run_print(const struct cddpi_job *job);

#endif
