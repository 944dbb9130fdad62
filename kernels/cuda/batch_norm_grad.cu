/* batch_norm_grad.cu - owns the gradient of batch normalisation, through the relu and the sum
 * before it (batch_norm.cu describes costs and sums). */
#include "kernels/cuda/batch_norm.cuh"

namespace
{
/* The inputs of a gradient. */
template <class T> struct norm_grad_sources {
    const T *dy, *other; /* other: second summand of the gradient; nullptr: none */
    const T *y;          /* the relu's outputs, for its mask; nullptr: no relu, or `masks` */
    bool masks; /* recompute the relu's outputs from x: nothing was added before the relu */
};

/* The factors from which forward computed outputs, in the same form; 0 for those that are not
 * needed. */
template <int W> struct channel_factors {
    float mean[W], factor[W], shift[W];
};

template <int W>
__device__ __forceinline__ channel_factors<W> load_factors(const factors &by, const place &at)
{
    channel_factors<W> out = {};

    load_floats(by.mean + at.channel, out.mean);
    if (by.weight != nullptr) {
        float inverse[W];

        load_floats(by.weight + at.channel, out.factor);
        load_floats(by.inverse + at.channel, inverse);
        CDDPI_UNROLL
        for (int j = 0; j < W; j++) {
            out.factor[j] *= inverse[j];
        }
    }
    if (by.bias != nullptr) {
        load_floats(by.bias + at.channel, out.shift);
    }
    return out;
}

/* Rounded in the same way as the stored outputs. */
template <class T, int W, int ROWS>
__device__ __forceinline__ void round_all(float (&values)[ROWS][W])
{
    CDDPI_UNROLL
    for (int r = 0; r < ROWS; r++) {
        CDDPI_UNROLL
        for (int j = 0; j < W; j++) {
            values[r][j] = to_float(from_float<T>(values[r][j]));
        }
    }
}

/* x, and the gradient after the relu's mask. All loads are issued before any value is used. */
template <class T, int W, int ROWS>
__device__ __forceinline__ void load_both(const norm_grad_sources<T> &from, const T *x,
                                          const channel_factors<W> &by, const grid &grid,
                                          const place &at, size_t row, float (&values)[ROWS][W],
                                          float (&gradient)[ROWS][W])
{
    typename wide<T, W>::raw words[ROWS], dy[ROWS], other[ROWS], outputs[ROWS];

    fetch_rows<T, W, ROWS>(x, grid, at, row, words);
    fetch_rows<T, W, ROWS>(from.dy, grid, at, row, dy);
    if (from.other != nullptr) {
        fetch_rows<T, W, ROWS>(from.other, grid, at, row, other);
    }
    if (from.y != nullptr) {
        fetch_rows<T, W, ROWS>(from.y, grid, at, row, outputs);
    }
    CDDPI_UNROLL
    for (int r = 0; r < ROWS; r++) {
        float more[W] = {0};

        wide<T, W>::unpack(words[r], values[r]);
        wide<T, W>::unpack(dy[r], gradient[r]);
        if (from.other != nullptr) {
            wide<T, W>::unpack(other[r], more);
        }
        CDDPI_UNROLL
        for (int j = 0; j < W; j++) {
            gradient[r][j] += more[j];
            more[j] = from.masks ? fmaf(values[r][j] - by.mean[j], by.factor[j], by.shift[j]) : 1;
        }
        if (from.y != nullptr) {
            wide<T, W>::unpack(outputs[r], more);
        }
        CDDPI_UNROLL
        for (int j = 0; j < W; j++) {
            gradient[r][j] = more[j] > 0 ? gradient[r][j] : 0;
        }
    }
}

/* parts[piece][channel] = sums of dy and of dy (x - mean). The gradient of the added tensor goes to
 * dsum, where the second pass reads it again. */
template <class T, int W>
__global__ void __launch_bounds__(THREADS, RESIDENT / 2)
    norm_grad_sums(norm_grad_sources<T> from, const T *x, factors by, T *dsum, float *parts,
                   grid grid)
{
    CDDPI_DYNAMIC_SHARED(float, shared);
    place at = place_of<W>(grid);
    float sum[W] = {0};
    float products[W] = {0};

    if (at.channel < grid.channels) {
        channel_factors<W> channels = load_factors<W>(by, at);

        for (size_t row = at.row; row < at.end; row += WRITTEN * at.step) {
            float gradient[WRITTEN][W], values[WRITTEN][W];

            load_both<T, W, WRITTEN>(from, x, channels, grid, at, row, values, gradient);
            if (dsum != nullptr) {
                store_rows<T, W, WRITTEN>(dsum, grid, at, row, gradient);
                round_all<T, W, WRITTEN>(gradient);
            }
            CDDPI_UNROLL
            for (int r = 0; r < WRITTEN; r++) { /* beyond the last row, gradients are 0 */
                CDDPI_UNROLL
                for (int j = 0; j < W; j++) {
                    sum[j] += gradient[r][j];
                    products[j] = fmaf(gradient[r][j], values[r][j] - channels.mean[j],
                                       products[j]);
                }
            }
        }
    }
    leave_part<W>(grid, at, sum, products, shared, parts);
}

struct gradients {
    const float *inverse;
    float *dweight, *dbias;
    float *means; /* means of dy for all channels; then all slopes along x - mean */
    bool add;
    double *sums; /* if set, the output instead of means: sums of dy and of dy (x - mean), without
                     the scale */
    double scale;
};

__global__ void __launch_bounds__(JOIN_CHANNELS *JOIN_ROWS)
    norm_grad_join(const float *parts, grid grid, gradients to)
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
        if (to.sums != nullptr) {
            to.sums[channel] = to.scale != 0 ? sum / to.scale : 0;
            to.sums[grid.channels + channel] = to.scale != 0 ? products / to.scale : 0;
            return;
        }
        to.means[channel] = (float)(sum / (double)grid.rows);
        to.means[grid.channels + channel] = (float)(products * inverse * inverse /
                                                    (double)grid.rows);
    }
}

