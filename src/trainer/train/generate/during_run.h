/* during_run.h - generates sample texts during training. */
#ifndef CDDPI_TRAIN_GENERATE_DURING_RUN_H
#define CDDPI_TRAIN_GENERATE_DURING_RUN_H

#include "train/trainer.h"

/** Check that the configured text can be generated, and open what that needs. */
CDDP_CHECKED cddp_status cddpi_trainer_prepare_text(struct cddpi_trainer *trainer);
/** Generate a text, print it and add it to the metrics. Rank 0. */
CDDP_CHECKED cddp_status cddpi_trainer_write_text(struct cddpi_trainer *trainer);

#endif
