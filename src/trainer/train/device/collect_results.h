/* collect_results.h - collects the results of steps on a device, one step later. */
#ifndef CDDPI_TRAIN_DEVICE_COLLECT_RESULTS_H
#define CDDPI_TRAIN_DEVICE_COLLECT_RESULTS_H

#include "train/trainer.h"

/** On a device: wait for the results of all steps but the last @p keep ones, and add them to the
 *  interval. Does nothing on the processor.
 *  @param out_norm  The last one's gradient norm; may be NULL. */
CDDP_CHECKED cddp_status cddpi_trainer_collect_results(struct cddpi_trainer *trainer, int keep,
                                                       double *out_norm);

#endif
