/* cpu_attention.h - causal attention of several heads over packed queries, keys and values.
 *
 * Nothing of T x T is kept: a head's scores are made for a block of queries against the keys up to
 * it, and again in backward from the logarithm of each row's sum (Dao et al., FlashAttention,
 * 2022; Dao, FlashAttention-2, 2023). So memory grows with T, not with its square, and products
 * above the diagonal are left out in blocks. Sums have an order that depends on the shape alone. */
#ifndef CDDPI_NN_CPU_ATTENTION_H
#define CDDPI_NN_CPU_ATTENTION_H

#include <cddp/status.h>

#include <stdbool.h>
#include <stddef.h>

/* Queries, keys and values: samples x context rows of 3 E elements, E = heads x width; first all
 * queries of a row, then its keys, then its values, head h at columns h x width. Outputs and their
 * gradients: rows of E. */
struct cddpi_attention {
    size_t samples, context, heads, width;
    bool amx; /* products may be made on AMX */
};

/** Whether blocks are large enough for products on AMX to be faster. */
bool cddpi_attention_gains_by_amx(const struct cddpi_attention *shape);
/** Elements of float32 to work in, the same for forward and backward. */
size_t cddpi_attention_scratch(const struct cddpi_attention *shape);
/** Elements of float32 that forward keeps for backward. */
size_t cddpi_attention_kept(const struct cddpi_attention *shape);

/** out = softmax(Q K' / sqrt(width)) V, head by head. @p kept NULL: there will be no backward. */
CDDP_CHECKED cddp_status cddpi_attention_forward(const struct cddpi_attention *shape,
                                                 const float *qkv, float *out, float *kept,
                                                 float *scratch);
/** The gradient of @p qkv from that of @p out; overlaps nothing. */
CDDP_CHECKED cddp_status cddpi_attention_backward(const struct cddpi_attention *shape,
                                                  const float *qkv, const float *out,
                                                  const float *grad_out, const float *kept,
                                                  float *grad_qkv, float *scratch);

#endif
