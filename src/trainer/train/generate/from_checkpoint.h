/* from_checkpoint.h - cddp-train --generate. */
#ifndef CDDPI_TRAIN_GENERATE_FROM_CHECKPOINT_H
#define CDDPI_TRAIN_GENERATE_FROM_CHECKPOINT_H

#include "train/config/config.h"

/** Print @p prompt and what the model of the run's newest checkpoint (or that of train.resume, or
 *  model.weights) adds to it. Without a group. */
CDDP_CHECKED cddp_status cddpi_trainer_generate(const struct cddpi_config *config,
                                                const char *prompt, FILE *file);

#endif
