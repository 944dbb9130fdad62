/* last_save.h - writes the checkpoint at the end of a run. */
#ifndef CDDPI_TRAIN_LAST_SAVE_H
#define CDDPI_TRAIN_LAST_SAVE_H

#include "train/trainer.h"

/** Write it. All ranks return together when it is written, or all fail. Collective. */
CDDP_CHECKED cddp_status cddpi_trainer_save_last(struct cddpi_trainer *trainer);

#endif
