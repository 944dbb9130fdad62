/* trace_steps.h - which steps of a run are traced: train.trace, else CDDP_TRACE. */
#ifndef CDDPI_TRAIN_REPORT_TRACE_STEPS_H
#define CDDPI_TRAIN_REPORT_TRACE_STEPS_H

#include "train/trainer.h"

/** Whether train.trace can be read; CDDP_ERR_CONFIG. */
CDDP_CHECKED cddp_status cddpi_trainer_check_trace(const struct cddpi_config *config);
/** Trace what the configuration says, once the run has its folder. */
CDDP_CHECKED cddp_status cddpi_trainer_open_trace(struct cddpi_trainer *trainer);
/** The next step begins. Collective: where a trace begins, ranks measure how their clocks differ.
 */
CDDP_CHECKED cddp_status cddpi_trainer_trace_step(struct cddpi_trainer *trainer);

#endif
