/* follow_state.h - what is known of a run that is being followed. */
#ifndef CDDPI_TRAIN_REPORT_FOLLOW_STATE_H
#define CDDPI_TRAIN_REPORT_FOLLOW_STATE_H

#include <jansson.h>
#include <stdbool.h>
#include <stdio.h>

enum { CDDPI_FOLLOW_LOSSES = 2048, CDDPI_FOLLOW_PARTS = 5 };

/* NaN: not known. */
struct cddpi_follow_state {
    double losses[CDDPI_FOLLOW_LOSSES]; /* each the mean of `of_loss` lines */
    int loss_count, of_loss, in_last;   /* in_last: lines in the last, incomplete one */
    double step, epoch, loss, accuracy, lr;
    double samples_per_s, tokens_per_s, step_ms;
    double parts[CDDPI_FOLLOW_PARTS]; /* ms: data, forward, backward, communication, optimizer */
    double eval_step, eval_loss, eval_accuracy, perplexity;
    double ranks, parameters, seconds;
    char device[64];
    char host[256]; /* rank 0's, as gethostname() gives it; "": not known */
    bool has_begun, has_ended, has_stopped;
};

/* What a line of metrics was. */
enum cddpi_follow_kind {
    CDDPI_FOLLOW_OTHER,
    CDDPI_FOLLOW_BEGIN,
    CDDPI_FOLLOW_STEP,
    CDDPI_FOLLOW_EVALUATION,
    CDDPI_FOLLOW_END
};

void cddpi_follow_init(struct cddpi_follow_state *state);
enum cddpi_follow_kind cddpi_follow_take(struct cddpi_follow_state *state, const json_t *line);

/** Print one line about what @p kind of line was taken last; nothing about CDDPI_FOLLOW_OTHER. */
void cddpi_follow_print(const struct cddpi_follow_state *state, enum cddpi_follow_kind kind,
                        FILE *out);
enum { CDDPI_FOLLOW_LINES = 6 };
/** Print the view, CDDPI_FOLLOW_LINES lines, each shorter than @p columns (0: any length) and drawn
 *  over what is there. @p silent_s: for how long no line of metrics has come.
 *  @p is_gone: no process runs it. */
void cddpi_follow_draw(const struct cddpi_follow_state *state, const char *dir, int columns,
                       double silent_s, bool is_gone, bool is_utf8, FILE *out);

#endif
