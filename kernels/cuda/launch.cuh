/* launch.cuh - how kernels are started, and what every file of kernels needs. Kernels are compiled
 * by nvcc for the module, and by a C++ compiler with tests/fake_cuda/cuda_on_cpu.h (included before
 * anything else) for the emulated one. So they keep to what both know: blocks and threads,
 * __syncthreads(), shuffles and votes of warps, __shared__, atomics on integers, bf16 and fp16. */
#ifndef CDDPI_CUDA_LAUNCH_CUH
#define CDDPI_CUDA_LAUNCH_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#ifdef __CUDACC__
/* Start @p kernel (in parentheses if it has template arguments); the cudaError_t of that. */
#define CDDPI_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                               \
    (kernel<<<(grid), (block), (shared_bytes), (stream)>>>(__VA_ARGS__), cudaGetLastError())
/* In a kernel: @p name points at the shared memory that the launch asked for, 16-byte aligned. */
#define CDDPI_DYNAMIC_SHARED(type, name)                                                           \
    extern __shared__ __align__(16) unsigned char cddpi_dynamic_shared[];                          \
    type *name = reinterpret_cast<type *>(cddpi_dynamic_shared)
#define CDDPI_UNROLL _Pragma("unroll")
#elif !defined(CDDPI_CUDA_ON_CPU)
#error "without nvcc, include tests/fake_cuda/cuda_on_cpu.h first (-include)"
#endif

enum { CDDPI_WARP = 32 };

#endif
