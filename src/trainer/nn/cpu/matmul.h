/* matmul.h - float32 matrix products for ops: on AMX, with factors split into bf16 parts, where
 * that is faster; otherwise by sgemm.
 *
 * The choice depends only on the sizes and the model, so every run makes the same one. */
#ifndef CDDPI_NN_CPU_MATMUL_H
#define CDDPI_NN_CPU_MATMUL_H

#include "kernels/cpu/amx/amx_gemm.h"
#include "nn/plan/model_plan.h"

/** C (m x n) = A (m x k) B (k x n), with the arguments in BLAS's order. The other members are zero;
 *  with a factor transposed, its stride is that of the matrix in memory. */
static inline struct cddpi_nn_matmul cddpi_matmul_of(size_t m, size_t n, size_t k, const float *a,
                                                     size_t lda, const float *b, size_t ldb,
                                                     float *c, size_t ldc)
{
    return (struct cddpi_nn_matmul){.m = m,
                                    .n = n,
                                    .k = k,
                                    .alpha = 1,
                                    .a = a,
                                    .lda = lda,
                                    .b = b,
                                    .ldb = ldb,
                                    .c = c,
                                    .ldc = ldc};
}

/** Whether this model's products may use AMX: train.products is "auto", the CPU has AMX, and
 *  products run on one thread ($CDDP_THREADS), or must have the same bits on any number of threads
 *  (@p invariant). */
bool cddpi_matmul_has_amx(enum cddpi_matmul_mode matmul, bool invariant);
/** Whether a product of m x n x k is large enough for AMX to be faster. */
bool cddpi_matmul_fits_amx(size_t m, size_t n, size_t k);

/* One product of an op. */
struct cddpi_planned_matmul {
    bool amx;
    /* buffer, if AMX is used: so many bytes for each of the threads that share the rows of C */
    int scratch;
    size_t scratch_bytes, threads;
};

/** Decide how a product of @p op's forward or backward is computed, and request its memory. */
struct cddpi_planned_matmul cddpi_matmul_plan(struct cddpi_plan *plan, int op, size_t m, size_t n,
                                              size_t k, enum cddpi_lifetime lifetime);
CDDP_CHECKED cddp_status cddpi_matmul_run(const struct cddpi_exec *exec,
                                          const struct cddpi_planned_matmul *plan,
                                          const struct cddpi_nn_matmul *matmul);

/** The same with scratch memory of the caller's; NULL: sgemm. With a bias or a relu, ldc must equal
 *  n. */
CDDP_CHECKED cddp_status cddpi_matmul(const struct cddpi_nn_matmul *matmul, void *scratch);

#endif
