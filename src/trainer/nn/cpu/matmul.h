/* matmul.h - float32 matrix products of ops: on AMX, in parts of bf16, where that is faster; else
 * sgemm.
 *
 * Which it is depends on the sizes alone (and on the model), so that each run does the same. */
#ifndef CDDPI_NN_CPU_MATMUL_H
#define CDDPI_NN_CPU_MATMUL_H

#include "kernels/cpu/amx/amx_gemm.h"
#include "nn/plan/model_plan.h"

/** Whether this model's products may use AMX: train.products is "auto", the processor has it,
 *  and products have one thread ($CDDP_THREADS). */
bool cddpi_matmul_has_amx(enum cddpi_matmul_mode matmul);
/** Whether a product of m x n x k is large enough for it. */
bool cddpi_matmul_fits_amx(size_t m, size_t n, size_t k);

/* One product of an op. */
struct cddpi_planned_matmul {
    bool amx;
    int scratch; /* buffer, where on AMX */
};

/** Decide how a product of @p op's forward or backward is made, and ask for its memory. */
CDDP_CHECKED cddp_status cddpi_matmul_plan(struct cddpi_plan *plan, int op, size_t m, size_t n,
                                           size_t k, enum cddpi_lifetime lifetime,
                                           struct cddpi_planned_matmul *out);
CDDP_CHECKED cddp_status cddpi_matmul_run(const struct cddpi_exec *exec,
                                          const struct cddpi_planned_matmul *plan,
                                          const struct cddpi_nn_matmul *matmul);

/** The same with the caller's own scratch; NULL: sgemm. A bias or a relu needs ldc == n. */
CDDP_CHECKED cddp_status cddpi_matmul(const struct cddpi_nn_matmul *matmul, void *scratch);

#endif
