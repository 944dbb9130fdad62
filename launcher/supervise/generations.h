/* generations.h - a job from its first start to its last: after a failure all ranks are started
 * again as the next generation, as often as --max-restarts allows. */
#ifndef CDDPI_LAUNCHER_GENERATIONS_H
#define CDDPI_LAUNCHER_GENERATIONS_H

#include "launcher/output/output.h"
#include "launcher/supervise/job.h"
#include "launcher/supervise/wait.h"

/** Run them all. Returns the exit status. */
int cddpi_generations_run(struct cddpi_job *job, struct cddpi_wait *wait,
                          struct cddpi_output *output);

#endif
