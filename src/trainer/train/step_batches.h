/* step_batches.h - all micro-batches of a step at once, for runs in which they wait for several
 * turns: copied, because the loader's memory is used again before. */
#ifndef CDDPI_TRAIN_STEP_BATCHES_H
#define CDDPI_TRAIN_STEP_BATCHES_H

#include "train/step.h"

struct cddpi_stored_batch {
    float *input;
    int32_t *tokens, *label;
    uint64_t *ids;
};

struct cddpi_step_batches {
    bool no_data, no_labels;           /* not read here, and not kept; set by the caller */
    struct cddpi_stored_batch *stored; /* room for as many as a step can have */
    struct cddpi_batch *batches;       /* of the step at hand: count of them ... */
    double *scales;                    /* ... and what their backwards multiply by */
    int room, count;
    uint64_t share; /* samples of the step that are this rank's */
};

/** Fetch the micro-batches of @p step, which counts their predictions.
 *  @param multiple  Add batches without samples until there are a multiple of it.
 *  @param logs      Whether this rank writes down which samples they have.
 *  @param all       Zeroed before the first step; released by cddpi_step_batches_fini(). */
CDDP_CHECKED cddp_status cddpi_step_batches_fetch(struct cddpi_trainer *trainer,
                                                  struct cddpi_train_step *step, int multiple,
                                                  bool logs, struct cddpi_step_batches *all);
void cddpi_step_batches_fini(struct cddpi_step_batches *all);

#endif
