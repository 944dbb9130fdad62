/* flipping.h - whole jobs whose memory fails: cddp-run starts train/flipping_train.c, a cddp-train
 * in which a bit flips. */
#ifndef CDDP_TESTS_SUPPORT_FLIPPING_H
#define CDDP_TESTS_SUPPORT_FLIPPING_H

#include "support/job.h"

/* Once the test's folder exists: put a cddp-run there, which finds cddp-train beside itself.
 * Returns 0. */
int make_flipping(void);

/* Run a job to its end. The memory of its ranks fails as @p flip says (flipping_train.c), or not
 * (NULL). */
void run_flipping(struct launched *job, const char *flip, const char *run_dir,
                  const char *const *arguments);
#define FLIP(job, flip, run_dir, ...)                                                              \
    run_flipping((job), flip, run_dir,                                                             \
                 (const char *const[]){__VA_ARGS__, run_dir_argument(run_dir), NULL})

/* Assert that the job has failed, and that all ranks blame @p rank for its state. */
void assert_differing_rank(const struct launched *job, int rank);

#endif
