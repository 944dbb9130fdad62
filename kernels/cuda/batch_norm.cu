/* batch_norm.cu - owns batch normalisation of channels-last activations, fused with the residual
 * sum before the relu and the relu; and its gradient. The main way, not a fallback: all of it is
 * bound by memory.
 *
 * Bytes an element of 2 (bf16): forward reads x twice and the residual once and writes y: 6 or 8;
 * backward reads dy, x and y twice and writes dx and the residual's gradient: 14 or 16. An
 * activation of ResNet-50 with 256 images is 822 MB at its largest, so the second pass finds
 * nothing in the cache: 90 % of 4.8 TB/s is the target for each.
 *
 * A block takes a strip of channels, 16 bytes a thread, and a piece of all rows; threads side by
 * side read side by side. Sums are those of the distance from the piece's first row, so a variance
 * that is small beside the mean survives float32. Pieces are joined in a second kernel, in float64
 * and in an order that depends on the shape alone. */
#include "kernels/cuda/batch_norm.h"

#include "kernels/cuda/vector.cuh"

namespace
{
/* Blocks have THREADS threads: `across` of them side by side, the rest below each other. */
enum { THREADS = 256, WIDEST = 32, JOIN_CHANNELS = 8, JOIN_ROWS = 32, WANTED_BLOCKS = 4 * 132 };
/* Rows a thread asks for at once: when it only sums, and when it has two inputs or more. */
enum { SUMMED = 4, WRITTEN = 2 };

struct grid {
    size_t rows;
    int channels;
    int across;      /* threads over channels */
    unsigned strips; /* of channels, blocks side by side */
    unsigned pieces; /* of rows */
    size_t piece;    /* rows of one */
};

/* Whether @p channels are whole vectors, for all rows then. */
template <class T> bool is_whole(int channels)
{
    return channels % packed<T>::N == 0;
}

unsigned pieces_of(size_t rows, unsigned strips, size_t below)
{
    size_t wanted = cddpi_ceil(WANTED_BLOCKS, strips);
    size_t most = cddpi_ceil(rows, 4 * below); /* at least four rows a thread */

    return (unsigned)(wanted < most ? wanted : most > 0 ? most : 1);
}

grid grid_of(size_t rows, int channels, int width)
{
    int vectors = (channels + width - 1) / width;
    grid grid = {rows, channels, 1, 0, 0, 0};

    while (grid.across < vectors && grid.across < WIDEST) {
        grid.across *= 2;
    }
    grid.strips = (unsigned)cddpi_ceil((size_t)vectors, (size_t)grid.across);
    grid.pieces = pieces_of(rows, grid.strips, (size_t)(THREADS / grid.across));
    grid.piece = cddpi_ceil(rows, grid.pieces);
    return grid;
}

/* This thread's channels and rows. */
struct place {
    int channel; /* the first; none from `channels` on */
    size_t row, end, step;
};

template <int W> __device__ __forceinline__ place place_of(const grid &grid)
{
    place at;
    size_t first = blockIdx.y * grid.piece;

    at.channel = (int)(blockIdx.x * (unsigned)grid.across + threadIdx.x % (unsigned)grid.across) *
                 W;
    at.step = blockDim.x / (unsigned)grid.across;
    at.row = first + threadIdx.x / (unsigned)grid.across;
    at.end = first + grid.piece < grid.rows ? first + grid.piece : grid.rows;
    return at;
}

/* Rows row, row + step ... as floats; zeros behind the last. All are asked for before the first is
 * used: that is what keeps the memory busy. */
template <class T, int W, int ROWS>
__device__ __forceinline__ void load_rows(const T *from, const grid &grid, const place &at,
                                          size_t row, float (&out)[ROWS][W])
{
    CDDPI_UNROLL
    for (int r = 0; r < ROWS; r++) {
        size_t i = row + (size_t)r * at.step;

        if (i < at.end) {
            wide<T, W>::load(from + i * grid.channels + at.channel, out[r]);
        } else {
            CDDPI_UNROLL
            for (int j = 0; j < W; j++) {
                out[r][j] = 0;
            }
        }
    }
}

template <class T, int W, int ROWS>
__device__ __forceinline__ void store_rows(T *to, const grid &grid, const place &at, size_t row,
                                           const float (&in)[ROWS][W])
{
    CDDPI_UNROLL
    for (int r = 0; r < ROWS; r++) {
        size_t i = row + (size_t)r * at.step;

        if (i < at.end) {
            wide<T, W>::store(to + i * grid.channels + at.channel, in[r]);
        }
    }
}

/* The block's sums over its rows, for the threads of its first row. @p shared: 2 W floats a thread.
 */
template <int W>
__device__ __forceinline__ void sum_rows(const grid &grid, float (&a)[W], float (&b)[W],
                                         float *shared)
{
    unsigned across = (unsigned)grid.across;
    float *mine = shared + threadIdx.x * 2 * W;

    CDDPI_UNROLL
    for (int j = 0; j < W; j++) {
        mine[2 * j] = a[j];
        mine[2 * j + 1] = b[j];
    }
    for (unsigned half = blockDim.x / 2; half >= across; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) {
            CDDPI_UNROLL
            for (int j = 0; j < 2 * W; j++) {
                mine[j] += mine[half * 2 * W + j];
            }
        }
    }
    CDDPI_UNROLL
    for (int j = 0; j < W; j++) {
        a[j] = mine[2 * j];
        b[j] = mine[2 * j + 1];
    }
}

