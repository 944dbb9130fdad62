/* during_run.h - texts that the model writes while it is trained. */
#ifndef CDDPI_TRAIN_GENERATE_DURING_RUN_H
#define CDDPI_TRAIN_GENERATE_DURING_RUN_H

#include "train/trainer.h"

/** Whether text can be generated as the configuration says, and what that needs. */
CDDP_CHECKED cddp_status cddpi_trainer_prepare_text(struct cddpi_trainer *trainer);
/** Let the model write a text, shown and put into the metrics. Rank 0. */
CDDP_CHECKED cddp_status cddpi_trainer_write_text(struct cddpi_trainer *trainer);

#endif