/* Combine all ranks' sums, in rank order, into `means` over a batch of *rows, with one thread for
 * each channel. */
__global__ void norm_grad_merge(const double *sums, int ranks, int channels, const double *rows,
                                const float *inverse, double scale, float *means)
{
    int channel = (int)(blockIdx.x * blockDim.x + threadIdx.x);
    double sum = 0;
    double products = 0;

    if (channel >= channels) {
        return;
    }
    for (int r = 0; r < ranks; r++) {
        sum += sums[(size_t)r * 2 * channels + channel];
        products += sums[((size_t)r * 2 + 1) * channels + channel];
    }
    products *= (double)inverse[channel] * (double)inverse[channel];
    means[channel] = (float)(scale * sum / *rows);
    means[channels + channel] = (float)(scale * products / *rows);
}

template <class T, int W>
__global__ void __launch_bounds__(THREADS, RESIDENT / 2)
    norm_grad_inputs(norm_grad_sources<T> from, const T *x, factors by, const float *means, T *dx,
                     T *dsum, grid grid)
{
    place at = place_of<W>(grid);
    float offset[W], slope[W];

    if (at.channel >= grid.channels) {
        return;
    }
    channel_factors<W> channels = load_factors<W>(by, at);

    load_floats(means + at.channel, offset);
    load_floats(means + grid.channels + at.channel, slope);
    for (size_t row = at.row; row < at.end; row += WRITTEN * at.step) {
        float gradient[WRITTEN][W], values[WRITTEN][W];

        load_both<T, W, WRITTEN>(from, x, channels, grid, at, row, values, gradient);
        CDDPI_UNROLL
        for (int r = 0; r < WRITTEN; r++) {
            CDDPI_UNROLL
            for (int j = 0; j < W; j++) {
                float slide = (values[r][j] - channels.mean[j]) * slope[j];

                values[r][j] = channels.factor[j] * (gradient[r][j] - offset[j] - slide);
            }
        }
        store_rows<T, W, WRITTEN>(dx, grid, at, row, values);
        if (dsum != nullptr) { /* the first pass was in another call, which did not write dsum */
            store_rows<T, W, WRITTEN>(dsum, grid, at, row, gradient);
        }
    }
}

/* The arguments of the entry. */
struct norm_grad_arguments {
    const struct cddpi_cuda_norm *shape;
    const void *dy, *other, *x, *y;
    factors by;
    gradients made;
    void *out, *dsum; /* out nullptr: only sums */
    float *parts;     /* nullptr: means are known already */
};

template <class T, int W> cudaError_t run_grad(cddpi_device *device, const norm_grad_arguments &a)
{
    cudaStream_t stream = cddpi_cuda_compute_stream(device);
    grid grid = grid_of(device, a.shape->rows, a.shape->channels, W);
    bool relu = a.shape->relu;
    const T *x = static_cast<const T *>(a.x);
    T *dsum = static_cast<T *>(a.dsum);
    norm_grad_sources<T> from = {static_cast<const T *>(a.dy), static_cast<const T *>(a.other),
                                 static_cast<const T *>(relu ? a.y : nullptr),
                                 relu && a.y == nullptr};

    if (a.parts != nullptr) {
        CDDPI_TRY_CUDA(CDDPI_LAUNCH((norm_grad_sums<T, W>), blocks_of(grid), THREADS,
                                    shared_bytes<W>(), stream, from, x, a.by, dsum, a.parts, grid));
        CDDPI_TRY_CUDA(CDDPI_LAUNCH(norm_grad_join, join_blocks(grid), JOIN_CHANNELS * JOIN_ROWS, 0,
                                    stream, static_cast<const float *>(a.parts), grid, a.made));
    }
    if (a.out != nullptr) {
        bool written = a.parts != nullptr && dsum != nullptr;
        norm_grad_sources<T> again = written ? norm_grad_sources<T>{dsum, nullptr, nullptr, false}
                                             : from;

        return CDDPI_LAUNCH((norm_grad_inputs<T, W>), blocks_of(grid), THREADS, 0, stream, again, x,
                            a.by, static_cast<const float *>(a.made.means), static_cast<T *>(a.out),
                            written ? nullptr : dsum, grid);
    }
    return cudaSuccess;
}

