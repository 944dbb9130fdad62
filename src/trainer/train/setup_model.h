/* setup_model.h - builds the model of a configuration, its reducer, its optimizer and its data
 * loaders. */
#ifndef CDDPI_TRAIN_SETUP_MODEL_H
#define CDDPI_TRAIN_SETUP_MODEL_H

#include "train/trainer.h"

/** Check the model's own numbers, as far as possible without the data. */
CDDP_CHECKED cddp_status cddpi_trainer_check_model(const struct cddpi_config *config);
/** The options of the reducer; hook, order and text are borrowed. */
cddp_ddp_options cddpi_trainer_ddp_options(const struct cddpi_config *config,
                                           const struct cddpi_model *model, const char *text);

/* Call these in this order, after the group and the data: */

/** Build the model, with model.weights loaded on rank 0. */
CDDP_CHECKED cddp_status cddpi_trainer_build_model(struct cddpi_trainer *trainer);
/** Build the reducer. Collective. */
CDDP_CHECKED cddp_status cddpi_trainer_build_ddp(struct cddpi_trainer *trainer);
/** Make the models read their parameters, and the copies of them, where the reducer has put them,
 *  so that ranks can update shards of them. */
CDDP_CHECKED cddp_status cddpi_trainer_bind_params(struct cddpi_trainer *trainer);
CDDP_CHECKED cddp_status cddpi_trainer_build_optimizer(struct cddpi_trainer *trainer);
/** Make what the end of a step on a device needs. */
CDDP_CHECKED cddp_status cddpi_trainer_build_device(struct cddpi_trainer *trainer);
/** Make the samplers and loaders of the open data. */
CDDP_CHECKED cddp_status cddpi_trainer_build_data(struct cddpi_trainer *trainer);

#endif
