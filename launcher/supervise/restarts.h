/* restarts.h - decides whether a job that has failed is restarted, and after which pause. Reads no
 * clock. */
#ifndef CDDPI_LAUNCHER_RESTARTS_H
#define CDDPI_LAUNCHER_RESTARTS_H

#include "launcher/supervise/job_state.h"

enum {
    CDDPI_SHORT_LIFE_MS = 20000, /* a generation that fails sooner, without a checkpoint and without
                                    progress that is kept in memory, made no progress */
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

/** Whether a generation that ended with @p outcome, @p lived_ms after its start, made progress. */
bool cddpi_restarts_has_got_on(const struct cddpi_generation_outcome *outcome, int64_t lived_ms);

/** What to do after a generation that ended with @p outcome, @p lived_ms after its start. @p most
 *  is --max-restarts. */
enum cddpi_restart cddpi_restarts_next(struct cddpi_restarts *restarts, int most,
                                       const struct cddpi_generation_outcome *outcome,
                                       int64_t lived_ms, int64_t *out_pause_ms);

#endif
