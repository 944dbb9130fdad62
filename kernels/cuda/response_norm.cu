/* response_norm.cu - owns local response normalisation: each value is divided by a power of the sum
 * of squares over neighbouring channels, which are adjacent in memory.
 *
 * A thread computes one value and reads its whole window; threads with overlapping windows find it
 * in the cache. The gradient has two passes: the first writes a float32 for each value, and the
 * second sums a window of those. So an element of dx depends on dy only at its own place, and dx
 * may overwrite dy. */
#include "kernels/cuda/vector.cuh"

namespace
{
enum { THREADS = 256, MOST_BLOCKS = 16 * 132 };

struct response {
    size_t count; /* of all values */
    int channels, before, behind;
    float scale, beta, offset;
};

/* As in kernels/cpu/cpu_response_norm.c: the usual exponent by square roots. */
__device__ __forceinline__ float power(float x, float beta)
{
    if (beta == 0.75f) {
        float root = sqrtf(x);

        return 1.0f / (root * sqrtf(root));
    }
    return powf(x, -beta);
}

/* The divisor of value @p i, in channel @p c, before the power. */
template <class T>
__device__ __forceinline__ float below(const T *x, size_t i, int c, const response &norm)
{
    int first = c < norm.before ? 0 : c - norm.before;
    int last = c + norm.behind < norm.channels ? c + norm.behind : norm.channels - 1;
    const T *row = x + (i - (size_t)c);
    float sum = 0;

    for (int k = first; k <= last; k++) {
        float near = to_float(row[k]);

        sum += near * near;
    }
    return norm.offset + norm.scale * sum;
}

template <class T> __global__ void forward(const T *x, const response norm, T *y)
{
    size_t step = (size_t)gridDim.x * blockDim.x;

    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < norm.count; i += step) {
        float d = below(x, i, (int)(i % (size_t)norm.channels), norm);

        y[i] = from_float<T>(to_float(x[i]) * power(d, norm.beta));
    }
}

/* terms = dy x d^(-beta - 1) */
template <class T>
__global__ void make_terms(const T *dy, const T *x, const response norm, float *terms)
{
    size_t step = (size_t)gridDim.x * blockDim.x;

    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < norm.count; i += step) {
        float d = below(x, i, (int)(i % (size_t)norm.channels), norm);

        terms[i] = to_float(dy[i]) * power(d, norm.beta) * to_float(x[i]) / d;
    }
}

/* dx = dy d^-beta - 2 scale beta x times the sum of the terms of those channels whose window
 * contains x. */
template <class T>
__global__ void add_terms(const T *dy, const T *x, const float *terms, const response norm, T *dx)
{
    size_t step = (size_t)gridDim.x * blockDim.x;

    for (size_t i = (size_t)blockIdx.x * blockDim.x + threadIdx.x; i < norm.count; i += step) {
        int c = (int)(i % (size_t)norm.channels);
        int first = c < norm.behind ? 0 : c - norm.behind;
        int last = c + norm.before < norm.channels ? c + norm.before : norm.channels - 1;
        const float *row = terms + (i - (size_t)c);
        float made = to_float(dy[i]) * power(below(x, i, c, norm), norm.beta);
        float sum = 0;

        for (int k = first; k <= last; k++) {
            sum += row[k];
        }
        dx[i] = from_float<T>(made - 2.0f * norm.scale * norm.beta * to_float(x[i]) * sum);
    }
}

response of_shape(const struct cddpi_cuda_response *shape)
{
    return {shape->rows * (size_t)shape->channels,
            shape->channels,
            shape->size / 2,
            shape->size - 1 - shape->size / 2,
            shape->alpha / (float)shape->size,
            shape->beta,
            shape->offset};
}

unsigned blocks_of(size_t count)
{
    size_t blocks = cddpi_ceil(count, THREADS);

    return blocks < MOST_BLOCKS ? (unsigned)blocks : (unsigned)MOST_BLOCKS;
}

template <class T>
cddp_status response_norm_as(cddpi_device *device, const response &norm, const void *x, void *y)
{
    return CDDPI_STARTED(device, "response_norm",
                         CDDPI_LAUNCH(forward<T>, blocks_of(norm.count), THREADS, 0,
                                      cddpi_cuda_compute_stream(device), static_cast<const T *>(x),
                                      norm, static_cast<T *>(y)));
}

cddp_status response_norm(cddpi_device *device, const struct cddpi_cuda_response *shape,
                          const void *x, void *y)
{
    response norm = of_shape(shape);

    return norm.count == 0 ? CDDP_OK
                           : CDDPI_BY_TYPE(shape->type, response_norm_as, device, norm, x, y);
}

template <class T>
cddp_status response_norm_grad_as(cddpi_device *device, const response &norm, const void *dy,
                                  const void *x, float *terms, void *dx)
{
    cudaStream_t stream = cddpi_cuda_compute_stream(device);
    const T *grad = static_cast<const T *>(dy);
    const T *from = static_cast<const T *>(x);
    cudaError_t error = CDDPI_LAUNCH(make_terms<T>, blocks_of(norm.count), THREADS, 0, stream, grad,
                                     from, norm, terms);

    if (error == cudaSuccess) {
        error = CDDPI_LAUNCH(add_terms<T>, blocks_of(norm.count), THREADS, 0, stream, grad, from,
                             static_cast<const float *>(terms), norm, static_cast<T *>(dx));
    }
    return CDDPI_STARTED(device, "response_norm_grad", error);
}

cddp_status response_norm_grad(cddpi_device *device, const struct cddpi_cuda_response *shape,
                               const void *dy, const void *x, float *scratch, void *dx)
{
    response norm = of_shape(shape);

    return norm.count == 0 ? CDDP_OK
                           : CDDPI_BY_TYPE(shape->type, response_norm_grad_as, device, norm, dy, x,
                                           scratch, dx);
}
} // namespace

void cddpi_cuda_fill_response_norm(struct cddpi_cuda_kernels *out)
{
    out->response_norm = response_norm;
    out->response_norm_grad = response_norm_grad;
}
