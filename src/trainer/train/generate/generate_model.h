/* generate_model.h - generates text with a trainer's model. */
#ifndef CDDPI_TRAIN_GENERATE_MODEL_H
#define CDDPI_TRAIN_GENERATE_MODEL_H

#include "train/generate/generate.h"
#include "train/trainer.h"

/* During a run, texts show users how training progresses. Rank 0 generates while the other ranks
 * wait, so it must end before their deadline. */

/** Check that the configured text can be generated, and open what that needs. */
CDDP_CHECKED cddp_status cddpi_trainer_prepare_text(struct cddpi_trainer *trainer);
/** Generate a text, print it and add it to the metrics. Rank 0. */
CDDP_CHECKED cddp_status cddpi_trainer_write_text(struct cddpi_trainer *trainer);

#endif
