/* train_setup.h - builds a trainer from its configuration, runs it, and destroys it. */
#ifndef CDDPI_TRAIN_SETUP_H
#define CDDPI_TRAIN_SETUP_H

#include "train/trainer.h"

/** Join the group, open the data, build the model, and resume an earlier run if configured.
 *  Collective.
 *  @param config  Borrowed, outlives the trainer, which replaces an "auto" by what it chooses.
 *  @param out     Also set on failure, as far as it was made, so that the caller can notify the
 *                 other ranks. Release with cddpi_trainer_destroy(), which accepts NULL. */
CDDP_CHECKED cddp_status cddpi_trainer_create(struct cddpi_config *config,
                                              struct cddpi_trainer **out);
/** @return False: a thread is left that writes a checkpoint, and its part of the trainer, until the
 *          process ends. */
bool cddpi_trainer_destroy(struct cddpi_trainer *trainer);

/** Check the configuration for @p world_size ranks, as far as possible without joining a group or
 *  reading data: cheap enough to run before ranks are started. */
CDDP_CHECKED cddp_status cddpi_trainer_validate(const struct cddpi_config *config, int world_size);

/** Train until the last step or a signal, evaluate, and write the last checkpoint. Collective. */
CDDP_CHECKED cddp_status cddpi_trainer_run(struct cddpi_trainer *trainer);

#endif
