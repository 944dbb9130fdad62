/* pool.cu - owns pools over windows, channels last.
 *
 * A thread handles one place of an image and a vector of channels, so neighbouring threads read and
 * write whole cache lines. Forward reads each input once from memory (windows overlap in L1 and L2)
 * and writes the outputs. If a backward follows, it also writes which input of its window each
 * maximum was: its place there, row by row, in a byte. Backward gathers: each input adds up the
 * gradients of those of its windows (at most 4 for 3 x 3 with stride 2) where it is the maximum, so
 * no two threads add to the same sum. dy, places and dx pass through memory once: 0.56 GB for 256
 * images of 112 x 112 x 64 in bf16, 0.19 ms at 3 TB/s; forward also moves 0.56 GB. */
#include "kernels/cuda/vector.cuh"

namespace
{
enum { BLOCK = 256, BYTE_PLACES = 256 };

struct pool_window {
    int height, width, channels; /* of the input */
    int out_height, out_width;
    int patch_rows, patch_columns; /* patches of stride x stride inputs */
    int kernel, stride, padding;
    float share;      /* weight of an input in an average: 1 / kernel^2; padding counts as zeros */
    unsigned vectors; /* number of threads with work */
};

/* A place in an image of height x width, and its channels. */
struct pool_place {
    unsigned image;
    int row, column, channel;
};

/* 32 bits are enough for everything but the last product: start() checks that. */
__device__ __forceinline__ pool_place place_of(unsigned v, int height, int width, int groups,
                                               int step)
{
    pool_place p;

    p.channel = (int)(v % (unsigned)groups) * step;
    v /= (unsigned)groups;
    p.column = (int)(v % (unsigned)width);
    v /= (unsigned)width;
    p.row = (int)(v % (unsigned)height);
    p.image = v / (unsigned)height;
    return p;
}

/* Offset of the vector at (row, column) of a place's image. */
__device__ __forceinline__ size_t offset(const pool_place &p, int row, int column, int height,
                                         int width, int channels)
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

/* W places in windows. `raw` is their form in memory, where they have the layout of the outputs. */
template <class P, int W> struct places_of {
    static_assert(W == 1, "there are vectors of bytes only");
    typedef P raw;

    static __device__ __forceinline__ unsigned get(const raw &one, int)
    {
        return one;
    }
    static __device__ __forceinline__ raw pack(const unsigned (&in)[W])
    {
        return (P)in[0];
    }
};

static __device__ __forceinline__ unsigned four_bytes(unsigned a, unsigned b, unsigned c,
                                                      unsigned d)
{
    return a | b << 8 | c << 16 | d << 24;
}

template <> struct places_of<uint8_t, 4> {
    typedef unsigned raw;

    static __device__ __forceinline__ unsigned get(const raw &word, int j)
    {
        return word >> 8 * j & 0xff;
    }
    static __device__ __forceinline__ raw pack(const unsigned (&in)[4])
    {
        return four_bytes(in[0], in[1], in[2], in[3]);
    }
};
template <> struct places_of<uint8_t, 8> {
    typedef uint2 raw;

    static __device__ __forceinline__ unsigned get(const raw &words, int j)
    {
        return (j < 4 ? words.x : words.y) >> 8 * (j % 4) & 0xff;
    }
    static __device__ __forceinline__ raw pack(const unsigned (&in)[8])
    {
        return make_uint2(four_bytes(in[0], in[1], in[2], in[3]),
                          four_bytes(in[4], in[5], in[6], in[7]));
    }
};

template <class P, int W>
__device__ __forceinline__ typename places_of<P, W>::raw fetch_places(const P *from)
{
    return *reinterpret_cast<const typename places_of<P, W>::raw *>(from);
}

/* The first of the largest elements of a window; a NaN counts as larger than all, and stays. */
template <class T, int W, class P, bool AVERAGE>
__global__ void __launch_bounds__(BLOCK) pool_forward(const pool_window w, const T *__restrict__ x,
                                                      T *__restrict__ y, P *__restrict__ places)
{
    unsigned v = blockIdx.x * BLOCK + threadIdx.x;
    pool_place p = place_of(v, w.out_height, w.out_width, w.channels / W, W);
    int top = p.row * w.stride - w.padding;
    int left = p.column * w.stride - w.padding;
    int first_row = larger(top, 0);
    int first_column = larger(left, 0);
    float best[W];
    unsigned from[W];

    if (v >= w.vectors) {
        return;
    }
    CDDPI_UNROLL
    for (int j = 0; j < W; j++) {
        best[j] = AVERAGE ? 0 : -INFINITY;
        from[j] = (unsigned)((first_row - top) * w.kernel + first_column - left);
    }
    for (int r = first_row; r < smaller(top + w.kernel, w.height); r++) {
        for (int c = first_column; c < smaller(left + w.kernel, w.width); c++) {
            unsigned here = (unsigned)((r - top) * w.kernel + c - left);
            float element[W];

            wide<T, W>::load(x + offset(p, r, c, w.height, w.width, w.channels), element);
            CDDPI_UNROLL
            for (int j = 0; j < W; j++) {
                if (AVERAGE) {
                    best[j] += element[j];
                } else if (best[j] == best[j] && !(element[j] <= best[j])) {
                    best[j] = element[j];
                    from[j] = here;
                }
            }
        }
    }
    CDDPI_UNROLL
    for (int j = 0; j < W && AVERAGE; j++) {
        best[j] *= w.share;
    }
    wide<T, W>::store(y + (size_t)v * W, best);
    if (!AVERAGE && places != NULL) {
        typedef places_of<P, W> vector;

        *reinterpret_cast<typename vector::raw *>(places + (size_t)v * W) = vector::pack(from);
    }
}

/* The range of windows (i.e. outputs) that contain an input's row or column: first to last. */
__device__ __forceinline__ int first_window(int at, const pool_window &w)
{
    /* windows that start here (counting padding) or earlier end before `at` */
    int past = at + w.padding - w.kernel;

    return past < 0 ? 0 : past / w.stride + 1;
}
__device__ __forceinline__ int last_window(int at, const pool_window &w, int count)
{
    return smaller((at + w.padding) / w.stride, count - 1);
}

/* For any window size, and for averages. */
template <class T, int W, class P, bool AVERAGE>
__global__ void __launch_bounds__(BLOCK)
    pool_backward(const pool_window w, const T *__restrict__ dy, const P *__restrict__ places,
                  T *__restrict__ dx)
{
    unsigned v = blockIdx.x * BLOCK + threadIdx.x;
    pool_place p = place_of(v, w.height, w.width, w.channels / W, W);
    float sum[W] = {};

    if (v >= w.vectors) {
        return;
    }
    for (int r = first_window(p.row, w); r <= last_window(p.row, w, w.out_height); r++) {
        for (int c = first_window(p.column, w); c <= last_window(p.column, w, w.out_width); c++) {
            size_t at = offset(p, r, c, w.out_height, w.out_width, w.channels);
            int row = p.row + w.padding - r * w.stride;
            int column = p.column + w.padding - c * w.stride;
            typename places_of<P, W>::raw winners = {};
            float gradient[W];

            wide<T, W>::load(dy + at, gradient);
            if (!AVERAGE) {
                winners = fetch_places<P, W>(places + at);
            }
            CDDPI_UNROLL
            for (int j = 0; j < W; j++) {
                if (AVERAGE) {
                    sum[j] += gradient[j] * w.share;
                } else if (places_of<P, W>::get(winners, j) ==
                           (unsigned)(row * w.kernel + column)) {
                    sum[j] += gradient[j];
                }
            }
        }
    }
    wide<T, W>::store(dx + (size_t)v * W, sum);
}

/* Maxima for window sizes known at compile time. A thread has STRIDE x STRIDE inputs that are in
 * the same windows: it reads these windows at once, and for each input knows its place in each of
 * them. */
template <class T, int W, int KERNEL, int STRIDE>
__global__ void __launch_bounds__(BLOCK, 3)
    patch_backward(const pool_window w, const T *__restrict__ dy,
                   const uint8_t *__restrict__ places, T *__restrict__ dx)
{
    /* windows that contain a patch, in each direction */
    constexpr int SIDE = (KERNEL + STRIDE - 1) / STRIDE;
    unsigned v = blockIdx.x * BLOCK + threadIdx.x;
    pool_place p = place_of(v, w.patch_rows, w.patch_columns, w.channels / W, W);
    typename wide<T, W>::raw gradients[SIDE][SIDE];
    typename places_of<uint8_t, W>::raw winners[SIDE][SIDE];
    float sum[STRIDE][STRIDE][W] = {};

    if (v >= w.vectors) {
        return;
    }
    CDDPI_UNROLL
    for (int i = 0; i < SIDE * SIDE; i++) {
        int row = p.row - SIDE + 1 + i / SIDE;
        int column = p.column - SIDE + 1 + i % SIDE;
        bool there = row >= 0 && row < w.out_height && column >= 0 && column < w.out_width;
        size_t at = offset(p, row, column, w.out_height, w.out_width, w.channels);

        gradients[i / SIDE][i % SIDE] = there ? wide<T, W>::fetch(dy + at)
                                              : typename wide<T, W>::raw{};
        winners[i / SIDE][i % SIDE] = there ? fetch_places<uint8_t, W>(places + at)
                                            : typename places_of<uint8_t, W>::raw{};
    }
    CDDPI_UNROLL
    for (int i = 0; i < SIDE * SIDE; i++) {
        float gradient[W];

        wide<T, W>::unpack(gradients[i / SIDE][i % SIDE], gradient);
        CDDPI_UNROLL
        for (int k = 0; k < STRIDE * STRIDE; k++) {
            int row = k / STRIDE + (SIDE - 1 - i / SIDE) * STRIDE;
            int column = k % STRIDE + (SIDE - 1 - i % SIDE) * STRIDE;

            CDDPI_UNROLL
            for (int j = 0; j < W && row < KERNEL && column < KERNEL; j++) {
                unsigned winner = places_of<uint8_t, W>::get(winners[i / SIDE][i % SIDE], j);

                if (winner == (unsigned)(row * KERNEL + column)) {
                    sum[k / STRIDE][k % STRIDE][j] += gradient[j];
                }
            }
        }
    }
    CDDPI_UNROLL
    for (int k = 0; k < STRIDE * STRIDE; k++) {
        int row = p.row * STRIDE - w.padding + k / STRIDE;
        int column = p.column * STRIDE - w.padding + k % STRIDE;

        if (row >= 0 && row < w.height && column >= 0 && column < w.width) {
            wide<T, W>::store(dx + offset(p, row, column, w.height, w.width, w.channels),
                              sum[k / STRIDE][k % STRIDE]);
        }
    }
}

pool_window describe(const cddpi_cuda_pool &shape)
{
    pool_window w = {shape.height, shape.width,  shape.channels, 0, 0, 0, 0,
                     shape.kernel, shape.stride, shape.padding,  0, 0};

    w.out_height = (shape.height + 2 * shape.padding - shape.kernel) / shape.stride + 1;
    w.out_width = (shape.width + 2 * shape.padding - shape.kernel) / shape.stride + 1;
    w.patch_rows = (shape.height - 1 + shape.padding) / shape.stride + 1;
    w.patch_columns = (shape.width - 1 + shape.padding) / shape.stride + 1;
    w.share = 1.0f / (float)(shape.kernel * shape.kernel);
    return w;
}

unsigned blocks_of(size_t vectors)
{
    return (unsigned)cddpi_ceil(vectors, BLOCK);
}

bool byte_places(const cddpi_cuda_pool &shape)
{
    return shape.kernel * shape.kernel <= BYTE_PLACES;
}

/* Elements of a vector. Only places of one byte are read in vectors. */
template <class T> int width_of(const cddpi_cuda_pool &shape)
{
    constexpr int N = packed<T>::N;

    return shape.channels % N == 0 && (shape.average || byte_places(shape)) ? N : 1;
}

/* The numbers of places x vectors of channels in the input, the output and the patches must fit in
 * 32 bits. */
template <class T> cddp_status check(cddpi_device *device, const cddpi_cuda_pool &shape)
{
    pool_window w = describe(shape);
    size_t in = (size_t)shape.height * (size_t)shape.width;
    size_t out = (size_t)w.out_height * (size_t)w.out_width;
    size_t patches = (size_t)w.patch_rows * (size_t)w.patch_columns;
    size_t most = in > out ? in : out;
    size_t vectors = (size_t)shape.channels / (size_t)width_of<T>(shape);

    if ((most > patches ? most : patches) * (size_t)shape.count * vectors <= UINT32_MAX - BLOCK) {
        return CDDP_OK;
    }
    return cuda_fail(device, CDDP_ERR_ARGUMENT,
                     "pool: %d images of %d x %d with %d channels are too many at once",
                     shape.count, shape.height, shape.width, shape.channels);
}

template <class T, int W, class P, bool AVERAGE>
cudaError_t start_forward(cddpi_device *device, const cddpi_cuda_pool &shape, const void *x,
                          void *y, void *places)
{
    pool_window w = describe(shape);

    w.vectors = (unsigned)shape.count * w.out_height * w.out_width * (shape.channels / W);
    return w.vectors == 0
               ? cudaSuccess
               : CDDPI_LAUNCH((pool_forward<T, W, P, AVERAGE>), blocks_of(w.vectors), BLOCK, 0,
                              cddpi_cuda_compute_stream(device), w, static_cast<const T *>(x),
                              static_cast<T *>(y), static_cast<P *>(places));
}

template <class T>
cddp_status pool_as(cddpi_device *device, const cddpi_cuda_pool &shape, const void *x, void *y,
                    void *places)
{
    constexpr int N = packed<T>::N;
    cddp_status status = check<T>(device, shape);
    cudaError_t error;

    if (status != CDDP_OK) {
        return status;
    }
    if (shape.average) {
        error = width_of<T>(shape) == N
                    ? start_forward<T, N, uint8_t, true>(device, shape, x, y, NULL)
                    : start_forward<T, 1, uint8_t, true>(device, shape, x, y, NULL);
    } else if (!byte_places(shape)) {
        error = start_forward<T, 1, uint32_t, false>(device, shape, x, y, places);
    } else {
        error = width_of<T>(shape) == N
                    ? start_forward<T, N, uint8_t, false>(device, shape, x, y, places)
                    : start_forward<T, 1, uint8_t, false>(device, shape, x, y, places);
    }
    return CDDPI_STARTED(device, "pool", error);
}

cddp_status pool(cddpi_device *device, const cddpi_cuda_pool *shape, const void *x, void *y,
                 void *places)
{
    return CDDPI_BY_TYPE(shape->type, pool_as, device, *shape, x, y, places);
}

size_t pool_places_bytes(const cddpi_cuda_pool *shape)
{
    pool_window w = describe(*shape);
    size_t outputs = (size_t)shape->count * (size_t)w.out_height * (size_t)w.out_width *
                     (size_t)shape->channels;

    return shape->average ? 0 : outputs * (byte_places(*shape) ? 1 : sizeof(uint32_t));
}

template <class T, int W, class P, bool AVERAGE>
cudaError_t start_backward(cddpi_device *device, const cddpi_cuda_pool &shape, const void *dy,
                           const void *places, void *dx)
{
    pool_window w = describe(shape);

    w.vectors = (unsigned)shape.count * w.height * w.width * (shape.channels / W);
    return w.vectors == 0
               ? cudaSuccess
               : CDDPI_LAUNCH((pool_backward<T, W, P, AVERAGE>), blocks_of(w.vectors), BLOCK, 0,
                              cddpi_cuda_compute_stream(device), w, static_cast<const T *>(dy),
                              static_cast<const P *>(places), static_cast<T *>(dx));
}

template <class T, int KERNEL, int STRIDE>
cudaError_t start_patches(cddpi_device *device, const cddpi_cuda_pool &shape, const void *dy,
                          const void *places, void *dx)
{
    constexpr int N = packed<T>::N;
    pool_window w = describe(shape);

    w.vectors = (unsigned)shape.count * w.patch_rows * w.patch_columns * (shape.channels / N);
    return w.vectors == 0
               ? cudaSuccess
               : CDDPI_LAUNCH((patch_backward<T, N, KERNEL, STRIDE>), blocks_of(w.vectors), BLOCK,
                              0, cddpi_cuda_compute_stream(device), w, static_cast<const T *>(dy),
                              static_cast<const uint8_t *>(places), static_cast<T *>(dx));
}

template <class T>
cudaError_t start_max_backward(cddpi_device *device, const cddpi_cuda_pool &shape, const void *dy,
                               const void *places, void *dx)
{
    constexpr int N = packed<T>::N;

    if (!byte_places(shape)) {
        return start_backward<T, 1, uint32_t, false>(device, shape, dy, places, dx);
    }
    if (width_of<T>(shape) == 1) {
        return start_backward<T, 1, uint8_t, false>(device, shape, dy, places, dx);
    }
    if (shape.stride == 2 && shape.kernel == 3) {
        return start_patches<T, 3, 2>(device, shape, dy, places, dx);
    }
    return shape.stride == 2 && shape.kernel == 2
               ? start_patches<T, 2, 2>(device, shape, dy, places, dx)
               : start_backward<T, N, uint8_t, false>(device, shape, dy, places, dx);
}

template <class T>
cddp_status pool_grad_as(cddpi_device *device, const cddpi_cuda_pool &shape, const void *dy,
                         const void *places, void *dx)
{
    constexpr int N = packed<T>::N;
    cddp_status status = check<T>(device, shape);
    cudaError_t error;

    if (status != CDDP_OK) {
        return status;
    }
    if (!shape.average) {
        error = start_max_backward<T>(device, shape, dy, places, dx);
    } else {
        error = width_of<T>(shape) == N
                    ? start_backward<T, N, uint8_t, true>(device, shape, dy, NULL, dx)
                    : start_backward<T, 1, uint8_t, true>(device, shape, dy, NULL, dx);
    }
    return CDDPI_STARTED(device, "pool_grad", error);
}

cddp_status pool_grad(cddpi_device *device, const cddpi_cuda_pool *shape, const void *dy,
                      const void *places, void *dx)
{
    return CDDPI_BY_TYPE(shape->type, pool_grad_as, device, *shape, dy, places, dx);
}
} // namespace

void cddpi_cuda_fill_pool(struct cddpi_cuda_kernels *out)
{
    out->pool = pool;
    out->pool_grad = pool_grad;
    out->pool_places_bytes = pool_places_bytes;
}