/* parts[piece][channel] = sums of x - origin and of its square, origin being the piece's first. */
template <class T, int W> __global__ void norm_sums(const T *x, float *parts, grid grid)
{
    CDDPI_DYNAMIC_SHARED(float, shared);
    place at = place_of<W>(grid);
    bool there = at.channel < grid.channels;
    float origin[W] = {0};
    float sum[W] = {0};
    float squares[W] = {0};

    if (there) {
        wide<T, W>::load(x + blockIdx.y * grid.piece * grid.channels + at.channel, origin);
        for (size_t row = at.row; row < at.end; row += SUMMED * at.step) {
            float values[SUMMED][W];

            load_rows<T, W, SUMMED>(x, grid, at, row, values);
            CDDPI_UNROLL
            for (int r = 0; r < SUMMED; r++) {
                CDDPI_UNROLL
                for (int j = 0; j < W; j++) {
                    float away = values[r][j] - origin[j];

                    away = row + (size_t)r * at.step < at.end ? away : 0;
                    sum[j] += away;
                    squares[j] = fmaf(away, away, squares[j]);
                }
            }
        }
    }
    sum_rows<W>(grid, sum, squares, shared);
    if (there && threadIdx.x < (unsigned)grid.across) {
        CDDPI_UNROLL
        for (int j = 0; j < W; j++) {
            float *to = parts + 2 * ((size_t)blockIdx.y * grid.channels + at.channel + j);

            to[0] = sum[j];
            to[1] = squares[j];
        }
    }
}

/* A thread's share of a channel's pieces; then all shares, in turn. */
struct moments {
    double count, mean, squares; /* squares: of the distance from the mean */
};

__device__ __forceinline__ moments joined(const moments &a, const moments &b)
{
    double count = a.count + b.count;
    double away = b.mean - a.mean;

    if (b.count == 0) {
        return a;
    }
    return {count, a.mean + away * (b.count / count),
            a.squares + b.squares + away * away * (a.count * b.count / count)};
}

struct statistics {
    float *mean, *inverse, *running_mean, *running_variance;
    float epsilon, momentum;
};

__device__ __forceinline__ void keep(const statistics &to, int channel, const moments &all)
{
    double variance = all.squares / all.count;
    double unbiased = all.squares / (all.count > 1 ? all.count - 1 : 1);
    double momentum = to.momentum;

    to.mean[channel] = (float)all.mean;
    to.inverse[channel] = (float)(1 / sqrt(variance + (double)to.epsilon));
    to.running_mean[channel] = (float)((1 - momentum) * (double)to.running_mean[channel] +
                                       momentum * all.mean);
    to.running_variance[channel] = (float)((1 - momentum) * (double)to.running_variance[channel] +
                                           momentum * unbiased);
}

