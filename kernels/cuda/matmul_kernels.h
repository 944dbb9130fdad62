/* matmul_kernels.h - what matmul/matmul_linear.c needs beside cuBLASLt: replacements for missing
 * epilogues, and a fingerprint that tells whether two algorithms give the same bits. Everything
 * runs in the given stream. */
#ifndef CDDPI_KERNELS_CUDA_MATMUL_KERNELS_H
#define CDDPI_KERNELS_CUDA_MATMUL_KERNELS_H

#include <cddp/types.h>

#include <cuda_runtime_api.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/** y (rows x columns) += bias, then optionally the relu; bias NULL: only the relu. */
cudaError_t cddpi_cuda_add_bias(cudaStream_t stream, cddp_type type, const void *bias, bool relu,
                                size_t rows, size_t columns, void *y);

/** Add a fingerprint of @p bytes (a multiple of 2) to out[0], and the number of nonzero 2-byte
 *  words to out[1]. */
cudaError_t cddpi_cuda_fingerprint(cudaStream_t stream, const void *memory, size_t bytes,
                                   uint64_t salt, uint64_t out[2]);

#ifdef __cplusplus
}
#endif
#endif
