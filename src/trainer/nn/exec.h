/* exec.h - runs the ops of a plan: forward, backward and parameter gradients, for model.c. */
#ifndef CDDPI_NN_EXEC_H
#define CDDPI_NN_EXEC_H

#include "nn/plan/model_plan.h"

/** Run the ops in order. The caller has set exec->plan, batch and result; the other fields are
 *  filled in. */
CDDP_CHECKED cddp_status cddpi_exec_forward(struct cddpi_exec *exec);
/** Run the ops' backward in reverse order. The caller has set exec->plan, scale, accumulate and
 *  ready. */
CDDP_CHECKED cddp_status cddpi_exec_backward(struct cddpi_exec *exec);

/** Compute the parameter gradients that backward has left, in reverse order. The caller has set
 *  exec->plan, accumulate and ready. */
CDDP_CHECKED cddp_status cddpi_exec_weights(struct cddpi_exec *exec);

/* The passes of a rank without samples: only ops that communicate with other ranks do something,
 * and gradients are zero. */
CDDP_CHECKED cddp_status cddpi_exec_idle_forward(struct cddpi_exec *exec);
CDDP_CHECKED cddp_status cddpi_exec_idle_backward(struct cddpi_exec *exec);
/** Report all gradients as complete. */
CDDP_CHECKED cddp_status cddpi_exec_idle_weights(struct cddpi_exec *exec);

#endif
