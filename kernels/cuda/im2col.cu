/* im2col.cu - copies windows of channels-last images to rows of a matrix, which turns convolutions
 * into products where cuDNN has no engine. Correct, not fast: each element is written and read
 * kernel x kernel times. The gradient of an input is also a convolution, over the outputs that read
 * each of its positions; so the product sums it in float32, and rounds once. */
#include "kernels/cuda/own_kernels.h"

#include "kernels/cuda/vector.cuh"

namespace
{
enum { THREADS = 256, MOST_BLOCKS = 16 * 132 };

struct im2col_window {
    int channels, height, width, outputs, out_height, out_width, kernel, stride, padding;
};

/* A vector of W channels at place (image, y, x) of the output and (ky, kx) of the window. */
template <class T, int W>
__global__ void im2col(const T *x, T *columns, size_t vectors, im2col_window at)
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

/* Which output reads input @p i through element @p k of its window; -1: none. */
__device__ __forceinline__ int looked_from(int i, int k, int out, const im2col_window &at)
{
    int from = i + at.padding - k;

    return from >= 0 && from % at.stride == 0 && from / at.stride < out ? from / at.stride : -1;
}

/* A vector of the W outputs that read place (image, y, x) of the input through (ky, kx). */
template <class T, int W>
__global__ void outputs_of(const T *dy, T *columns, size_t vectors, im2col_window at)
{
    int across = at.outputs / W;
    size_t step = (size_t)gridDim.x * blockDim.x;

    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < vectors; i += step) {
        size_t rest = i / (size_t)across;
        int output = (int)(i % (size_t)across) * W;
        int kx = (int)(rest % (size_t)at.kernel);
        int ky = (int)(rest / (size_t)at.kernel % (size_t)at.kernel);
        size_t place = rest / (size_t)(at.kernel * at.kernel);
        int column = looked_from((int)(place % (size_t)at.width), kx, at.out_width, at);
        int row = looked_from((int)(place / (size_t)at.width % (size_t)at.height), ky,
                              at.out_height, at);
        size_t image = place / (size_t)(at.width * at.height);
        float values[W] = {0};

        if (row >= 0 && column >= 0) {
            wide<T, W>::load(
                dy + ((image * at.out_height + row) * at.out_width + column) * at.outputs + output,
                values);
        }
        wide<T, W>::store(columns + i * W, values);
    }
}

/* to[channel][place][output] = weight[output][place][channel] */
template <class T>
__global__ void transpose_filters(const T *weight, T *to, size_t count, im2col_window at)
{
    size_t places = (size_t)at.kernel * at.kernel;
    size_t step = (size_t)gridDim.x * blockDim.x;

    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        size_t output = i % (size_t)at.outputs;
        size_t place = i / (size_t)at.outputs % places;
        size_t channel = i / ((size_t)at.outputs * places);

        to[i] = weight[(output * places + place) * at.channels + channel];
    }
}

template <class T> __global__ void add_float(const T *from, size_t count, bool add, float *to)
{
    size_t step = (size_t)gridDim.x * blockDim.x;

    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += step) {
        to[i] = (add ? to[i] : 0) + to_float(from[i]);
    }
}

im2col_window window_of(const struct cddpi_cuda_conv *shape)
{
    return {shape->channels,
            shape->height,
            shape->width,
            shape->outputs,
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

/* @p back: the outputs that read each input; otherwise the inputs that each output reads. */
template <class T, int W>
cudaError_t run(cudaStream_t stream, const struct cddpi_cuda_conv *shape, const void *from,
                void *to, bool back)
{
    im2col_window at = window_of(shape);
    size_t places = (size_t)shape->count * (size_t)(back ? at.height : at.out_height) *
                    (size_t)(back ? at.width : at.out_width);
    size_t each = (size_t)at.kernel * (size_t)at.kernel;
    size_t vectors = places * each * (size_t)((back ? at.outputs : at.channels) / W);

    return back ? CDDPI_LAUNCH((outputs_of<T, W>), blocks_of(vectors), THREADS, 0, stream,
                               static_cast<const T *>(from), static_cast<T *>(to), vectors, at)
                : CDDPI_LAUNCH((im2col<T, W>), blocks_of(vectors), THREADS, 0, stream,
                               static_cast<const T *>(from), static_cast<T *>(to), vectors, at);
}

template <class T>
cddp_status windows(struct cddpi_device *device, const struct cddpi_cuda_conv *shape,
                    const void *from, void *to, bool back)
{
    cudaStream_t stream = cddpi_cuda_compute_stream(device);
    cudaError_t error = (back ? shape->outputs : shape->channels) % packed<T>::N == 0
                            ? run<T, packed<T>::N>(stream, shape, from, to, back)
                            : run<T, 1>(stream, shape, from, to, back);

    return CDDPI_STARTED(device, "windows of images", error);
}

template <class T>
cddp_status transpose(struct cddpi_device *device, const struct cddpi_cuda_conv *shape,
                      const void *weight, void *to)
{
    size_t count = (size_t)shape->outputs * (size_t)shape->kernel * (size_t)shape->kernel *
                   (size_t)shape->channels;

    return CDDPI_STARTED(device, "turned filters",
                         CDDPI_LAUNCH(transpose_filters<T>, blocks_of(count), THREADS, 0,
                                      cddpi_cuda_compute_stream(device),
                                      static_cast<const T *>(weight), static_cast<T *>(to), count,
                                      window_of(shape)));
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
    return CDDPI_BY_TYPE(shape->type, windows, device, shape, x, columns, false);
}

cddp_status cddpi_cuda_outputs_of_inputs(struct cddpi_device *device,
                                         const struct cddpi_cuda_conv *shape, const void *dy,
                                         void *columns)
{
    return CDDPI_BY_TYPE(shape->type, windows, device, shape, dy, columns, true);
}

cddp_status cddpi_cuda_transpose_filters(struct cddpi_device *device,
                                         const struct cddpi_cuda_conv *shape, const void *weight,
                                         void *transposed)
{
    return CDDPI_BY_TYPE(shape->type, transpose, device, shape, weight, transposed);
}

cddp_status cddpi_cuda_add_float(struct cddpi_device *device, cddp_type type, const void *from,
                                 size_t count, bool add, float *to)
{
    return CDDPI_BY_TYPE(type, add_all, device, from, count, add, to);
}