/* Blocks of JOIN_CHANNELS x JOIN_ROWS threads. */
template <class T>
__global__ void norm_join(const T *x, const float *parts, grid grid, statistics to)
{
    __shared__ moments shared[JOIN_ROWS][JOIN_CHANNELS];
    int column = (int)(threadIdx.x % JOIN_CHANNELS);
    int lane = (int)(threadIdx.x / JOIN_CHANNELS);
    int channel = (int)blockIdx.x * JOIN_CHANNELS + column;
    moments all = {0, 0, 0};

    if (channel < grid.channels) {
        for (unsigned piece = (unsigned)lane; piece < grid.pieces; piece += JOIN_ROWS) {
            size_t first = piece * grid.piece;
            size_t end = first + grid.piece < grid.rows ? first + grid.piece : grid.rows;
            const float *from = parts + 2 * ((size_t)piece * grid.channels + channel);

            if (first < end) {
                double count = (double)(end - first);
                double away = (double)from[0] / count;
                double origin = (double)to_float(x[first * grid.channels + channel]);

                all = joined(all, {count, origin + away, (double)from[1] - away * away * count});
            }
        }
    }
    shared[lane][column] = all;
    __syncthreads();
    if (lane == 0 && channel < grid.channels) {
        for (int i = 1; i < JOIN_ROWS; i++) {
            all = joined(all, shared[i][column]);
        }
        all.squares = all.squares > 0 ? all.squares : all.squares == all.squares ? 0 : all.squares;
        keep(to, channel, all);
    }
}

/* What a channel's numbers are made of. VARIANCE: inverse is a variance yet. */
struct factors {
    const float *mean, *inverse, *weight, *bias;
    float epsilon;
};

template <class T, int W, bool VARIANCE>
__global__ void normalize(const T *x, const T *sum, factors by, bool relu, T *y, grid grid)
{
    place at = place_of<W>(grid);
    float mean[W], factor[W], shift[W];

    if (at.channel >= grid.channels) {
        return;
    }
    CDDPI_UNROLL
    for (int j = 0; j < W; j++) {
        float inverse = by.inverse[at.channel + j];

        mean[j] = by.mean[at.channel + j];
        factor[j] = by.weight[at.channel + j] *
                    (VARIANCE ? 1.0f / sqrtf(inverse + by.epsilon) : inverse);
        shift[j] = by.bias[at.channel + j];
    }
    for (size_t row = at.row; row < at.end; row += WRITTEN * at.step) {
        float values[WRITTEN][W];
        float added[WRITTEN][W] = {{0}};

        load_rows<T, W, WRITTEN>(x, grid, at, row, values);
        if (sum != nullptr) {
            load_rows<T, W, WRITTEN>(sum, grid, at, row, added);
        }
        CDDPI_UNROLL
        for (int r = 0; r < WRITTEN; r++) {
            CDDPI_UNROLL
            for (int j = 0; j < W; j++) {
                float value = fmaf(values[r][j] - mean[j], factor[j], shift[j]) + added[r][j];

                values[r][j] = relu && value < 0 ? 0 : value; /* a NaN stays one */
            }
        }
        store_rows<T, W, WRITTEN>(y, grid, at, row, values);
    }
}

/* The gradient behind the relu, whose outputs are y. */
template <class T, int W, int ROWS>
__device__ __forceinline__ void load_gradients(const T *dy, const T *y, const grid &grid,
                                               const place &at, size_t row, float (&out)[ROWS][W])
{
    load_rows<T, W, ROWS>(dy, grid, at, row, out);
    if (y != nullptr) {
        float outputs[ROWS][W];

        load_rows<T, W, ROWS>(y, grid, at, row, outputs);
        CDDPI_UNROLL
        for (int r = 0; r < ROWS; r++) {
            CDDPI_UNROLL
            for (int j = 0; j < W; j++) {
                out[r][j] = outputs[r][j] > 0 ? out[r][j] : 0;
            }
        }
    }
}

