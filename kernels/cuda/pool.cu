/* pool.cu - owns pools over windows, channels last.
 *
 * A thread has one place of an image and a vector of channels there, so neighbours read and write
 * whole lines. Forward reads each input once from memory (windows overlap in L1 and L2) and writes
 * the outputs. Backward gathers: each input looks at the windows that it lies in (4 at most for 3 x
 * 3 by 2), so nothing is added from two threads; of a maximum it reads on only where it equals the
 * output. x, y, dy and dx pass the memory once: 1.03 GB for 256 images of 112 x 112 x 64 in bf16,
 * 0.21 ms at 4.8 TB/s; forward 0.51 GB. */
#include "kernels/cuda/vector.cuh"

namespace
{
enum { BLOCK = 256 };

struct window {
    int height, width, channels; /* of the input */
    int out_height, out_width;
    int kernel, stride, padding;
    float share;      /* of an input in an average: 1 / kernel^2; padding counts as zeros */
    unsigned vectors; /* threads with work */
};

/* Which place of an image of height x width, and which channels there. */
struct place {
    unsigned image;
    int row, column, channel;
};

/* 32 bits do for everything but the last product: start() sees to it. */
__device__ __forceinline__ place place_of(unsigned v, int height, int width, int groups, int step)
{
    place p;

    p.channel = (int)(v % (unsigned)groups) * step;
    v /= (unsigned)groups;
    p.column = (int)(v % (unsigned)width);
    v /= (unsigned)width;
    p.row = (int)(v % (unsigned)height);
    p.image = v / (unsigned)height;
    return p;
}

/* Element 0 of the vector at (row, column) of a place's image. */
__device__ __forceinline__ size_t offset(const place &p, int row, int column, int height, int width,
                                         int channels)
{
    unsigned at = (p.image * (unsigned)height + (unsigned)row) * (unsigned)width + (unsigned)column;

    return (size_t)at * (unsigned)channels + (unsigned)p.channel;
}

__device__ __forceinline__ int larger(int a, int b)
{
    return a > b ? a : b;
}
__device__ __forceinline__ int smaller(int a, int b)
{
    return a < b ? a : b;
}

/* A NaN wins and stays. */
__device__ __forceinline__ bool beats(float x, float best)
{
    return x > best || x != x;
}

template <class T, int W, bool AVERAGE>
__global__ void __launch_bounds__(BLOCK)
    pool_forward(const window w, const T *__restrict__ x, T *__restrict__ y)
{
    unsigned v = blockIdx.x * BLOCK + threadIdx.x;
    place p = place_of(v, w.out_height, w.out_width, w.channels / W, W);
    int first_row = p.row * w.stride - w.padding;
    int first_column = p.column * w.stride - w.padding;
    float best[W];

    if (v >= w.vectors) {
        return;
    }
    CDDPI_UNROLL
    for (int j = 0; j < W; j++) {
        best[j] = AVERAGE ? 0 : -INFINITY;
    }
    for (int r = larger(first_row, 0); r < smaller(first_row + w.kernel, w.height); r++) {
        for (int c = larger(first_column, 0); c < smaller(first_column + w.kernel, w.width); c++) {
            float element[W];

            wide<T, W>::load(x + offset(p, r, c, w.height, w.width, w.channels), element);
            CDDPI_UNROLL
            for (int j = 0; j < W; j++) {
                if (AVERAGE) {
                    best[j] += element[j];
                } else if (best[j] == best[j] && beats(element[j], best[j])) {
                    best[j] = element[j];
                }
            }
        }
    }
    CDDPI_UNROLL
    for (int j = 0; j < W && AVERAGE; j++) {
        best[j] *= w.share;
    }
    wide<T, W>::store(y + (size_t)v * W, best);
}

/* The windows (of outputs) that an input's row or column lies in: first to last. */
__device__ __forceinline__ int first_window(int at, const window &w)
{
    int past = at + w.padding - w.kernel; /* the last that does not lie in window 0 .. */

    return past < 0 ? 0 : past / w.stride + 1;
}
__device__ __forceinline__ int last_window(int at, const window &w, int count)
{
    return smaller((at + w.padding) / w.stride, count - 1);
}

/* A value is the window's maximum, and equal to it means both or none are a NaN. */
__device__ __forceinline__ bool same(float a, float b)
{
    return a == b || (a != a && b != b);
}

/* Of the elements that equal the maximum (bits of wins), those that no earlier one of the window
 * equals. */
template <class T, int W>
__device__ __forceinline__ unsigned only_first(const window &w, const place &p, int window_row,
                                               int window_column, const T *__restrict__ x,
                                               const float (&most)[W], unsigned wins)
{
    int top = window_row * w.stride - w.padding;
    int left = window_column * w.stride - w.padding;

    for (int r = larger(top, 0); r <= p.row; r++) {
        int end = r < p.row ? smaller(left + w.kernel, w.width) : p.column;

        for (int c = larger(left, 0); c < end; c++) {
            float earlier[W];

            wide<T, W>::load(x + offset(p, r, c, w.height, w.width, w.channels), earlier);
            CDDPI_UNROLL
            for (int j = 0; j < W; j++) {
                wins &= ~((unsigned)same(earlier[j], most[j]) << j);
            }
        }
    }
    return wins;
}

/* What the outputs' window gives to the input at @p p. */
template <class T, int W, bool AVERAGE>
__device__ __forceinline__ void add_window(const window &w, const place &p, int row, int column,
                                           const T *__restrict__ dy, const T *__restrict__ x,
                                           const T *__restrict__ y, const float (&mine)[W],
                                           float (&sum)[W])
{
    size_t at = offset(p, row, column, w.out_height, w.out_width, w.channels);
    float gradient[W];

    wide<T, W>::load(dy + at, gradient);
    if (AVERAGE) {
        CDDPI_UNROLL
        for (int j = 0; j < W; j++) {
            sum[j] += gradient[j] * w.share;
        }
    } else {
        float most[W];
        unsigned wins = 0;

        wide<T, W>::load(y + at, most);
        CDDPI_UNROLL
        for (int j = 0; j < W; j++) {
            wins |= (unsigned)same(mine[j], most[j]) << j;
        }
        if (wins != 0) {
            wins = only_first<T, W>(w, p, row, column, x, most, wins);
        }
        CDDPI_UNROLL
        for (int j = 0; j < W; j++) {
            sum[j] += (wins >> j & 1) != 0 ? gradient[j] : 0;
        }
    }
}

template <class T, int W, bool AVERAGE>
__global__ void __launch_bounds__(BLOCK, 3)
    pool_backward(const window w, const T *__restrict__ dy, const T *__restrict__ x,
                  const T *__restrict__ y, T *__restrict__ dx)
{
    unsigned v = blockIdx.x * BLOCK + threadIdx.x;
    place p = place_of(v, w.height, w.width, w.channels / W, W);
    float mine[W] = {};
    float sum[W] = {};

    if (v >= w.vectors) {
        return;
    }
    if (!AVERAGE) {
        wide<T, W>::load(x + (size_t)v * W, mine);
    }
    for (int r = first_window(p.row, w); r <= last_window(p.row, w, w.out_height); r++) {
        for (int c = first_window(p.column, w); c <= last_window(p.column, w, w.out_width); c++) {
            add_window<T, W, AVERAGE>(w, p, r, c, dy, x, y, mine, sum);
        }
    }
    wide<T, W>::store(dx + (size_t)v * W, sum);
}

window describe(const cddpi_cuda_pool &shape)
{
    window w = {shape.height, shape.width,  shape.channels, 0, 0,
                shape.kernel, shape.stride, shape.padding,  0, 0};

    w.out_height = (shape.height + 2 * shape.padding - shape.kernel) / shape.stride + 1;
    w.out_width = (shape.width + 2 * shape.padding - shape.kernel) / shape.stride + 1;
    w.share = 1.0f / (float)(shape.kernel * shape.kernel);
    return w;
}

unsigned blocks_of(size_t vectors)
{
    return (unsigned)cddpi_ceil(vectors, BLOCK);
}

/* Places x vectors of channels, of the input and of the output, must be counted by 32 bits. */
template <class T> cddp_status check(cddpi_device *device, const cddpi_cuda_pool &shape)
{
    constexpr int N = packed<T>::N;
    window w = describe(shape);
    size_t in = (size_t)shape.height * (size_t)shape.width;
    size_t out = (size_t)w.out_height * (size_t)w.out_width;
    size_t vectors = (size_t)shape.channels / (shape.channels % N == 0 ? N : 1);

    if ((in > out ? in : out) * (size_t)shape.count * vectors <= UINT32_MAX - BLOCK) {
        return CDDP_OK;
    }
    return cddpi_cuda_fail(device, CDDP_ERR_ARGUMENT,
                           "pool: %d images of %d x %d with %d channels are too many at once",
                           shape.count, shape.height, shape.width, shape.channels);
}

template <class T, int W>
cudaError_t start_forward(cddpi_device *device, const cddpi_cuda_pool &shape, const void *x,
                          void *y)
{
    cudaStream_t stream = cddpi_cuda_compute_stream(device);
    window w = describe(shape);
    const T *from = static_cast<const T *>(x);
    T *to = static_cast<T *>(y);

    w.vectors = (unsigned)shape.count * w.out_height * w.out_width * (shape.channels / W);
    if (w.vectors == 0) {
        return cudaSuccess;
    }
    return shape.average ? CDDPI_LAUNCH((pool_forward<T, W, true>), blocks_of(w.vectors), BLOCK, 0,
                                        stream, w, from, to)
                         : CDDPI_LAUNCH((pool_forward<T, W, false>), blocks_of(w.vectors), BLOCK, 0,
                                        stream, w, from, to);
}

template <class T>
cddp_status pool_as(cddpi_device *device, const cddpi_cuda_pool &shape, const void *x, void *y)
{
    constexpr int N = packed<T>::N;
    cddp_status status = check<T>(device, shape);

    if (status != CDDP_OK) {
        return status;
    }
    cudaError_t error = shape.channels % N == 0 ? start_forward<T, N>(device, shape, x, y)
                                                : start_forward<T, 1>(device, shape, x, y);

    return CDDPI_STARTED(device, "pool", error);
}

cddp_status pool(cddpi_device *device, const cddpi_cuda_pool *shape, const void *x, void *y)
{
    return CDDPI_BY_TYPE(shape->type, pool_as, device, *shape, x, y);
}

template <class T, int W>
cudaError_t start_backward(cddpi_device *device, const cddpi_cuda_pool &shape, const void *dy,
                           const void *x, const void *y, void *dx)
{
    cudaStream_t stream = cddpi_cuda_compute_stream(device);
    window w = describe(shape);
    const T *gradient = static_cast<const T *>(dy);
    const T *in = static_cast<const T *>(x);
    const T *out = static_cast<const T *>(y);
    T *to = static_cast<T *>(dx);

    w.vectors = (unsigned)shape.count * w.height * w.width * (shape.channels / W);
    if (w.vectors == 0) {
        return cudaSuccess;
    }
    return shape.average ? CDDPI_LAUNCH((pool_backward<T, W, true>), blocks_of(w.vectors), BLOCK, 0,
                                        stream, w, gradient, in, out, to)
                         : CDDPI_LAUNCH((pool_backward<T, W, false>), blocks_of(w.vectors), BLOCK,
                                        0, stream, w, gradient, in, out, to);
}

template <class T>
cddp_status pool_grad_as(cddpi_device *device, const cddpi_cuda_pool &shape, const void *dy,
                         const void *x, const void *y, void *dx)
{
    constexpr int N = packed<T>::N;
    cddp_status status = check<T>(device, shape);

    if (status != CDDP_OK) {
        return status;
    }
    cudaError_t error = shape.channels % N == 0 ? start_backward<T, N>(device, shape, dy, x, y, dx)
                                                : start_backward<T, 1>(device, shape, dy, x, y, dx);

    return CDDPI_STARTED(device, "pool_grad", error);
}

cddp_status pool_grad(cddpi_device *device, const cddpi_cuda_pool *shape, const void *dy,
                      const void *x, const void *y, void *dx)
{
    return CDDPI_BY_TYPE(shape->type, pool_grad_as, device, *shape, dy, x, y, dx);
}
} // namespace

void cddpi_cuda_fill_pool(struct cddpi_cuda_kernels *out)
{
    out->pool = pool;
    out->pool_grad = pool_grad;
}
