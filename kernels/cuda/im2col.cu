/* im2col.cu - owns windows of channels-last images as rows of a matrix, and back: what convolution
 * consists of beside products where cuDNN has no engine. Correct, not fast: each element is written
 * and read kernel x kernel times. */
#include "kernels/cuda/im2col.h"

#include "kernels/cuda/vector.cuh"

namespace
{
enum { THREADS = 256, MOST_BLOCKS = 16 * 132 };

struct window {
    int channels, height, width, out_height, out_width, kernel, stride, padding;
};

/* A vector of W channels at place (image, y, x) of the output and (ky, kx) of the window. */
template <class T, int W> __global__ void im2col(const T *x, T *columns, size_t vectors, window at)
{
    int across = at.channels / W;
    size_t step = (size_t)gridDim.x * blockDim.x;

    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < vectors; i += step) {
        size_t rest = i / (size_t)across;
        int channel = (int)(i % (size_t)across) * W;
        int kx = (int)(rest % (size_t)at.kernel);
        int ky = (int)(rest / (size_t)at.kernel % (size_t)at.kernel);
        size_t place = rest / (size_t)(at.kernel * at.kernel);
        int column = (int)(place % (size_t)at.out_width) * at.stride + kx - at.padding;
        int row = (int)(place / (size_t)at.out_width % (size_t)at.out_height) * at.stride + ky -
                  at.padding;
        size_t image = place / (size_t)(at.out_width * at.out_height);
        float values[W] = {0};

        if (row >= 0 && row < at.height && column >= 0 && column < at.width) {
            wide<T, W>::load(x + ((image * at.height + row) * at.width + column) * at.channels +
                                 channel,
                             values);
        }
        wide<T, W>::store(columns + i * W, values);
    }
}

/* Which output looked at input @p i through element @p k of its window; -1: none. */
__device__ __forceinline__ int looked_from(int i, int k, int out, const window &at)
{
    int from = i + at.padding - k;

    return from >= 0 && from % at.stride == 0 && from / at.stride < out ? from / at.stride : -1;
}

template <class T, int W> __global__ void col2im(const T *columns, T *x, size_t vectors, window at)
{
    int across = at.channels / W;
    size_t row_length = (size_t)at.kernel * at.kernel * at.channels;
    size_t step = (size_t)gridDim.x * blockDim.x;

    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < vectors; i += step) {
        size_t place = i / (size_t)across;
        int channel = (int)(i % (size_t)across) * W;
        int column = (int)(place % (size_t)at.width);
        int row = (int)(place / (size_t)at.width % (size_t)at.height);
        size_t image = place / (size_t)(at.width * at.height);
        float sum[W] = {0};

        for (int ky = 0; ky < at.kernel; ky++) {
            int out_row = looked_from(row, ky, at.out_height, at);

            for (int kx = 0; out_row >= 0 && kx < at.kernel; kx++) {
                int out_column = looked_from(column, kx, at.out_width, at);
                float values[W];

                if (out_column < 0) {
                    continue;
                }
                wide<T, W>::load(
                    columns +
                        ((image * at.out_height + out_row) * at.out_width + out_column) *
                            row_length +
                        (size_t)(ky * at.kernel + kx) * at.channels + channel,
                    values);
                CDDPI_UNROLL
                for (int j = 0; j < W; j++) {
                    sum[j] += values[j];
                }
            }
        }
        wide<T, W>::store(x + i * W, sum);
    }
}

template <class T> __global__ void add_float(const T *from, size_t count, bool add, float *to)
{
    size_t step = (size_t)gridDim.x * blockDim.x;

    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        to[i] = (add ? to[i] : 0) + to_float(from[i]);
    }
}

window window_of(const struct cddpi_cuda_conv *shape)
{
    return {shape->channels,
            shape->height,
            shape->width,
            cddpi_cuda_conv_extent(shape->height, shape),
            cddpi_cuda_conv_extent(shape->width, shape),
            shape->kernel,
            shape->stride,
            shape->padding};
}

unsigned blocks_of(size_t count)
{
    size_t blocks = cddpi_ceil(count, THREADS);

    return blocks < MOST_BLOCKS ? (unsigned)blocks : (unsigned)MOST_BLOCKS;
}

template <class T, int W>
cudaError_t run(cudaStream_t stream, const struct cddpi_cuda_conv *shape, const void *from,
                void *to, bool back)
{
    window at = window_of(shape);
    size_t places = (size_t)shape->count * (size_t)(back ? at.height : at.out_height) *
                    (size_t)(back ? at.width : at.out_width);
    size_t each = back ? 1 : (size_t)at.kernel * (size_t)at.kernel;
    size_t vectors = places * each * (size_t)(at.channels / W);

    return back ? CDDPI_LAUNCH((col2im<T, W>), blocks_of(vectors), THREADS, 0, stream,
                               static_cast<const T *>(from), static_cast<T *>(to), vectors, at)
                : CDDPI_LAUNCH((im2col<T, W>), blocks_of(vectors), THREADS, 0, stream,
                               static_cast<const T *>(from), static_cast<T *>(to), vectors, at);
}

template <class T>
cddp_status convert(struct cddpi_device *device, const struct cddpi_cuda_conv *shape,
                    const void *from, void *to, bool back)
{
    cudaStream_t stream = cddpi_cuda_compute_stream(device);
    cudaError_t error = shape->channels % packed<T>::N == 0
                            ? run<T, packed<T>::N>(stream, shape, from, to, back)
                            : run<T, 1>(stream, shape, from, to, back);

    return CDDPI_STARTED(device, "windows of images", error);
}

template <class T>
cddp_status add_all(struct cddpi_device *device, const void *from, size_t count, bool add,
                    float *to)
{
    return CDDPI_STARTED(device, "sum of gradients",
                         CDDPI_LAUNCH(add_float<T>, blocks_of(count), THREADS, 0,
                                      cddpi_cuda_compute_stream(device),
                                      static_cast<const T *>(from), count, add, to));
}
} // namespace

int cddpi_cuda_conv_extent(int input, const struct cddpi_cuda_conv *shape)
{
    return (input + 2 * shape->padding - shape->kernel) / shape->stride + 1;
}

cddp_status cddpi_cuda_im2col(struct cddpi_device *device, const struct cddpi_cuda_conv *shape,
                              const void *x, void *columns)
{
    return CDDPI_BY_TYPE(shape->type, convert, device, shape, x, columns, false);
}

cddp_status cddpi_cuda_col2im(struct cddpi_device *device, const struct cddpi_cuda_conv *shape,
                              const void *columns, void *x)
{
    return CDDPI_BY_TYPE(shape->type, convert, device, shape, columns, x, true);
}

cddp_status cddpi_cuda_add_float(struct cddpi_device *device, cddp_type type, const void *from,
                                 size_t count, bool add, float *to)
{
    return CDDPI_BY_TYPE(type, add_all, device, from, count, add, to);
}
