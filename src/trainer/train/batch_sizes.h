/* batch_sizes.h - calculates how the configuration's batches are divided, and how many steps are
 * left. */
#ifndef CDDPI_TRAIN_BATCH_SIZES_H
#define CDDPI_TRAIN_BATCH_SIZES_H

#include "train/config/config.h"
#include "train/cursor.h"

/** Whether a step's batch is cut into micro-batches by position, the same for any number of ranks,
 *  rather than each rank's share of it (train.micro_batch). If its size is CDDPI_AUTO, the
 * functions below have no answer until cddpi_trainer_choose_micro_batch() has chosen it; but
 *  cddpi_trainer_check_batch() finds it right. */
static inline bool cddpi_trainer_by_position(const struct cddpi_config *config)
{
    return config->train.micro_batch != 0;
}

/** The number of micro-batches in a step of @p samples, over all ranks. By position only. */
int64_t cddpi_trainer_all_micro_batches(const struct cddpi_config *config, int64_t samples);
/** The number of micro-batches in a replica's share of a step; by position, the most that any
 *  replica has. */
int64_t cddpi_trainer_micro_batches(const struct cddpi_config *config, int replicas);
/** Check that a batch can be divided among @p replicas of the model, and a share into
 *  micro-batches.
 *  @param among  What to call the replicas in the error text. The error is CDDP_ERR_CONFIG. */
CDDP_CHECKED cddp_status cddpi_trainer_check_batch(const struct cddpi_config *config, int replicas,
                                                   const char *among);
/** CDDP_ERR_CONFIG: a pipeline cannot have that many micro-batches under way. */
CDDP_CHECKED cddp_status cddpi_trainer_check_pipeline_batches(const struct cddpi_config *config);
/** The number of samples in a rank's largest micro-batch. */
int64_t cddpi_trainer_micro_batch(const struct cddpi_config *config, int replicas);
/** The number of samples in the smallest micro-batch of any rank in a step of @p batch samples; 0:
 *  there is none. */
int64_t cddpi_trainer_smallest_micro_batch(const struct cddpi_config *config, int replicas,
                                           int64_t batch);
/** Steps from @p cursor to the end of the last epoch. */
uint64_t cddpi_trainer_steps_left(const struct cddpi_config *config, uint64_t samples,
                                  const struct cddpi_cursor *cursor);

#endif
