/* train_setup.h - putting a trainer together from its configuration, and taking it apart. */
#ifndef CDDPI_TRAIN_SETUP_H
#define CDDPI_TRAIN_SETUP_H

#include "train/trainer.h"

/** Join the group, open the data, build the model, and take up an earlier run if the configuration
 * says so. Collective.
 *  @param config  Borrowed, outlives the trainer.
 *  @param out     Set also on failure, as far as it was made (so that the other ranks can be told);
 *  release with cddpi_trainer_destroy(), which accepts NULL. */
CDDP_CHECKED cddp_status cddpi_trainer_create(const struct cddpi_config *config,
                                              struct cddpi_trainer **out);
void cddpi_trainer_destroy(struct cddpi_trainer *trainer);

/** What can be wrong with the configuration for @p world_size ranks, as far as it shows without
 * joining a group or reading data: cheap enough to check before ranks are started. */
CDDP_CHECKED cddp_status cddpi_trainer_validate(const struct cddpi_config *config, int world_size);

/** Make the group of @p options on the device that the configuration names, or where the engine of
 *  @p trainer wants it: group, device, rank and world_size of @p trainer. */
CDDP_CHECKED cddp_status cddpi_trainer_join(struct cddpi_trainer *trainer,
                                            cddp_group_options *options);

#endif
