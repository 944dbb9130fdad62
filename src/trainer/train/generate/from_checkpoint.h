/* from_checkpoint.h - implements cddp-train --generate. */
#ifndef CDDPI_TRAIN_GENERATE_FROM_CHECKPOINT_H
#define CDDPI_TRAIN_GENERATE_FROM_CHECKPOINT_H

#include "train/config/config.h"

/** Print @p prompt and its continuation by the model of the run's newest checkpoint (or of
 *  train.resume, or model.weights). Needs no group. */
CDDP_CHECKED cddp_status cddpi_trainer_generate(const struct cddpi_config *config,
                                                const char *prompt, FILE *file);

#endif
