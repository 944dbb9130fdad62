/* evaluate.h - computes loss, and accuracy or error, over the test data. */
#ifndef CDDPI_TRAIN_EVALUATE_H
#define CDDPI_TRAIN_EVALUATE_H

#include <cddp/status.h>

struct cddpi_trainer;

/* The result of the last evaluation. */
struct cddpi_evaluation {
    uint64_t step; /* the step after which it ran; ~0: no evaluation yet */
    double loss, accuracy;
    /* Regression, instead of accuracy: of loss "mse" the root of the loss, of "l1" the loss. */
    double error;
    const char *error_name; /* "rmse", "mae"; NULL: no regression */
};

/** Evaluate the test data, or the part that the configuration asks for, each sample once. The
 *  result is in trainer->evaluation, unless trainer->step.stopped gets set meanwhile. Collective.
 */
CDDP_CHECKED cddp_status cddpi_trainer_evaluate(struct cddpi_trainer *trainer);

/** Rank 0 warns about samples replaced on any rank because their image files are broken
 *  (data.on_error = "skip"), if there are new ones since its last warning. Collective; does nothing
 *  where broken files are errors. */
CDDP_CHECKED cddp_status cddpi_trainer_tell_broken(struct cddpi_trainer *trainer);

#endif
