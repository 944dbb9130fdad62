/* job_store.h - `cddp-run --store`: a process that serves a job's store and has no ranks. */
#ifndef CDDPI_LAUNCHER_JOB_STORE_H
#define CDDPI_LAUNCHER_JOB_STORE_H

#include "launcher/supervise/job.h"
#include "launcher/supervise/monitor.h"

/** Serve the store of one job at job->options.store, until its nodes have left. Returns the job's
 *  exit status. */
int cddpi_job_store_run(struct cddpi_job *job, struct cddpi_wait *wait);

#endif
