/* launch.cuh - starts kernels, and holds what every file of kernels needs. Kernels are compiled by
 * nvcc for the module, and by a C++ compiler with tests/fake_cuda/cuda_on_cpu.h (included first)
 * for the emulated module. So they use only what both support: blocks and threads, __syncthreads(),
 * shuffles and votes of warps, __shared__, atomics on integers, bf16 and fp16. */
#ifndef CDDPI_CUDA_LAUNCH_CUH
#define CDDPI_CUDA_LAUNCH_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include "kernels/cuda/kernels_module.h"

#ifdef __CUDACC__
#define CDDPI_START(kernel, grid, block, shared_bytes, stream, ...)                                \
    (kernel<<<(grid), (block), (shared_bytes), (stream)>>>(__VA_ARGS__), cudaGetLastError())
/* In a kernel: @p name points to the shared memory that the launch requested, 16-byte aligned. */
#define CDDPI_DYNAMIC_SHARED(type, name)                                                           \
    extern __shared__ __align__(16) unsigned char cddpi_dynamic_shared[];                          \
    type *name = reinterpret_cast<type *>(cddpi_dynamic_shared)
#define CDDPI_UNROLL _Pragma("unroll")
#elif !defined(CDDPI_CUDA_ON_CPU)
#error "without nvcc, include tests/fake_cuda/cuda_on_cpu.h first (-include)"
#endif

/* Start @p kernel (in parentheses if it has template arguments); returns the cudaError_t. Every
 * kernel that is started anywhere is in the list that a device loads when it is opened. */
#define CDDPI_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                               \
    ((void)&cddpi_listed<(kernel)>::entry,                                                         \
     CDDPI_START(kernel, grid, block, shared_bytes, stream, __VA_ARGS__))

template <auto KERNEL> struct cddpi_listed {
    static cddpi_cuda_kernel_entry entry;
};
/* initialised when the module is opened, before any of its functions is called */
template <auto KERNEL>
cddpi_cuda_kernel_entry cddpi_listed<KERNEL>::entry(reinterpret_cast<const void *>(KERNEL));

enum { CDDPI_WARP = 32 };

#endif
