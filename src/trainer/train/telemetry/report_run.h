/* report_run.h - writes the first and the last line of metrics. */
#ifndef CDDPI_TRAIN_REPORT_REPORT_RUN_H
#define CDDPI_TRAIN_REPORT_REPORT_RUN_H

#include "train/trainer.h"

/** Find the peak FLOP/s of all devices together, for the MFU in metrics. Collective. */
CDDP_CHECKED cddp_status cddpi_trainer_find_peak_flops(struct cddpi_trainer *trainer);
/** Write which devices and settings the run uses. Rank 0. */
void cddpi_trainer_report_begin(struct cddpi_trainer *trainer);
/** Write how the run ended. Rank 0. */
void cddpi_trainer_report_end(struct cddpi_trainer *trainer);

#endif
