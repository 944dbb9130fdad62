/* collect_results.h - results of steps on a device, a step later. */
#ifndef CDDPI_TRAIN_DEVICE_COLLECT_RESULTS_H
#define CDDPI_TRAIN_DEVICE_COLLECT_RESULTS_H

#include "train/trainer.h"

/** On a device: wait for the results of all steps but the last @p keep ones, and add them to the
 *  interval. @p out_norm: of the last of them; NULL: not wanted. Nothing on the processor. */
CDDP_CHECKED cddp_status cddpi_trainer_collect_results(struct cddpi_trainer *trainer, int keep,
                                                       double *out_norm);

#endif
