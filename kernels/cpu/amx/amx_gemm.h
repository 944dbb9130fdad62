/* amx_gemm.h - float32 matrix products (GEMM) on AMX, whose tiles multiply bf16 at sixteen times
 * the rate of FMA.
 *
 * Every factor is split exactly into three bf16 parts, x = x1 + x2 + x3. Of the nine products of
 * parts, the six largest are summed in float32 (Henry, Tang and Heinecke, "Leveraging the bfloat16
 * artificial intelligence datatype for higher-precision computations", 2019). The omitted products
 * are below 2^-24 |a b| at worst, and usually below 2^-27. There are fewer roundings than with FMA,
 * because sums of 128 products are computed separately and then added. Compared with float64,
 * errors are a third to a half of sgemm's; where magnitudes differ widely, they are no larger than
 * sgemm's.
 *
 * Limits: the tiles treat denormal numbers as zero, so each product can lose up to 2^-126 (|a| +
 * |b| + 8); below |x| = 2^-109 this affects the third part. If a row of op(A) or a column of op(B)
 * contains Inf or NaN, results are NaN, where sgemm might give Inf. Results beyond 2^127 may become
 * Inf.
 *
 * An element's bits depend only on its row of op(A) and its column of op(B), so not on the rest of
 * the batch. */
#ifndef CDDPI_KERNELS_CPU_AMX_GEMM_H
#define CDDPI_KERNELS_CPU_AMX_GEMM_H

#include <stdbool.h>
#include <stddef.h>

/** Whether the CPU has AMX, the system lets this process use it, and this build supports it. Any
 *  thread. */
bool cddpi_amx_gemm_available(void);

/* C (m x n) = alpha op(A) op(B) [+ C] [+ bias, to each row] [, then max(C, 0)]. All matrices are
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
    bool adds;         /* adds C */
    bool relu;         /* max(C, 0); a NaN stays a NaN */
    const float *bias; /* n elements; NULL: no bias */
};

/** The size of the scratch memory in bytes, for any m. */
size_t cddpi_amx_gemm_scratch(size_t n, size_t k);
/** Only if cddpi_amx_gemm_available(); m, n and k are at least 1. */
void cddpi_amx_gemm(const struct cddpi_nn_matmul *matmul, void *scratch);

#endif
