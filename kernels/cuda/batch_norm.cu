/* batch_norm.cu - owns batch normalisation of channels-last activations, fused with the residual
 * sum and the relu; batch_norm_grad.cu has its gradient. This is the main implementation, not a
 * fallback: all of it is limited by memory.
 *
 * Memory traffic for each element of 2 bytes (bf16): forward reads x twice and the residual once
 * and writes y: 6 or 8 bytes. Backward reads dy and x twice and writes dx: 10 bytes; the relu's
 * mask is recomputed from x. After a sum, backward reads dy (in two parts if two ops read y), x and
 * y, writes the residual's gradient, and reads that and x again: 14 or 16 bytes. The largest
 * activation of ResNet-50 with 256 images is 822 MB, so the second pass finds nothing in the cache.
 * The target for each pass is 90 % of 4.8 TB/s.
 *
 * A block processes a strip of channels, 16 bytes for each thread, and a piece of all rows;
 * neighbouring threads read neighbouring addresses. Sums are those of the distance from the piece's
 * first row, so float32 can represent a variance that is small compared with the mean. A second
 * kernel combines the pieces, in float64 and in an order that depends on the shape alone. */
#include "kernels/cuda/batch_norm.cuh"

namespace
{
/* parts[piece][channel] = sums of x - origin and of its square, where origin is the piece's first
 * row. */
template <class T, int W>
__global__ void __launch_bounds__(THREADS, RESIDENT) norm_sums(const T *x, float *parts, grid grid)
{
    CDDPI_DYNAMIC_SHARED(float, shared);
    place at = place_of<W>(grid);
    float origin[W] = {0};
    float sum[W] = {0};
    float squares[W] = {0};

    if (at.channel < grid.channels) {
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
    leave_part<W>(grid, at, sum, squares, shared, parts);
}

/* Each thread combines its share of a channel's pieces; then all shares are combined in order. */
struct batch_norm_moments {
    double count, mean, squares; /* squares: sum of squared distances from the mean */
};

__device__ __forceinline__ batch_norm_moments joined(const batch_norm_moments &a,
                                                     const batch_norm_moments &b)
{
    double count = a.count + b.count;
    double away = b.mean - a.mean;

    if (b.count == 0) {
        return a;
    }
    return {count, a.mean + away * (b.count / count),
            a.squares + b.squares + away * away * (a.count * b.count / count)};
}

const double MOST = 3.402823466e38; /* the largest finite float */

struct statistics {
    float *mean, *inverse, *running_mean, *running_variance;
    float epsilon, momentum;
    double *rank_moments; /* if set, the only output: rows, means and squares for the other ranks */
    int channels;
    double weight; /* 0: blend into the running statistics; otherwise write there, by this */
};

/* Not by values that are not finite: activations overflowed, and such a step is skipped, but the
 * running statistics would stay wrong. */
__device__ __forceinline__ void blend(double momentum, double mean, double variance,
                                      float *running_mean, float *running_variance)
{
    if (fabs(mean) <= MOST && variance <= MOST) {
        *running_mean = (float)((1 - momentum) * (double)*running_mean + momentum * mean);
        *running_variance = (float)((1 - momentum) * (double)*running_variance +
                                    momentum * variance);
    }
}

__device__ __forceinline__ void keep(const statistics &to, int channel,
                                     const batch_norm_moments &all)
{
    if (to.rank_moments != nullptr) {
        to.rank_moments[1 + channel] = all.mean;
        to.rank_moments[1 + to.channels + channel] = all.squares;
        if (channel == 0) {
            to.rank_moments[0] = all.count;
        }
        return;
    }

    double variance = all.squares / all.count;
    double unbiased = all.squares / (all.count > 1 ? all.count - 1 : 1);

    to.mean[channel] = (float)all.mean;
    to.inverse[channel] = (float)(1 / sqrt(variance + (double)to.epsilon));
    if (to.running_mean == nullptr) {
        return;
    }
    if (to.weight != 0) {
        to.running_mean[channel] = (float)(to.weight * all.mean);
        to.running_variance[channel] = (float)(to.weight * unbiased);
        return;
    }
    blend(to.momentum, all.mean, unbiased, &to.running_mean[channel],
          &to.running_variance[channel]);
}

/* Blocks of JOIN_CHANNELS x JOIN_ROWS threads. */
template <class T>
__global__ void __launch_bounds__(JOIN_CHANNELS *JOIN_ROWS)
    norm_join(const T *x, const float *parts, grid grid, statistics to)
{
    __shared__ batch_norm_moments shared[JOIN_ROWS][JOIN_CHANNELS];
    int column = (int)(threadIdx.x % JOIN_CHANNELS);
    int lane = (int)(threadIdx.x / JOIN_CHANNELS);
    int channel = (int)blockIdx.x * JOIN_CHANNELS + column;
    batch_norm_moments all = {0, 0, 0};

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

/* One thread for each channel. */
__global__ void norm_blend(int channels, double momentum, const float *mean, const float *variance,
                           float *running_mean, float *running_variance)
{
    int channel = (int)(blockIdx.x * blockDim.x + threadIdx.x);

    if (channel < channels) {
        blend(momentum, (double)mean[channel], (double)variance[channel], &running_mean[channel],
              &running_variance[channel]);
    }
}

/* Combine all ranks' moments, in rank order, with one thread for each channel. */
__global__ void norm_merge(const double *all_moments, int ranks, double *rows, statistics to)
{
    int channel = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    batch_norm_moments all = {0, 0, 0};

    if (channel >= to.channels) {
        return;
    }
    for (int r = 0; r < ranks; r++) {
        const double *from = all_moments + (size_t)r * (1 + 2 * (size_t)to.channels);

        all = joined(all, {from[0], from[1 + channel], from[1 + to.channels + channel]});
    }
    if (channel == 0) {
        *rows = all.count;
    }
    if (all.count > 0) {
        keep(to, channel, all);
    }
}

/* VARIANCE: `inverse` still contains variances. */
template <class T, int W, bool VARIANCE>
__global__ void __launch_bounds__(THREADS, RESIDENT)
    normalize(const T *x, const T *sum, factors by, bool relu, T *y, grid grid)
{
    place at = place_of<W>(grid);
    float mean[W], inverse[W], factor[W], shift[W];

    if (at.channel >= grid.channels) {
        return;
    }
    load_floats(by.mean + at.channel, mean);
    load_floats(by.inverse + at.channel, inverse);
    load_floats(by.weight + at.channel, factor);
    load_floats(by.bias + at.channel, shift);
    CDDPI_UNROLL
    for (int j = 0; j < W; j++) {
        factor[j] *= VARIANCE ? 1.0f / sqrtf(inverse[j] + by.epsilon) : inverse[j];
    }
    for (size_t row = at.row; row < at.end; row += WRITTEN * at.step) {
        typename wide<T, W>::raw words[WRITTEN], added[WRITTEN];

        fetch_rows<T, W, WRITTEN>(x, grid, at, row, words);
        if (sum != nullptr) {
            fetch_rows<T, W, WRITTEN>(sum, grid, at, row, added);
        }
        CDDPI_UNROLL
        for (int r = 0; r < WRITTEN; r++) {
            float values[W];
            float others[W] = {0};

            wide<T, W>::unpack(words[r], values);
            if (sum != nullptr) {
                wide<T, W>::unpack(added[r], others);
            }
            CDDPI_UNROLL
            for (int j = 0; j < W; j++) {
                float value = fmaf(values[j] - mean[j], factor[j], shift[j]) + others[j];

                values[j] = relu && value < 0 ? 0 : value; /* a NaN stays a NaN */
            }
            if (row + (size_t)r * at.step < at.end) {
                wide<T, W>::store(y + (row + (size_t)r * at.step) * grid.channels + at.channel,
                                  values);
            }
        }
    }
}

/* The arguments of both entries. */
struct batch_norm_arguments {
    const struct cddpi_cuda_norm *shape;
    const void *x, *sum;
    factors by;
    statistics kept;
    void *out;    /* nullptr: only statistics */
    float *parts; /* nullptr: statistics are known already */
};

template <class T, int W>
cudaError_t run_forward(cddpi_device *device, const batch_norm_arguments &a)
{
    cudaStream_t stream = cddpi_cuda_compute_stream(device);
    grid grid = grid_of(device, a.shape->rows, a.shape->channels, W);
    const T *x = static_cast<const T *>(a.x);

    if (a.parts != nullptr) {
        CDDPI_TRY_CUDA(CDDPI_LAUNCH((norm_sums<T, W>), blocks_of(grid), THREADS, shared_bytes<W>(),
                                    stream, x, a.parts, grid));
        CDDPI_TRY_CUDA(CDDPI_LAUNCH((norm_join<T>), join_blocks(grid), JOIN_CHANNELS * JOIN_ROWS, 0,
                                    stream, x, static_cast<const float *>(a.parts), grid, a.kept));
    }
    return a.out == nullptr ? cudaSuccess
                            : CDDPI_LAUNCH((normalize<T, W, false>), blocks_of(grid), THREADS, 0,
                                           stream, x, static_cast<const T *>(a.sum), a.by,
                                           a.shape->relu, static_cast<T *>(a.out), grid);
}

template <class T, int W> cudaError_t run_eval(cddpi_device *device, const batch_norm_arguments &a)
{
    cudaStream_t stream = cddpi_cuda_compute_stream(device);
    grid grid = grid_of(device, a.shape->rows, a.shape->channels, W);

    return CDDPI_LAUNCH((normalize<T, W, true>), blocks_of(grid), THREADS, 0, stream,
                        static_cast<const T *>(a.x), static_cast<const T *>(a.sum), a.by,
                        a.shape->relu, static_cast<T *>(a.out), grid);
}

template <class T> cddp_status forward(struct cddpi_device *device, const batch_norm_arguments &a)
{
    return CDDPI_STARTED(device, "batch norm",
                         is_whole<T>(a.shape->channels) ? (run_forward<T, packed<T>::N>(device, a))
                                                        : (run_forward<T, 1>(device, a)));
}

template <class T> cddp_status evaluate(struct cddpi_device *device, const batch_norm_arguments &a)
{
    return CDDPI_STARTED(device, "batch norm",
                         is_whole<T>(a.shape->channels) ? (run_eval<T, packed<T>::N>(device, a))
                                                        : (run_eval<T, 1>(device, a)));
}

/* Without rows there are no statistics. */
bool is_empty(const cddpi_cuda_norm *shape)
{
    return shape->rows == 0 || shape->channels == 0;
}

cddp_status batch_norm(cddpi_device *device, const cddpi_cuda_norm *shape, const void *x,
                       const void *sum, const float *weight, const float *bias, float *running_mean,
                       float *running_variance, float *mean, float *inverse, void *y)
{
    batch_norm_arguments a = {};

    if (is_empty(shape)) {
        return CDDP_OK;
    }
    a.shape = shape;
    a.x = x;
    a.sum = sum;
    a.by = {mean, inverse, weight, bias, shape->epsilon};
    a.kept = {mean,           inverse,         running_mean, running_variance,
              shape->epsilon, shape->momentum, nullptr,      shape->channels,
              shape->weight};
    a.out = y;
    CDDPI_TRY(norm_scratch(device, shape, &a.parts));
    return CDDPI_BY_TYPE(shape->type, forward, device, a);
}

cddp_status batch_norm_eval(cddpi_device *device, const cddpi_cuda_norm *shape, const void *x,
                            const void *sum, const float *weight, const float *bias,
                            const float *running_mean, const float *running_variance, void *y)
{
    const batch_norm_arguments a = {
        shape, x, sum,    {running_mean, running_variance, weight, bias, shape->epsilon},
        {},    y, nullptr};

    return is_empty(shape) ? CDDP_OK : CDDPI_BY_TYPE(shape->type, evaluate, device, a);
}

cddp_status batch_norm_blend(cddpi_device *device, int channels, double momentum, const float *mean,
                             const float *variance, float *running_mean, float *running_variance)
{
    return CDDPI_STARTED(device, "running statistics",
                         CDDPI_LAUNCH(norm_blend, (unsigned)cddpi_ceil((size_t)channels, 128), 128,
                                      0, cddpi_cuda_compute_stream(device), channels, momentum,
                                      mean, variance, running_mean, running_variance));
}

/* --- over ranks --- */

cddp_status batch_norm_moments(cddpi_device *device, const cddpi_cuda_norm *shape, const void *x,
                               double *rank_moments)
{
    batch_norm_arguments a = {};

    if (shape->rows == 0) {
        return cddpi_cuda_clear(device, rank_moments,
                                (1 + 2 * (size_t)shape->channels) * sizeof *rank_moments);
    }
    a.shape = shape;
    a.x = x;
    a.kept.rank_moments = rank_moments;
    a.kept.channels = shape->channels;
    CDDPI_TRY(norm_scratch(device, shape, &a.parts));
    return CDDPI_BY_TYPE(shape->type, forward, device, a);
}

cddp_status batch_norm_merge(cddpi_device *device, const cddpi_cuda_norm *shape,
                             const double *all_moments, int ranks, float *running_mean,
                             float *running_variance, float *mean, float *inverse, double *rows)
{
    statistics to = {mean,
                     inverse,
                     running_mean,
                     running_variance,
                     shape->epsilon,
                     shape->momentum,
                     nullptr,
                     shape->channels,
                     0};

    return CDDPI_STARTED(
        device, "batch norm over ranks",
        CDDPI_LAUNCH(norm_merge, (unsigned)cddpi_ceil((size_t)shape->channels, 128), 128, 0,
                     cddpi_cuda_compute_stream(device), all_moments, ranks, rows, to));
}

cddp_status batch_norm_apply(cddpi_device *device, const cddpi_cuda_norm *shape, const void *x,
                             const void *sum, const float *weight, const float *bias,
                             const float *mean, const float *inverse, void *y)
{
    const batch_norm_arguments a = {shape, x, sum,    {mean, inverse, weight, bias, shape->epsilon},
                                    {},    y, nullptr};

    return shape->rows == 0 ? CDDP_OK : CDDPI_BY_TYPE(shape->type, forward, device, a);
}
} // namespace

void cddpi_cuda_fill_batch_norm(struct cddpi_cuda_kernels *out)
{
    out->batch_norm = batch_norm;
    out->batch_norm_blend = batch_norm_blend;
    out->batch_norm_eval = batch_norm_eval;
    out->batch_norm_moments = batch_norm_moments;
    out->batch_norm_merge = batch_norm_merge;
    out->batch_norm_apply = batch_norm_apply;
}
