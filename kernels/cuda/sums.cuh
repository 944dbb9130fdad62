/* sums.cuh - sums over rows in two steps: each block of a kernel adds up some rows and leaves a
 * part, then the parts are added up in their order. How many parts there are depends on the shape
 * alone, so the bits do, too. */
#ifndef CDDPI_CUDA_SUMS_CUH
#define CDDPI_CUDA_SUMS_CUH

#include "kernels/cuda/vector.cuh"

/** first[c] = or += the sum over p of parts[p * columns + c] for c < @p split, second[c - split]
 *  for the others (split == columns: no second). */
cudaError_t cddpi_cuda_sum_parts(cudaStream_t stream, const float *parts, size_t count,
                                 size_t columns, size_t split, bool add, float *first,
                                 float *second);

#endif
