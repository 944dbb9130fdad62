/* linear_grad.h - the gradient of a linear layer's weight, grad^T x, as a planned product of
 * oneDNN. */
#ifndef CDDPI_NN_OPS_LINEAR_GRAD_H
#define CDDPI_NN_OPS_LINEAR_GRAD_H

#include "nn/plan/model_plan.h"

/** Plan it for op @p index, if oneDNN has a kernel that is faster than a plain product.
 *  @param out  Stays NULL otherwise. Release with cddpi_linear_grad_unplan(), even if this fails.
 */
CDDP_CHECKED cddp_status cddpi_linear_grad_plan(struct cddpi_plan *plan, int index, void **out);
void cddpi_linear_grad_unplan(void *state); /* accepts NULL */

/** Compute the gradient of the op's parameter 0 from its output's gradient. @p adds: add it to the
 *  present one. */
CDDP_CHECKED cddp_status cddpi_linear_grad_run(const struct cddpi_exec *exec, void *state,
                                               const float *grad, bool adds);

#endif
