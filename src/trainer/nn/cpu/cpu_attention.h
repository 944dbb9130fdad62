/* cpu_attention.h - causal multi-head attention over packed queries, keys and values.
 *
 * No T x T matrix is stored. A head's scores are computed for a block of queries against the keys
 * up to it, and recomputed in backward from the logarithm of each row's sum (Dao et al.,
 * FlashAttention, 2022; Dao, FlashAttention-2, 2023). So memory grows with T, not with its square,
 * and whole blocks above the diagonal are skipped. The order of sums depends on the shape alone. */
#ifndef CDDPI_NN_CPU_ATTENTION_H
#define CDDPI_NN_CPU_ATTENTION_H

#include "nn/plan/model_plan.h"

/* Queries, keys and values are samples x context rows of 3 E elements, E = heads x width: first a
 * row's queries, then its keys, then its values, with head h at columns h x width. Outputs and
 * their gradients are rows of E. */
struct cddpi_attention {
    size_t samples, context, heads, width;
    bool amx; /* products may use AMX */
};

/** Whether blocks are large enough for AMX to be faster. */
bool cddpi_attention_gains_by_amx(const struct cddpi_attention *shape);
/** The size of the scratch memory in float32 elements, for forward as well as backward. */
size_t cddpi_attention_scratch(const struct cddpi_attention *shape);
/** Elements of float32 that forward saves for backward. */
size_t cddpi_attention_kept(const struct cddpi_attention *shape);

/** out = softmax(Q K' / sqrt(width)) V for each head. @p kept NULL: no backward follows. */
CDDP_CHECKED cddp_status cddpi_attention_forward(const struct cddpi_attention *shape,
                                                 const float *qkv, float *out, float *kept,
                                                 float *scratch);
/** The gradient of @p qkv from that of @p out. No two arrays overlap. */
CDDP_CHECKED cddp_status cddpi_attention_backward(const struct cddpi_attention *shape,
                                                  const float *qkv, const float *out,
                                                  const float *grad_out, const float *kept,
                                                  float *grad_qkv, float *scratch);

/* attention_bf16.c: the same with bf16 factors, for CPUs with AMX. Scores, probabilities and all
 * sums are float32. Queries, keys, values, probabilities and their gradients are rounded to bf16
 * when they are multiplied. */

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
