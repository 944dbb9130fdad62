/* generations.h - runs a job from its first start to its last: after a failure, all ranks are
 * restarted as the next generation, up to --max-restarts times. */
#ifndef CDDPI_LAUNCHER_GENERATIONS_H
#define CDDPI_LAUNCHER_GENERATIONS_H

#include "launcher/output/output.h"
#include "launcher/supervise/job.h"
#include "launcher/supervise/job_state.h"
#include "launcher/supervise/monitor.h"

enum {
    CDDPI_SHORT_LIFE_MS = 20000, /* a generation that fails sooner, without a checkpoint, made no
                                    progress */
    CDDPI_MOST_FRUITLESS = 5     /* after this many such failures in a row the job ends */
};

/* Zeroed before the first generation. */
struct cddpi_restarts {
    int made;
    int fruitless; /* generations in a row without progress */
};

enum cddpi_restart {
    CDDPI_RESTART_NOT,     /* the job is over or must not be restarted */
    CDDPI_RESTART_GIVE_UP, /* too many generations in a row made no progress */
    CDDPI_RESTART_NOW      /* after *out_pause_ms */
};

/** What to do after a generation that ended with @p outcome, @p lived_ms after its start. @p most
 *  is --max-restarts. */
enum cddpi_restart cddpi_restarts_next(struct cddpi_restarts *restarts, int most,
                                       const struct cddpi_generation_outcome *outcome,
                                       int64_t lived_ms, int64_t *out_pause_ms);

/** Run all generations. Returns the exit status. */
int cddpi_generations_run(struct cddpi_job *job, struct cddpi_wait *wait);

#endif
