/* report_progress.h - prints progress to stderr: rank 0's during a run, and cddp-tokenize's. */
#ifndef CDDPI_TRAIN_REPORT_PROGRESS_H
#define CDDPI_TRAIN_REPORT_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>

enum cddpi_progress_mode { CDDPI_PROGRESS_OFF, CDDPI_PROGRESS_PLAIN, CDDPI_PROGRESS_TTY };

struct cddpi_progress {
    enum cddpi_progress_mode mode;
    int64_t shown_ns; /* when a line was last printed */
    bool open_line;   /* tty: the last line has no new line yet */
    bool coloured;    /* tty: it shows colours, and NO_COLOR is not set */
};

struct cddpi_progress_state {
    uint64_t epoch, epochs; /* epoch counts from 1 */
    uint64_t step, steps;   /* of the whole run */
    double loss;            /* NaN: all steps were skipped */
    uint64_t skipped;       /* skipped steps so far */
    double rate;            /* in `unit` a second */
    const char *unit;
    double mfu_percent;     /* model FLOPs utilisation; 0: not known, and not printed */
    double exposed_percent; /* share of a step's time spent waiting for communication, or NaN */
    double seconds_left;
};

/** Choose the mode: off if @p silent (all ranks but 0), else $CDDP_PROGRESS, else the mode that
 *  fits stderr. */
void cddpi_progress_init(struct cddpi_progress *progress, bool silent);

/** Whether enough time has passed since the last line: 0.1 s on a terminal, else 5 s. */
bool cddpi_progress_is_due(const struct cddpi_progress *progress);
/** Print a line, which the next one redraws on a terminal. There it takes one row of any width:
 *  fields, which two spaces separate, go from the right (base/terminal.h). */
void cddpi_progress_show(struct cddpi_progress *progress, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/** Wipe the line that is redrawn. */
void cddpi_progress_erase(struct cddpi_progress *progress);

/** Print where the run is, at most every 0.1 s on a terminal, else every 5 s. A narrow terminal
 *  shows, in this order, what fits: step, loss, time left, epoch, rate, exposed communication,
 *  MFU. */
void cddpi_progress_step(struct cddpi_progress *progress, const struct cddpi_progress_state *state);

/** Print a line that is not redrawn, such as at the end of an epoch, in every mode but off. */
void cddpi_progress_line(struct cddpi_progress *progress, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

/** Print a heading and, below it, @p text of any length. */
void cddpi_progress_text(struct cddpi_progress *progress, const char *heading, const char *text);

/** End the line that is redrawn, so that other text starts on a new one. */
void cddpi_progress_end(struct cddpi_progress *progress);

#endif
