/* run.h - the passes over a plan's ops, for model.c. */
#ifndef CDDPI_NN_RUN_H
#define CDDPI_NN_RUN_H

#include "nn/plan.h"

/** Run the ops in order; run->plan, batch and result are set, the rest is filled in. */
CDDP_CHECKED cddp_status cddpi_run_forward(struct cddpi_run *run);
/** Run the ops' backward in reverse order; run->plan, scale, accumulate and ready are set. */
CDDP_CHECKED cddp_status cddpi_run_backward(struct cddpi_run *run);

/* The passes of a rank without samples: only ops that talk to other ranks have something to do, and
 * gradients are zero. */
CDDP_CHECKED cddp_status cddpi_run_idle_forward(struct cddpi_run *run);
CDDP_CHECKED cddp_status cddpi_run_idle_backward(struct cddpi_run *run);

#endif
