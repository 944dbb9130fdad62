/* micro_batch.h - runs forward and backward of one micro-batch. */
#ifndef CDDPI_TRAIN_MICRO_BATCH_H
#define CDDPI_TRAIN_MICRO_BATCH_H

#include "train/step.h"

/** Run forward and backward of @p batch, the micro-batch after @p done others of the step. On a
 *  device, this only enqueues work in its streams, so it can be part of a capture. */
CDDP_CHECKED cddp_status cddpi_trainer_run_micro_batch(struct cddpi_trainer *trainer,
                                                       const struct cddpi_train_step *step,
                                                       const struct cddpi_micro_batch *batch,
                                                       uint64_t done);

/** CDDP_ERR_STATE if the loss of step @p step is NaN or Inf. Not for skipped steps. */
CDDP_CHECKED cddp_status cddpi_trainer_check_loss(const struct cddpi_trainer *trainer,
                                                  uint64_t step, double loss_sum);

/** Append advice to an out-of-memory error: @p what says which setting needs less memory. Other
 *  errors are returned unchanged. */
CDDP_CHECKED cddp_status cddpi_trainer_add_advice(cddp_status status, const char *what);

#endif
