/* generations.h - runs a job from its first start to its last: after a failure, all ranks are
 * restarted as the next generation, up to --max-restarts times. */
#ifndef CDDPI_LAUNCHER_GENERATIONS_H
#define CDDPI_LAUNCHER_GENERATIONS_H

#include "launcher/output/output.h"
#include "launcher/supervise/job.h"
#include "launcher/supervise/monitor.h"

/** Run all generations. Returns the exit status. */
int cddpi_generations_run(struct cddpi_job *job, struct cddpi_wait *wait);

#endif
