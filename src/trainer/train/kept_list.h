/* kept_list.h - what the state of a run consists of (kept_state.h). */
#ifndef CDDPI_TRAIN_KEPT_LIST_H
#define CDDPI_TRAIN_KEPT_LIST_H

#include "train/trainer.h"

/** Hash what a state must have in common with this run for this run to go on from it. */
uint64_t cddpi_kept_layout(const struct cddpi_trainer *trainer);

/** Fill the lists of the trainer @p self, whose optimizer has its final place; on a device, copies
 *  are made. See struct cddpi_keep_owner.
 *  @return CDDP_OK, CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_kept_list(void *self);

#endif
