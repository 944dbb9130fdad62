/* matmul_kernels.h - what matmul/matmul_linear.c needs beside cuBLASLt: what epilogues do where it
 * has none, and a fingerprint that tells whether two algorithms give the same bits. All in the
 * stream given. */
#ifndef CDDPI_KERNELS_CUDA_MATMUL_KERNELS_H
#define CDDPI_KERNELS_CUDA_MATMUL_KERNELS_H

#include <cddp/types.h>

#include <cuda_runtime_api.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/** y (rows x columns) += bias, then the relu if it is asked for; bias NULL: only that. */
cudaError_t cddpi_cuda_add_bias(cudaStream_t stream, cddp_type type, const void *bias, bool relu,
                                size_t rows, size_t columns, void *y);

/** Add a fingerprint of @p bytes (a multiple of 2) to out[0], and the number of 2-byte words that
 * are not 0 to out[1]. */
cudaError_t cddpi_cuda_fingerprint(cudaStream_t stream, const void *memory, size_t bytes,
                                   uint64_t salt, uint64_t out[2]);

#ifdef __cplusplus
}
#endif
#endif
