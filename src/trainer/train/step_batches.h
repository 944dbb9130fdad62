/* step_batches.h - owns copies of all micro-batches of a step, for pipelines that need them all at
 * once, since the loader's own memory is reused too early; and the begin and end of such a step. */
#ifndef CDDPI_TRAIN_STEP_BATCHES_H
#define CDDPI_TRAIN_STEP_BATCHES_H

#include "train/step.h"

struct cddpi_stored_batch {
    float *input;
    int32_t *tokens, *label;
    uint64_t *ids;
};

struct cddpi_step_batches {
    struct cddpi_device *device;       /* pins the memory; set with it */
    bool no_data, no_labels;           /* not read on this rank, so not kept; set by the caller */
    struct cddpi_stored_batch *stored; /* as many as a step can have */
    struct cddpi_batch *batches;       /* of the current step: count of them ... */
    double *scales;                    /* ... and the factors of their backwards */
    struct cddpi_loss_result *results; /* ... and room for what their forwards find */
    int room, count;
    uint64_t share; /* samples of the step on this rank */
    uint64_t of;    /* micro-batches of the step on all ranks; 0: not by position */
};

/** Fetch and copy the micro-batches of @p step, and count their predictions in it. By position
 * there may be none.
 *  @param multiple  Append empty batches until the number of batches is a multiple of this.
 *  @param logs      Whether this rank logs the batches' sample ids.
 *  @param all       Zeroed before the first step; release with cddpi_step_batches_fini(). */
CDDP_CHECKED cddp_status cddpi_step_batches_fetch(struct cddpi_trainer *trainer,
                                                  struct cddpi_train_step *step, int multiple,
                                                  bool logs, struct cddpi_step_batches *all);
/** Begin the step's only backward, which is for all of its micro-batches. Waits for updated
 *  parameters with a sharded optimizer. */
CDDP_CHECKED cddp_status cddpi_step_batches_begin(struct cddpi_trainer *trainer,
                                                  const struct cddpi_step_batches *all);
/** Add what the forwards have found to the interval; CDDP_ERR_STATE: a loss is no number. */
CDDP_CHECKED cddp_status cddpi_step_batches_note(struct cddpi_trainer *trainer,
                                                 const struct cddpi_step_batches *all);
/** Wait for the step's gradients, and by position for its statistics. Collective. */
CDDP_CHECKED cddp_status cddpi_step_batches_wait(struct cddpi_trainer *trainer,
                                                 const struct cddpi_step_batches *all);
void cddpi_step_batches_fini(struct cddpi_step_batches *all);

#endif
