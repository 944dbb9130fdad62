/* exact_sum.cuh - sums without rounding (base/exact_sum.h) in device memory. Atomics of integers
 * may come in any order and give the same parts. */
#ifndef CDDPI_CUDA_EXACT_SUM_CUH
#define CDDPI_CUDA_EXACT_SUM_CUH

#define CDDPI_EXACT_INLINE static __host__ __device__ inline
#include "base/exact_sum.h"
#include "kernels/cuda/launch.cuh"

static __device__ __forceinline__ void exact_add_atomic(int64_t *part, int64_t value)
{
    atomicAdd((unsigned long long *)part, (unsigned long long)value);
}

/* Add a finite number to parts that other threads add to. */
static __device__ inline void exact_add_shared(int64_t *parts, double value)
{
    cddpi_exact_term term = cddpi_exact_term_of(value);

    exact_add_atomic(&parts[CDDPI_EXACT_TERMS], 1);
    for (int i = 0; i < 3; i++) {
        exact_add_atomic(&parts[term.first + i], term.at[i]);
    }
}

/* Add whatever number to a sum that no other thread adds to, of fewer than 2^31 terms. */
static __device__ inline void exact_add(struct cddpi_exact_sum *sum, double value)
{
    cddpi_exact_term term;

    if (value - value != 0) { /* it is infinite, or a NaN */
        sum->parts[value > 0   ? CDDPI_EXACT_POSITIVE
                   : value < 0 ? CDDPI_EXACT_NEGATIVE
                               : CDDPI_EXACT_NAN]++;
        return;
    }
    term = cddpi_exact_term_of(value);
    sum->parts[CDDPI_EXACT_TERMS]++;
    for (int i = 0; i < 3; i++) {
        sum->parts[term.first + i] += term.at[i];
    }
}

/* Copy parts. All threads of the block call it. */
static __device__ __forceinline__ void exact_copy(const int64_t *from, int64_t *to)
{
    for (int i = (int)threadIdx.x; i < CDDPI_EXACT_PARTS; i += (int)blockDim.x) {
        to[i] = from[i];
    }
    __syncthreads();
}

#endif