/* parts[piece][channel] = sums of dy and of dy (x - mean). */
template <class T, int W>
__global__ void norm_grad_sums(const T *dy, const T *x, const T *y, const float *mean, float *parts,
                               grid grid)
{
    CDDPI_DYNAMIC_SHARED(float, shared);
    place at = place_of<W>(grid);
    bool there = at.channel < grid.channels;
    float centre[W] = {0};
    float sum[W] = {0};
    float products[W] = {0};

    if (there) {
        CDDPI_UNROLL
        for (int j = 0; j < W; j++) {
            centre[j] = mean[at.channel + j];
        }
        for (size_t row = at.row; row < at.end; row += WRITTEN * at.step) {
            float gradient[WRITTEN][W], values[WRITTEN][W];

            load_rows<T, W, WRITTEN>(x, grid, at, row, values);
            load_gradients<T, W, WRITTEN>(dy, y, grid, at, row, gradient);
            CDDPI_UNROLL
            for (int r = 0; r < WRITTEN; r++) { /* behind the last row, gradients are 0 */
                CDDPI_UNROLL
                for (int j = 0; j < W; j++) {
                    sum[j] += gradient[r][j];
                    products[j] = fmaf(gradient[r][j], values[r][j] - centre[j], products[j]);
                }
            }
        }
    }
    sum_rows<W>(grid, sum, products, shared);
    if (there && threadIdx.x < (unsigned)grid.across) {
        CDDPI_UNROLL
        for (int j = 0; j < W; j++) {
            float *to = parts + 2 * ((size_t)blockIdx.y * grid.channels + at.channel + j);

            to[0] = sum[j];
            to[1] = products[j];
        }
    }
}

struct gradients {
    const float *inverse;
    float *dweight, *dbias;
    float *means; /* per channel: the mean of dy, and the slope along x - mean */
    bool add;
};

__global__ void norm_grad_join(const float *parts, grid grid, gradients to)
{
    __shared__ double shared[JOIN_ROWS][JOIN_CHANNELS][2];
    int column = (int)(threadIdx.x % JOIN_CHANNELS);
    int lane = (int)(threadIdx.x / JOIN_CHANNELS);
    int channel = (int)blockIdx.x * JOIN_CHANNELS + column;
    double sum = 0;
    double products = 0;

    if (channel < grid.channels) {
        for (unsigned piece = (unsigned)lane; piece < grid.pieces; piece += JOIN_ROWS) {
            const float *from = parts + 2 * ((size_t)piece * grid.channels + channel);

            sum += (double)from[0];
            products += (double)from[1];
        }
    }
    shared[lane][column][0] = sum;
    shared[lane][column][1] = products;
    __syncthreads();
    if (lane == 0 && channel < grid.channels) {
        double inverse = (double)to.inverse[channel];

        for (int i = 1; i < JOIN_ROWS; i++) {
            sum += shared[i][column][0];
            products += shared[i][column][1];
        }
        to.dweight[channel] = (to.add ? to.dweight[channel] : 0) + (float)(products * inverse);
        to.dbias[channel] = (to.add ? to.dbias[channel] : 0) + (float)sum;
        to.means[2 * channel] = (float)(sum / (double)grid.rows);
        to.means[2 * channel + 1] = (float)(products * inverse * inverse / (double)grid.rows);
    }
}

