/* linear_grad.h - the gradient of a linear layer's weight, grad^T x, as a product planned ahead. */
#ifndef CDDPI_NN_OPS_LINEAR_GRAD_H
#define CDDPI_NN_OPS_LINEAR_GRAD_H

#include "nn/plan/model_plan.h"

/** Plan it for op @p index, where oneDNN has a kernel that beats a plain product.
 *  @param out  Stays NULL where it has none. Released by cddpi_linear_grad_unplan(), also when this
 *              fails. */
CDDP_CHECKED cddp_status cddpi_linear_grad_plan(struct cddpi_plan *plan, int index, void **out);
void cddpi_linear_grad_unplan(void *state); /* accepts NULL */

/** The gradient of the op's parameter 0 from that of its output; added to what is there if
 *  @p adds. */
CDDP_CHECKED cddp_status cddpi_linear_grad_run(const struct cddpi_exec *exec, void *state,
                                               const float *grad, bool adds);

#endif
