/* global_pool.cu - owns means over whole channels-last images, and their gradients. */
#include "kernels/cuda/vector.cuh"

namespace
{
enum { BLOCK = 256, AHEAD = 4 };

unsigned blocks_of(size_t vectors)
{
    return (unsigned)cddpi_ceil(vectors, BLOCK);
}

/* A thread adds up its channels over the area of an image, with AHEAD vectors in flight. */
template <class T, int W>
__global__ void __launch_bounds__(BLOCK)
    mean_forward(const T *__restrict__ x, size_t vectors, size_t area, size_t channels,
                 T *__restrict__ out)
{
    size_t v = (size_t)blockIdx.x * BLOCK + threadIdx.x;
    size_t groups = channels / W;
    const T *from = x + v / groups * area * channels + v % groups * W;
    float sum[W] = {};

    if (v >= vectors) {
        return;
    }
    for (size_t base = 0; base < area; base += AHEAD) {
        typename wide<T, W>::raw words[AHEAD];

        CDDPI_UNROLL
        for (int i = 0; i < AHEAD; i++) {
            words[i] = base + (size_t)i < area
                           ? wide<T, W>::fetch(from + (base + (size_t)i) * channels)
                           : typename wide<T, W>::raw{};
        }
        add_vectors<T, W>(words, sum);
    }
    CDDPI_UNROLL
    for (int j = 0; j < W; j++) {
        sum[j] /= (float)area;
    }
    wide<T, W>::store(out + v * W, sum);
}

template <class T, int W>
__global__ void __launch_bounds__(BLOCK)
    mean_backward(const T *__restrict__ dy, size_t vectors, size_t area, size_t channels,
                  float share, T *__restrict__ dx)
{
    size_t v = (size_t)blockIdx.x * BLOCK + threadIdx.x;
    size_t groups = channels / W;
    float gradient[W];

    if (v >= vectors) {
        return;
    }
    wide<T, W>::load(dy + v / groups / area * channels + v % groups * W, gradient);
    CDDPI_UNROLL
    for (int j = 0; j < W; j++) {
        gradient[j] *= share;
    }
    wide<T, W>::store(dx + v * W, gradient);
}

template <class T, int W>
cudaError_t start_mean(cddpi_device *device, bool backward, const void *in, size_t count,
                       size_t area, size_t channels, void *out)
{
    cudaStream_t stream = cddpi_cuda_compute_stream(device);
    size_t vectors = count * (channels / W) * (backward ? area : 1);
    const T *from = static_cast<const T *>(in);
    T *to = static_cast<T *>(out);

    if (vectors == 0 || area == 0) {
        return cudaSuccess;
    }
    return backward ? CDDPI_LAUNCH((mean_backward<T, W>), blocks_of(vectors), BLOCK, 0, stream,
                                   from, vectors, area, channels, 1.0f / (float)area, to)
                    : CDDPI_LAUNCH((mean_forward<T, W>), blocks_of(vectors), BLOCK, 0, stream, from,
                                   vectors, area, channels, to);
}

template <class T>
cddp_status mean_as(cddpi_device *device, bool backward, const void *in, size_t count, size_t area,
                    size_t channels, void *out)
{
    constexpr int N = packed<T>::N;
    cudaError_t error = channels % N == 0
                            ? start_mean<T, N>(device, backward, in, count, area, channels, out)
                            : start_mean<T, 1>(device, backward, in, count, area, channels, out);

    return CDDPI_STARTED(device, "global_pool", error);
}

cddp_status global_pool(cddpi_device *device, cddp_type type, const void *x, size_t count,
                        size_t area, size_t channels, void *out)
{
    return CDDPI_BY_TYPE(type, mean_as, device, false, x, count, area, channels, out);
}

cddp_status global_pool_grad(cddpi_device *device, cddp_type type, const void *dy, size_t count,
                             size_t area, size_t channels, void *dx)
{
    return CDDPI_BY_TYPE(type, mean_as, device, true, dy, count, area, channels, dx);
}
} // namespace

void cddpi_cuda_fill_global_pool(struct cddpi_cuda_kernels *out)
{
    out->global_pool = global_pool;
    out->global_pool_grad = global_pool_grad;
}