template <class T, int W>
__global__ void norm_grad_inputs(const T *dy, const T *x, const T *y, factors by,
                                 const float *means, T *dx, T *dsum, grid grid)
{
    place at = place_of<W>(grid);
    float mean[W], factor[W], offset[W], slope[W];

    if (at.channel >= grid.channels) {
        return;
    }
    CDDPI_UNROLL
    for (int j = 0; j < W; j++) {
        int channel = at.channel + j;

        mean[j] = by.mean[channel];
        factor[j] = by.weight[channel] * by.inverse[channel];
        offset[j] = means[2 * channel];
        slope[j] = means[2 * channel + 1];
    }
    for (size_t row = at.row; row < at.end; row += WRITTEN * at.step) {
        float gradient[WRITTEN][W], values[WRITTEN][W];

        load_rows<T, W, WRITTEN>(x, grid, at, row, values);
        load_gradients<T, W, WRITTEN>(dy, y, grid, at, row, gradient);
        CDDPI_UNROLL
        for (int r = 0; r < WRITTEN; r++) {
            CDDPI_UNROLL
            for (int j = 0; j < W; j++) {
                float slide = (values[r][j] - mean[j]) * slope[j];

                values[r][j] = factor[j] * (gradient[r][j] - offset[j] - slide);
            }
        }
        store_rows<T, W, WRITTEN>(dx, grid, at, row, values);
        if (dsum != nullptr) {
            store_rows<T, W, WRITTEN>(dsum, grid, at, row, gradient);
        }
    }
}

/* --- launches --- */

dim3 blocks_of(const grid &grid)
{
    return dim3(grid.strips, grid.pieces);
}

template <int W> size_t shared_bytes()
{
    return THREADS * 2 * W * sizeof(float);
}

unsigned join_blocks(const grid &grid)
{
    return (unsigned)cddpi_ceil((size_t)grid.channels, JOIN_CHANNELS);
}

/* Everything that the three entries are given. */
struct arguments {
    const struct cddpi_cuda_norm *shape;
    const void *x, *sum, *dy;
    factors by;
    statistics kept;
    gradients made;
    const void *y;
    void *out, *dsum;
    float *parts;
};

template <class T, int W> cudaError_t run_forward(cudaStream_t stream, const arguments &a)
{
    grid grid = grid_of(a.shape->rows, a.shape->channels, W);
    const T *x = static_cast<const T *>(a.x);
    cudaError_t error = CDDPI_LAUNCH((norm_sums<T, W>), blocks_of(grid), THREADS, shared_bytes<W>(),
                                     stream, x, a.parts, grid);

    if (error == cudaSuccess) {
        error = CDDPI_LAUNCH((norm_join<T>), join_blocks(grid), JOIN_CHANNELS * JOIN_ROWS, 0,
                             stream, x, static_cast<const float *>(a.parts), grid, a.kept);
    }
    if (error == cudaSuccess) {
        error = CDDPI_LAUNCH((normalize<T, W, false>), blocks_of(grid), THREADS, 0, stream, x,
                             static_cast<const T *>(a.sum), a.by, a.shape->relu,
                             static_cast<T *>(a.out), grid);
    }
    return error;
}

template <class T, int W> cudaError_t run_eval(cudaStream_t stream, const arguments &a)
{
    grid grid = grid_of(a.shape->rows, a.shape->channels, W);

    return CDDPI_LAUNCH((normalize<T, W, true>), blocks_of(grid), THREADS, 0, stream,
                        static_cast<const T *>(a.x), static_cast<const T *>(a.sum), a.by,
                        a.shape->relu, static_cast<T *>(a.out), grid);
}

template <class T, int W> cudaError_t run_grad(cudaStream_t stream, const arguments &a)
{
    grid grid = grid_of(a.shape->rows, a.shape->channels, W);
    const T *x = static_cast<const T *>(a.x);
    const T *dy = static_cast<const T *>(a.dy);
    const T *y = static_cast<const T *>(a.shape->relu ? a.y : nullptr);
    cudaError_t error = CDDPI_LAUNCH((norm_grad_sums<T, W>), blocks_of(grid), THREADS,
                                     shared_bytes<W>(), stream, dy, x, y, a.by.mean, a.parts, grid);

    if (error == cudaSuccess) {
        error = CDDPI_LAUNCH(norm_grad_join, join_blocks(grid), JOIN_CHANNELS * JOIN_ROWS, 0,
                             stream, static_cast<const float *>(a.parts), grid, a.made);
    }
    if (error == cudaSuccess) {
        error = CDDPI_LAUNCH((norm_grad_inputs<T, W>), blocks_of(grid), THREADS, 0, stream, dy, x,
                             y, a.by, static_cast<const float *>(a.made.means),
                             static_cast<T *>(a.out), static_cast<T *>(a.dsum), grid);
    }
    return error;
}

