/* linear_op.h - a linear layer's products that linear_op.c leaves to others: with bf16 factors
 * (linear_bf16.c; results and sums are float32), and the gradient of the weight, grad^T x, as a
 * planned product of oneDNN (linear_grad.c). */
#ifndef CDDPI_NN_OPS_LINEAR_OP_H
#define CDDPI_NN_OPS_LINEAR_OP_H

#include "nn/plan/model_plan.h"

struct cddpi_linear_bf16;

/** Plan the products of op @p index, with its bias and relu.
 *  @param out  Release with cddpi_linear_bf16_unplan(), even if this fails. */
CDDP_CHECKED cddp_status cddpi_linear_bf16_plan(struct cddpi_plan *plan, int index, void **out);
void cddpi_linear_bf16_unplan(void *state); /* accepts NULL */
/** Whether forward saves everything that backward needs from the input. */
bool cddpi_linear_bf16_keeps_input(const void *state);

CDDP_CHECKED cddp_status cddpi_linear_bf16_forward(const struct cddpi_exec *exec, void *state);
/** Convert the output's gradient for cddpi_linear_bf16_weights() and cddpi_linear_bf16_input().
 *  @p sums: the bias's gradient, to which the column sums are added; NULL: not needed. */
void cddpi_linear_bf16_grad(const struct cddpi_exec *exec, void *state, const float *grad,
                            float *sums);
CDDP_CHECKED cddp_status cddpi_linear_bf16_weights(const struct cddpi_exec *exec, void *state);
CDDP_CHECKED cddp_status cddpi_linear_bf16_input(const struct cddpi_exec *exec, void *state,
                                                 float *out);

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
