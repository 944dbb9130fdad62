/* kept_list.h - what the state of a run consists of (kept_state.h): the arrays of its models,
 * whatever their division among ranks. */
#ifndef CDDPI_TRAIN_KEPT_LIST_H
#define CDDPI_TRAIN_KEPT_LIST_H

#include "train/trainer.h"

/** Hash what a state must have in common with this run for this run to go on from it. Collective:
 *  each part of the model counts once.
 *  @return An error of the group. */
CDDP_CHECKED cddp_status cddpi_kept_layout(const struct cddpi_trainer *trainer, uint64_t *out);

/** Fill the lists of the trainer @p self, whose optimizer has its final place; on a device, copies
 *  are made. See struct cddpi_keep_owner.
 *  @return CDDP_OK, CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_kept_list(void *self);

#endif
