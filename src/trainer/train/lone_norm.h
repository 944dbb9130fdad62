/* lone_norm.h - finds batch normalisation over a single value, which PyTorch rejects. */
#ifndef CDDPI_TRAIN_LONE_NORM_H
#define CDDPI_TRAIN_LONE_NORM_H

#include "train/trainer.h"

/** The number of samples in the smallest micro-batch of any rank in a step of @p batch samples; 0:
 *  there is none. */
int64_t cddpi_trainer_smallest_micro_batch(const struct cddpi_config *config, int replicas,
                                           int64_t batch);

/** Warn if a batch_norm of the trainer's models will normalise a single value. */
void cddpi_trainer_warn_lone_norm(struct cddpi_trainer *trainer);

#endif
