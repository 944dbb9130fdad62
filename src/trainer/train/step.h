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

/** Do the next step. The cursor is behind it then. Collective. */
CDDP_CHECKED cddp_status cddpi_trainer_step(struct cddpi_trainer *trainer,
                                            struct cddpi_train_step *out);

/** Behind the first wait for gradients, those of @p trainer have their final places. */
CDDP_CHECKED cddp_status cddpi_trainer_bind_again(struct cddpi_trainer *trainer);

#endif