template <class T> cddp_status forward(struct cddpi_device *device, const arguments &a)
{
    cudaStream_t stream = cddpi_cuda_compute_stream(device);

    return CDDPI_STARTED(device, "batch norm",
                         is_whole<T>(a.shape->channels) ? (run_forward<T, packed<T>::N>(stream, a))
                                                        : (run_forward<T, 1>(stream, a)));
}

template <class T> cddp_status evaluate(struct cddpi_device *device, const arguments &a)
{
    cudaStream_t stream = cddpi_cuda_compute_stream(device);

    return CDDPI_STARTED(device, "batch norm",
                         is_whole<T>(a.shape->channels) ? (run_eval<T, packed<T>::N>(stream, a))
                                                        : (run_eval<T, 1>(stream, a)));
}

template <class T> cddp_status backward(struct cddpi_device *device, const arguments &a)
{
    cudaStream_t stream = cddpi_cuda_compute_stream(device);

    return CDDPI_STARTED(device, "gradient of batch norm",
                         is_whole<T>(a.shape->channels) ? (run_grad<T, packed<T>::N>(stream, a))
                                                        : (run_grad<T, 1>(stream, a)));
}

/* Floats of all pieces of any shape with so many channels, whatever the width of vectors: a grid
 * has no more than WANTED_BLOCKS blocks, but for what rounding up adds. */
size_t part_floats(size_t channels)
{
    size_t strips = cddpi_ceil(channels, WIDEST * packed<cddpi_bf16>::N);

    return 2 * channels * cddpi_ceil(WANTED_BLOCKS, strips);
}
} // namespace

size_t cddpi_cuda_batch_norm_scratch(int channels)
{
    return (part_floats((size_t)channels) + 2 * (size_t)channels) * sizeof(float);
}

cddp_status cddpi_cuda_own_batch_norm(struct cddpi_device *device,
                                      const struct cddpi_cuda_norm *shape, const void *x,
                                      const void *sum, const float *weight, const float *bias,
                                      float *running_mean, float *running_variance, float *mean,
                                      float *inverse, void *y, float *scratch)
{
    arguments a = {};

    a.shape = shape;
    a.x = x;
    a.sum = sum;
    a.by = {mean, inverse, weight, bias, shape->epsilon};
    a.kept = {mean, inverse, running_mean, running_variance, shape->epsilon, shape->momentum};
    a.out = y;
    a.parts = scratch;
    return CDDPI_BY_TYPE(shape->type, forward, device, a);
}

cddp_status cddpi_cuda_own_batch_norm_eval(struct cddpi_device *device,
                                           const struct cddpi_cuda_norm *shape, const void *x,
                                           const void *sum, const float *weight, const float *bias,
                                           const float *running_mean, const float *running_variance,
                                           void *y)
{
    arguments a = {};

    a.shape = shape;
    a.x = x;
    a.sum = sum;
    a.by = {running_mean, running_variance, weight, bias, shape->epsilon};
    a.out = y;
    return CDDPI_BY_TYPE(shape->type, evaluate, device, a);
}

cddp_status cddpi_cuda_own_batch_norm_grad(struct cddpi_device *device,
                                           const struct cddpi_cuda_norm *shape, const void *dy,
                                           const void *x, const void *y, const float *weight,
                                           const float *mean, const float *inverse, bool add,
                                           void *dx, void *dsum, float *dweight, float *dbias,
                                           float *scratch)
{
    arguments a = {};

    a.shape = shape;
    a.dy = dy;
    a.x = x;
    a.y = y;
    a.by = {mean, inverse, weight, nullptr, shape->epsilon};
    a.made = {inverse, dweight, dbias, scratch + part_floats((size_t)shape->channels), add};
    a.out = dx;
    a.dsum = dsum;
    a.parts = scratch;
    return CDDPI_BY_TYPE(shape->type, backward, device, a);
}
