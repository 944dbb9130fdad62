/* bench_matmul.c - a matrix product as layers compute it, for programs that time products
 * separately. */
#include "bench/bench_matmul.h"

#include <stdlib.h>

void bench_matmul_init(struct bench_matmul *bench, bool transpose_a, bool transpose_b, size_t m,
                       size_t n, size_t k, const float *a, const float *b, float *c)
{
    bool amx = cddpi_matmul_has_amx(CDDPI_MATMUL_AUTO, false) && cddpi_matmul_fits_amx(m, n, k);

    bench->matmul = (struct cddpi_nn_matmul){.m = m,
                                             .n = n,
                                             .k = k,
                                             .transpose_a = transpose_a,
                                             .transpose_b = transpose_b,
                                             .alpha = 1,
                                             .a = a,
                                             .lda = transpose_a ? m : k,
                                             .b = b,
                                             .ldb = transpose_b ? k : n,
                                             .c = c,
                                             .ldc = n};
    bench->scratch = amx ? malloc(cddpi_amx_gemm_scratch(n, k)) : NULL;
}

cddp_status bench_matmul_run(const struct bench_matmul *bench)
{
    return cddpi_matmul(&bench->matmul, bench->scratch);
}

void bench_matmul_fini(struct bench_matmul *bench)
{
    free(bench->scratch);
}
