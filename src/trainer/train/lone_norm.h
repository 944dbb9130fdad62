/* lone_norm.h - batch normalisation of one value, which PyTorch refuses. */
#ifndef CDDPI_TRAIN_LONE_NORM_H
#define CDDPI_TRAIN_LONE_NORM_H

#include "train/trainer.h"

/** Samples of the smallest micro-batch that a rank has in a step of @p batch samples; 0: there is
 *  none. */
int64_t cddpi_trainer_smallest_micro_batch(const struct cddpi_config *config, int replicas,
                                           int64_t batch);

/** Warn if a batch_norm of the trainer's models will have to normalise a single value. */
void cddpi_trainer_warn_lone_norm(struct cddpi_trainer *trainer);

#endif
