/* exec.h - the passes over a plan's ops, for model.c. */
#ifndef CDDPI_NN_EXEC_H
#define CDDPI_NN_EXEC_H

#include "nn/plan/model_plan.h"

/** Run the ops in order; exec->plan, batch and result are set, the rest is filled in. */
CDDP_CHECKED cddp_status cddpi_exec_forward(struct cddpi_exec *exec);
/** Run the ops' backward in reverse order; exec->plan, scale, accumulate and ready are set. */
CDDP_CHECKED cddp_status cddpi_exec_backward(struct cddpi_exec *exec);

/** Make the gradients of parameters that backward has left, in reverse order; exec->plan,
 * accumulate and ready are set. */
CDDP_CHECKED cddp_status cddpi_exec_weights(struct cddpi_exec *exec);

/* The passes of a rank without samples: only ops that talk to other ranks have something to do, and
 * gradients are zero. */
CDDP_CHECKED cddp_status cddpi_exec_idle_forward(struct cddpi_exec *exec);
CDDP_CHECKED cddp_status cddpi_exec_idle_backward(struct cddpi_exec *exec);
/** Tell that all gradients are there. */
CDDP_CHECKED cddp_status cddpi_exec_idle_weights(struct cddpi_exec *exec);

#endif