template <class T> cddp_status backward(struct cddpi_device *device, const norm_grad_arguments &a)
{
    return CDDPI_STARTED(device, "gradient of batch norm",
                         is_whole<T>(a.shape->channels) ? (run_grad<T, packed<T>::N>(device, a))
                                                        : (run_grad<T, 1>(device, a)));
}

/* Gradients over an empty batch are 0. */
cddp_status clear(cddpi_device *device, const cddpi_cuda_norm *shape, bool add, float *dweight,
                  float *dbias)
{
    size_t bytes = (size_t)shape->channels * sizeof(float);

    if (add) {
        return CDDP_OK;
    }
    CDDPI_TRY(cddpi_cuda_clear(device, dweight, bytes));
    return cddpi_cuda_clear(device, dbias, bytes);
}

cddp_status batch_norm_grad(cddpi_device *device, const cddpi_cuda_norm *shape, const void *dy,
                            const void *other, const void *x, const void *y, const float *weight,
                            const float *bias, const float *mean, const float *inverse, bool add,
                            void *dx, void *dsum, float *dweight, float *dbias)
{
    norm_grad_arguments a = {};

    if (shape->rows == 0 || shape->channels == 0) {
        return clear(device, shape, add, dweight, dbias);
    }
    CDDPI_TRY(norm_scratch(device, shape, &a.parts));
    a.shape = shape;
    a.dy = dy;
    a.other = other;
    a.x = x;
    a.y = y;
    a.by = {mean, inverse, weight, bias, shape->epsilon};
    a.made = {inverse, dweight, dbias, a.parts + part_floats(device, (size_t)shape->channels),
              add,     nullptr, 1};
    a.out = dx;
    a.dsum = dsum;
    return CDDPI_BY_TYPE(shape->type, backward, device, a);
}

/* --- over ranks --- */

cddp_status batch_norm_grad_moments(cddpi_device *device, const cddpi_cuda_norm *shape,
                                    const void *dy, const void *x, const void *y, const float *mean,
                                    const float *inverse, bool add, double scale, float *dweight,
                                    float *dbias, double *sums)
{
    norm_grad_arguments a = {};

    if (shape->rows == 0) {
        CDDPI_TRY(clear(device, shape, add, dweight, dbias));
        return cddpi_cuda_clear(device, sums, 2 * (size_t)shape->channels * sizeof *sums);
    }
    CDDPI_TRY(norm_scratch(device, shape, &a.parts));
    a.shape = shape;
    a.dy = dy;
    a.x = x;
    a.y = y;
    a.by.mean = mean;
    a.made = {inverse, dweight, dbias, nullptr, add, sums, scale};
    return CDDPI_BY_TYPE(shape->type, backward, device, a);
}

cddp_status batch_norm_grad_apply(cddpi_device *device, const cddpi_cuda_norm *shape,
                                  const void *dy, const void *x, const void *y, const float *weight,
                                  const float *mean, const float *inverse, const double *sums,
                                  int ranks, const double *rows, double scale, void *dx, void *dsum)
{
    norm_grad_arguments a = {};

    if (shape->rows == 0) {
        return CDDP_OK;
    }
    CDDPI_TRY(norm_scratch(device, shape, &a.made.means));
    CDDPI_TRY(CDDPI_STARTED(device, "gradient of batch norm over ranks",
                            CDDPI_LAUNCH(norm_grad_merge,
                                         (unsigned)cddpi_ceil((size_t)shape->channels, 128), 128, 0,
                                         cddpi_cuda_compute_stream(device), sums, ranks,
                                         shape->channels, rows, inverse, scale, a.made.means)));
    a.shape = shape;
    a.dy = dy;
    a.x = x;
    a.y = y;
    a.by = {mean, inverse, weight, nullptr, shape->epsilon};
    a.out = dx;
    a.dsum = dsum;
    return CDDPI_BY_TYPE(shape->type, backward, device, a);
}
} // namespace

void cddpi_cuda_fill_batch_norm_grad(struct cddpi_cuda_kernels *out)
{
    out->batch_norm_grad = batch_norm_grad;
    out->batch_norm_grad_moments = batch_norm_grad_moments;
    out->batch_norm_grad_apply = batch_norm_grad_apply;
}
