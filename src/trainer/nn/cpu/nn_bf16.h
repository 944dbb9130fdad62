/* nn_bf16.h - matrix products of bf16 factors, with float32 sums and results. */
#ifndef CDDPI_NN_CPU_BF16_H
#define CDDPI_NN_CPU_BF16_H

#include "nn/cpu/dnnl.h"

/** Ask oneDNN which bf16 kernels it has on this CPU, and set model->bf16. */
CDDP_CHECKED cddp_status cddpi_bf16_probe(struct cddpi_model *model);

/** Implements cddpi_model_precision_note(). */
const char *cddpi_bf16_note(const struct cddpi_model *model);

/* C (m x n) = A (m x k) B (k x n): A row-major, B packed (kernels/cpu/bf16.h). */
struct cddpi_bf16_matmul {
    size_t m, n, k;
    bool bias;     /* adds n float32 numbers to each row */
    unsigned post; /* of enum cddpi_post */
};

/** Plan it for @p op's forward or backward. Its arguments are A, B, C and the bias, if there is
 *  one.
 *  @return CDDP_ERR_UNAVAILABLE: oneDNN has no fast kernel for it. */
CDDP_CHECKED cddp_status cddpi_bf16_matmul_init(struct cddpi_primitive *primitive,
                                                struct cddpi_dnnl *dnnl,
                                                const struct cddpi_bf16_matmul *matmul,
                                                struct cddpi_plan *plan, int op,
                                                enum cddpi_lifetime lifetime);

#endif
