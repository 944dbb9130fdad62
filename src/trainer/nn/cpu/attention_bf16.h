/* attention_bf16.h - the attention of nn/cpu/cpu_attention.h with bf16 factors, for CPUs with AMX.
 * Scores, probabilities and all sums are float32. Queries, keys, values, probabilities and their
 * gradients are rounded to bf16 when they are multiplied. */
#ifndef CDDPI_NN_CPU_ATTENTION_BF16_H
#define CDDPI_NN_CPU_ATTENTION_BF16_H

#include "nn/cpu/cpu_attention.h"
#include "nn/plan/model_plan.h"

struct cddpi_attention_bf16;

/** Plan it for op @p index.
 *  @param out  NULL: float32 is as fast here, or the heads are wider than 64. Destroy it even if
 *              this fails. */
CDDP_CHECKED cddp_status cddpi_attention_bf16_plan(struct cddpi_plan *plan, int index,
                                                   const struct cddpi_attention *shape,
                                                   struct cddpi_attention_bf16 **out);
void cddpi_attention_bf16_destroy(struct cddpi_attention_bf16 *state); /* accepts NULL */

/** The same as cddpi_attention_forward() and cddpi_attention_backward(). */
CDDP_CHECKED cddp_status cddpi_attention_bf16_forward(const struct cddpi_exec *exec,
                                                      struct cddpi_attention_bf16 *state,
                                                      const float *qkv, float *out, float *kept);
CDDP_CHECKED cddp_status cddpi_attention_bf16_backward(const struct cddpi_exec *exec,
                                                       struct cddpi_attention_bf16 *state,
                                                       const float *qkv, const float *out,
                                                       const float *grad_out, const float *kept,
                                                       float *grad_qkv);

#endif
