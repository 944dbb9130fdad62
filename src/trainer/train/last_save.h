/* last_save.h - the checkpoint that a run ends with. */
#ifndef CDDPI_TRAIN_LAST_SAVE_H
#define CDDPI_TRAIN_LAST_SAVE_H

#include "train/trainer.h"

/** All ranks leave together once it is written, or fail if it cannot be. Collective. */
CDDP_CHECKED cddp_status cddpi_trainer_save_last(struct cddpi_trainer *trainer);

#endif
