/* sums.cuh - sums over rows in two steps: each block of a kernel sums some rows and writes a
 * partial sum, then the partial sums are added in order. Their number depends on the shape alone,
 * and so do the bits. */
#ifndef CDDPI_CUDA_SUMS_CUH
#define CDDPI_CUDA_SUMS_CUH

#include "kernels/cuda/vector.cuh"

/** first[c] = or += the sum over p of parts[p * columns + c] for c < @p split; the other columns go
 *  to second[c - split] (split == columns: there is no second). */
cudaError_t cddpi_cuda_sum_parts(cudaStream_t stream, const float *parts, size_t count,
                                 size_t columns, size_t split, bool add, float *first,
                                 float *second);

#endif
