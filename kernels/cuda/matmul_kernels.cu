/* matmul_kernels.cu - owns the kernels that accompany products. Epilogues here are only for shapes
 * where cuBLASLt has none, so they are simple: one element for each thread. */
#include "kernels/cuda/own_kernels.h"

#include "kernels/cuda/pack.cuh"

namespace
{

static constexpr unsigned THREADS = 256, FINGERPRINT_BLOCKS = 1024;

template <class T>
__global__ void __launch_bounds__(THREADS)
    add_bias(const T *bias, bool relu, size_t count, size_t columns, T *y)
{
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;

    if (i >= count) {
        return;
    }
    float value = number<T>::load(y[i]);

    if (bias != nullptr) {
        value += number<T>::load(bias[i % columns]);
    }
    y[i] = number<T>::store(relu && value < 0 ? 0 : value);
}

/* The last step of splitmix64. */
__device__ inline uint64_t mix(uint64_t x)
{
    x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
    x = (x ^ x >> 27) * 0x94d049bb133111ebu;
    return x ^ x >> 31;
}

/* Integer sums are the same in any order. */
__global__ void __launch_bounds__(THREADS)
    fingerprint(const uint16_t *words, size_t count, uint64_t salt, unsigned long long *out)
{
    size_t step = (size_t)gridDim.x * THREADS;
    unsigned long long sum = 0;
    unsigned long long filled = 0;

    for (size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x; i < count; i += step) {
        sum += mix(mix(i + salt) + words[i]);
        filled += words[i] != 0;
    }
    atomicAdd(&out[0], sum);
    atomicAdd(&out[1], filled);
}

template <class T>
cudaError_t launch_bias(cudaStream_t stream, const void *bias, bool relu, size_t rows,
                        size_t columns, void *y)
{
    return CDDPI_LAUNCH(add_bias<T>, blocks_for(rows * columns, THREADS, 1), THREADS, 0, stream,
                        (const T *)bias, relu, rows * columns, columns, (T *)y);
}

} // namespace

cudaError_t cddpi_cuda_add_bias(cudaStream_t stream, cddp_type type, const void *bias, bool relu,
                                size_t rows, size_t columns, void *y)
{
    switch (type) {
    case CDDP_F32:
        return launch_bias<float>(stream, bias, relu, rows, columns, y);
    case CDDP_BF16:
        return launch_bias<__nv_bfloat16>(stream, bias, relu, rows, columns, y);
    case CDDP_F16:
        return launch_bias<__half>(stream, bias, relu, rows, columns, y);
    default:
        return cudaErrorInvalidValue;
    }
}

cudaError_t cddpi_cuda_fingerprint(cudaStream_t stream, const void *memory, size_t bytes,
                                   uint64_t salt, uint64_t out[2])
{
    size_t count = bytes / 2;
    unsigned blocks = blocks_for(count, THREADS, 1);

    if (count == 0) {
        return cudaSuccess;
    }
    return CDDPI_LAUNCH(fingerprint, blocks < FINGERPRINT_BLOCKS ? blocks : FINGERPRINT_BLOCKS,
                        THREADS, 0, stream, (const uint16_t *)memory, count, salt,
                        (unsigned long long *)out);
}
