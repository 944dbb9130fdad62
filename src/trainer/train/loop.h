/* loop.h - runs the training loop. */
#ifndef CDDPI_TRAIN_LOOP_H
#define CDDPI_TRAIN_LOOP_H

#include "train/trainer.h"

/** Train until the last step or a signal, evaluate, and write the last checkpoint. Collective. */
CDDP_CHECKED cddp_status cddpi_trainer_run(struct cddpi_trainer *trainer);

#endif
