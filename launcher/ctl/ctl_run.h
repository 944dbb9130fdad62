/* ctl_run.h - what the files of a run folder say of the run now: the last lines of metrics.jsonl,
 * and the newest checkpoint. */
#ifndef CDDPI_LAUNCHER_CTL_RUN_H
#define CDDPI_LAUNCHER_CTL_RUN_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>

enum { CDDPI_CTL_POINTS = 120 };

/* NaN: not known. */
struct cddpi_ctl_run {
    double step, epoch, loss, steps_per_s, samples_per_s, tokens_per_s;
    double exposed;   /* communication that nothing hid, as a part of a step's time */
    double peer_wait; /* the part of it that was spent waiting for other ranks */
    double eval_step, eval_loss, eval_accuracy;
    double losses[CDDPI_CTL_POINTS], rates[CDDPI_CTL_POINTS]; /* the last ones; steps/s */
    int points;
    bool has_folder;       /* else nothing is known */
    json_t *line;          /* the last line about steps; NULL: none; owned */
    char checkpoint[4400]; /* path of the newest; "": none */
};

/** Read the files of the folder @p dir (NULL: none); what is missing or damaged is unknown.
 *  @param out  Release with cddpi_ctl_run_fini(). */
void cddpi_ctl_run_read(const char *dir, struct cddpi_ctl_run *out);
void cddpi_ctl_run_fini(struct cddpi_ctl_run *run);

#endif
