/* report_run.h - the first and the last line of metrics. */
#ifndef CDDPI_TRAIN_REPORT_REPORT_RUN_H
#define CDDPI_TRAIN_REPORT_REPORT_RUN_H

#include "train/trainer.h"

/** How fast all devices together could be, for the MFU of all lines. Collective. */
CDDP_CHECKED cddp_status cddpi_trainer_find_peak_flops(struct cddpi_trainer *trainer);
/** What runs where. Rank 0. */
void cddpi_trainer_report_begin(struct cddpi_trainer *trainer);
/** How it ended. Rank 0. */
void cddpi_trainer_report_end(struct cddpi_trainer *trainer);

#endif
