/* evaluate.h - loss and accuracy over the test data. */
#ifndef CDDPI_TRAIN_EVALUATE_H
#define CDDPI_TRAIN_EVALUATE_H

#include <cddp/status.h>

struct cddpi_trainer;

/* What the last evaluation found. */
struct cddpi_evaluation {
    uint64_t step; /* after which it was; ~0: there was none */
    double loss, accuracy;
};

/** Loss and accuracy over the test data, or as much of it as is wanted, each sample once: into
 *  trainer->evaluation, unless trainer->stopped is set on the way. Collective. */
CDDP_CHECKED cddp_status cddpi_trainer_evaluate(struct cddpi_trainer *trainer);

#endif
