/* step.h - one step: planned, computed, agreed about, updated, reported. */
#ifndef CDDPI_TRAIN_STEP_H
#define CDDPI_TRAIN_STEP_H

#include "train/device/device_step.h"
#include "train/trainer.h"

/* The step at hand. Only step.c writes it; what a step calls reads it. */
struct cddpi_train_step {
    int64_t begun_ns;
    double lr;
    bool ends_epoch;
    struct cddpi_step_mode mode;
    /* while it computes */
    int predictions; /* of this rank */
    bool replayed;   /* captured work did all of it so far */
    /* once all ranks have agreed */
    enum cddpi_request request; /* what is to be done after it */
    bool reported;              /* it ends with a line of metrics */
};

/** Do the next step, and move the cursor past it. Collective. */
CDDP_CHECKED cddp_status cddpi_trainer_step(struct cddpi_trainer *trainer,
                                            struct cddpi_train_step *out);

/* What a step does with its micro-batch @p batch, after @p done others. */
typedef cddp_status (*cddpi_micro_batch_fn)(struct cddpi_trainer *trainer,
                                            struct cddpi_train_step *step,
                                            const struct cddpi_micro_batch *batch, uint64_t done);
/** Fetch the micro-batches of @p step one after the other, and call @p compute with each. */
CDDP_CHECKED cddp_status cddpi_trainer_each_micro_batch(struct cddpi_trainer *trainer,
                                                        struct cddpi_train_step *step,
                                                        cddpi_micro_batch_fn compute);
/** Forward and backward of one of them, which may be replayed (device/step_graphs.h); the last one
 *  reduces the gradients. */
CDDP_CHECKED cddp_status cddpi_trainer_compute_micro_batch(struct cddpi_trainer *trainer,
                                                           struct cddpi_train_step *step,
                                                           const struct cddpi_micro_batch *batch,
                                                           uint64_t done);

/** After the first wait for gradients, those of @p trainer have their final places. */
CDDP_CHECKED cddp_status cddpi_trainer_bind_again(struct cddpi_trainer *trainer);

#endif
