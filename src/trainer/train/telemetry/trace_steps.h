/* trace_steps.h - decides which steps are traced: by train.trace, else by CDDP_TRACE. */
#ifndef CDDPI_TRAIN_REPORT_TRACE_STEPS_H
#define CDDPI_TRAIN_REPORT_TRACE_STEPS_H

#include "train/trainer.h"

/** Check the syntax of train.trace. CDDP_ERR_CONFIG: it is wrong. */
CDDP_CHECKED cddp_status cddpi_trainer_check_trace(const struct cddpi_config *config);
/** Prepare to trace the configured steps. Call it after the run has its folder. */
CDDP_CHECKED cddp_status cddpi_trainer_open_trace(struct cddpi_trainer *trainer);
/** The next step begins. Collective: at the start of a trace, ranks measure their clock offsets. */
CDDP_CHECKED cddp_status cddpi_trainer_trace_step(struct cddpi_trainer *trainer);

#endif
