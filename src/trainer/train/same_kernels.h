/* same_kernels.h - warns if ranks compute with different arithmetic, where bits must not depend on
 * which rank computes what. */
#ifndef CDDPI_TRAIN_SAME_KERNELS_H
#define CDDPI_TRAIN_SAME_KERNELS_H

#include "train/trainer.h"

/** With train.micro_batch, compare the ranks' arithmetic, and let rank 0 warn. Collective. */
CDDP_CHECKED cddp_status cddpi_trainer_compare_kernels(struct cddpi_trainer *trainer);

#endif
