/* same_bits.h - small configurations of all kinds of models with train.micro_batch, and the
 * comparison of what their runs leave behind. */
#ifndef CDDP_TESTS_SUPPORT_SAME_BITS_H
#define CDDP_TESTS_SUPPORT_SAME_BITS_H

#include "support/train.h"

#include <stdbool.h>

/* A model, whose configuration is NAME.conf in the folder of make_same_bits_work(): two epochs of
 * two batches of 24 samples and one of fewer, in micro-batches of 3. */
struct same_bits_model {
    const char *name;
    const char *data; /* shape of synthetic images, or "idx", "text" or "table" */
    const char *model;
    const char *train; /* more keys of that group */
    const char *optimizer;
};
extern const struct same_bits_model same_bits_models[];
extern const int same_bits_model_count;

int make_same_bits_work(void **state);

/* What the metrics of @p run_dir say, but for times, memory and who computed it. Release with
 * free(). @param only_steps  Leave out evaluations and texts. */
char *same_bits_metrics(const char *run_dir, bool only_steps);

/* Assert that two runs have left the same behind, byte for byte: the last checkpoint, and metrics
 * but for times. */
void assert_same_files(const char *run_a, const char *run_b);
/* The same, but for the evaluations that a run has where it is interrupted. */
void assert_same_end_files(const char *run_a, const char *run_b);

/* The step of a run's last checkpoint. */
int last_step(const char *run_dir);

#endif
