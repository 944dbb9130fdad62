/* micro_batch.h - forward and backward of one micro-batch. */
#ifndef CDDPI_TRAIN_MICRO_BATCH_H
#define CDDPI_TRAIN_MICRO_BATCH_H

#include "train/step.h"

/** Forward and backward of @p batch, after @p done others of the step. On a device only work for
 * its streams: also part of a capture. */
CDDP_CHECKED cddp_status cddpi_trainer_run_micro_batch(struct cddpi_trainer *trainer,
                                                       const struct cddpi_train_step *step,
                                                       const struct cddpi_micro_batch *batch,
                                                       uint64_t done);

/** CDDP_ERR_STATE unless the losses of step @p step, which was not skipped, are numbers. */
CDDP_CHECKED cddp_status cddpi_trainer_check_loss(const struct cddpi_trainer *trainer,
                                                  uint64_t step, double loss_sum);

/** Add to the text of a failure for want of memory @p what would need less; others are
 *  passed on. */
CDDP_CHECKED cddp_status cddpi_trainer_add_advice(cddp_status status, const char *what);

#endif
