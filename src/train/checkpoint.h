/* checkpoint.h - what writing a checkpoint and taking one up have in common. */
#ifndef CDDPI_TRAIN_CHECKPOINT_H
#define CDDPI_TRAIN_CHECKPOINT_H

#include "train/trainer.h"

/** The word for the order of the data. */
const char *cddpi_checkpoint_order(const struct cddpi_trainer *trainer);
/** Whether checkpoints have a loss scale: runs in fp16. */
bool cddpi_checkpoint_has_scale(const struct cddpi_trainer *trainer);
/** All tensors that a checkpoint of @p trainer has; cddpi_checkpoint_release(). */
CDDP_CHECKED cddp_status cddpi_checkpoint_tensors(struct cddpi_trainer *trainer,
                                                  cddp_snapshot *out);
void cddpi_checkpoint_release(cddp_snapshot *snapshot);

#endif
