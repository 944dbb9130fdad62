/* report_progress.h - what rank 0 shows on stderr while a run goes on. */
#ifndef CDDPI_TRAIN_REPORT_PROGRESS_H
#define CDDPI_TRAIN_REPORT_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

enum cddpi_progress_mode { CDDPI_PROGRESS_OFF, CDDPI_PROGRESS_PLAIN, CDDPI_PROGRESS_TTY };

struct cddpi_progress {
    enum cddpi_progress_mode mode;
    int64_t shown_ns; /* when a line was last shown */
    bool open_line;   /* tty: a line without its end is on the screen */
};

struct cddpi_progress_state {
    uint64_t epoch, epochs; /* epoch counts from 1 */
    uint64_t step, steps;   /* of the whole run */
    double loss;            /* NaN: of no step, all were skipped */
    uint64_t skipped;       /* steps so far */
    double rate;            /* of so many `unit` a second */
    const char *unit;
    double mfu_percent;     /* of what the devices could compute; 0: not known, and not shown */
    double exposed_percent; /* waiting for communication, of the time of a step; NaN: not known */
    double seconds_left;
};

/** The mode is $CDDP_PROGRESS, else what stderr is; @p silent (ranks but 0): off. */
void cddpi_progress_init(struct cddpi_progress *progress, bool silent);

/** Show where the run is, if the last time is long enough ago: 0.1 s on a terminal, else 5 s. */
void cddpi_progress_step(struct cddpi_progress *progress, const struct cddpi_progress_state *state);

/** A line that stays, at the end of an epoch or when something happened. Shown in every mode but
 * off. */
void cddpi_progress_line(struct cddpi_progress *progress, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/** A heading and lines of @p text below it, however long, that stay. */
void cddpi_progress_text(struct cddpi_progress *progress, const char *heading, const char *text);

/** End the line that is redrawn, so that other text starts on a new one. */
void cddpi_progress_end(struct cddpi_progress *progress);

#endif
