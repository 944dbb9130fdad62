/* bench_matmul.h - a matrix product as layers compute it, for programs that time products
 * separately. */
#ifndef CDDP_TESTS_BENCH_BENCH_MATMUL_H
#define CDDP_TESTS_BENCH_BENCH_MATMUL_H

#include "nn/cpu/matmul.h"

/* C (m x n) = op(A) op(B), all dense. */
struct bench_matmul {
    struct cddpi_nn_matmul matmul;
    void *scratch;
};

void bench_matmul_init(struct bench_matmul *bench, bool transpose_a, bool transpose_b, size_t m,
                       size_t n, size_t k, const float *a, const float *b, float *c);
cddp_status bench_matmul_run(const struct bench_matmul *bench);
void bench_matmul_fini(struct bench_matmul *bench);

#endif
