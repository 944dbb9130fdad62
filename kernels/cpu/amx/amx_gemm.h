/* amx_gemm.h - float32 matrix products (GEMM) on AMX, whose tiles multiply bf16 at sixteen times
 * the rate of FMA.
 *
 * Every factor is the sum of three bf16 parts, x = x1 + x2 + x3, exactly; of the nine products of
 * parts the six largest are summed, in float32 (Henry, Tang and Heinecke, "Leveraging the bfloat16
 * artificial intelligence datatype for higher-precision computations", 2019). What is left out is
 * below 2^-24 |a b| at worst, 2^-27 as a rule, and there are fewer roundings than with FMA: sums of
 * 128 products are made apart and then added. Against float64, errors are a third to a half of
 * sgemm's, and no larger than those where magnitudes differ widely.
 *
 * Limits: the tiles take denormal numbers as zero, so that up to 2^-126 (|a| + |b| + 8) is lost of
 * each product; below |x| = 2^-109 that reaches the third part. A row of op(A) or column of op(B)
 * that holds an infinity or a NaN gives NaN, where sgemm might give an infinity. Results beyond
 * 2^127 may come out as infinite.
 *
 * An element's bits depend on its row of op(A), its column of op(B) and nothing else, so not on
 * what else is in a batch. */
#ifndef CDDPI_KERNELS_CPU_AMX_GEMM_H
#define CDDPI_KERNELS_CPU_AMX_GEMM_H

#include <stdbool.h>
#include <stddef.h>

/** Whether the processor has AMX, the system lets this process use it, and the build knows it.
 *  Any thread. */
bool cddpi_amx_gemm_available(void);

/* C (m x n) = alpha op(A) op(B) [+ C] [+ bias, to each row] [, negative ones made 0]. All are
 * row-major with rows `lda`, `ldb` and `ldc` elements apart; C overlaps neither factor. */
struct cddpi_nn_matmul {
    size_t m, n, k;
    bool transpose_a, transpose_b;
    float alpha;
    const float *a;
    size_t lda;
    const float *b;
    size_t ldb;
    float *c;
    size_t ldc;
    bool adds;         /* to C */
    bool relu;         /* a NaN stays one */
    const float *bias; /* n; NULL: none */
};

/** Bytes to work in, whatever m is. */
size_t cddpi_amx_gemm_scratch(size_t n, size_t k);
/** Only where cddpi_amx_gemm_available(); m, n and k are at least 1. */
void cddpi_amx_gemm(const struct cddpi_nn_matmul *matmul, void *scratch);

#endif
