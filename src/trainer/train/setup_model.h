/* setup_model.h - the model of a configuration, and what trains it. */
#ifndef CDDPI_TRAIN_SETUP_MODEL_H
#define CDDPI_TRAIN_SETUP_MODEL_H

#include "train/trainer.h"

/** What the configuration says about the model of @p data; valid as long as both. */
struct cddpi_model_spec cddpi_trainer_model_spec(const struct cddpi_config *config,
                                                 const struct cddpi_dataset *data);
/** What is wrong about the model's own numbers, as far as it shows without the data. */
CDDP_CHECKED cddp_status cddpi_trainer_check_model(const struct cddpi_config *config);
/** Options of the reducer; hook, order and text stay borrowed. */
cddp_ddp_options cddpi_trainer_ddp_options(const struct cddpi_config *config,
                                           const struct cddpi_model *model, const char *text);

/* In this order, after the group and the data: */

/** The model, with model.weights on rank 0. */
CDDP_CHECKED cddp_status cddpi_trainer_build_model(struct cddpi_trainer *trainer);
/** The reducer. Collective. */
CDDP_CHECKED cddp_status cddpi_trainer_build_ddp(struct cddpi_trainer *trainer);
/** Let the models read their parameters and copies of them where the reducer has put them, so that
 *  ranks can update parts of them. */
CDDP_CHECKED cddp_status cddpi_trainer_bind_params(struct cddpi_trainer *trainer);
CDDP_CHECKED cddp_status cddpi_trainer_build_optimizer(struct cddpi_trainer *trainer);
/** What is needed at the end of steps on a device. */
CDDP_CHECKED cddp_status cddpi_trainer_build_device(struct cddpi_trainer *trainer);

#endif
