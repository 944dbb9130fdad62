/* restarts.h - whether, and after which pause, a job is started again when a generation has ended.
 * No I/O and no clock. */
#ifndef CDDPI_LAUNCHER_RESTARTS_H
#define CDDPI_LAUNCHER_RESTARTS_H

#include "launcher/supervise/job_state.h"

enum {
    CDDPI_SHORT_LIFE_MS = 20000, /* a job that fails sooner, without a checkpoint, got nowhere */
    CDDPI_MOST_FRUITLESS = 5     /* this many such failures in a row end it */
};

/* Zeroed before the first generation. */
struct cddpi_restarts {
    int made;
    int fruitless; /* generations in a row that got nowhere */
};

enum cddpi_restart {
    CDDPI_RESTART_NOT,     /* the job is over, or may not be started again */
    CDDPI_RESTART_GIVE_UP, /* it got nowhere too often */
    CDDPI_RESTART_NOW      /* after *out_pause_ms */
};

/** A generation has ended with @p outcome, @p lived_ms after its start. @p most: --max-restarts. */
enum cddpi_restart cddpi_restarts_next(struct cddpi_restarts *restarts, int most,
                                       const struct cddpi_generation_outcome *outcome,
                                       int64_t lived_ms, int64_t *out_pause_ms);

#endif
