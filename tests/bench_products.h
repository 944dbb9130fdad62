/* bench_products.h - a product as the layers make it, for programs that time products alone. */
#ifndef CDDP_TESTS_BENCH_PRODUCTS_H
#define CDDP_TESTS_BENCH_PRODUCTS_H

#include "nn/products.h"

#include <stdlib.h>

/* C (m x n) = op(A) op(B), all dense. */
struct bench_product {
    struct cddpi_nn_product product;
    void *scratch;
};

static inline void bench_product_init(struct bench_product *bench, bool transpose_a,
                                      bool transpose_b, size_t m, size_t n, size_t k,
                                      const float *a, const float *b, float *c)
{
    bool tiles = cddpi_products_have_tiles(CDDPI_PRODUCTS_AUTO) &&
                 cddpi_products_fit_tiles(m, n, k);

    bench->product = (struct cddpi_nn_product){.m = m,
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
    bench->scratch = tiles ? malloc(cddpi_nn_tiles_scratch(n, k)) : NULL;
}

static inline cddp_status bench_product_run(const struct bench_product *bench)
{
    return cddpi_product(&bench->product, bench->scratch);
}

static inline void bench_product_fini(struct bench_product *bench)
{
    free(bench->scratch);
}

#endif
