/* batch_sizes.h - how a configuration's batches are divided, and how many of them a run has. */
#ifndef CDDPI_TRAIN_BATCH_SIZES_H
#define CDDPI_TRAIN_BATCH_SIZES_H

#include "train/config/config.h"
#include "train/cursor.h"

/** That a batch can be divided among so many ranks, and a rank's share into micro-batches:
 *  CDDP_ERR_CONFIG. */
CDDP_CHECKED cddp_status cddpi_trainer_check_batch(const struct cddpi_config *config,
                                                   int world_size);
/** Samples of a rank's largest micro-batch. */
int64_t cddpi_trainer_micro_batch(const struct cddpi_config *config, int world_size);
/** Steps from @p cursor to the end of the last epoch. */
uint64_t cddpi_trainer_steps_left(const struct cddpi_config *config, uint64_t samples,
                                  const struct cddpi_cursor *cursor);

#endif
