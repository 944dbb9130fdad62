/* batch_norm_grad.cu - owns the gradient of batch normalisation, through the relu and the sum
 * before it (batch_norm.cu says what it costs and how sums are made). */
#include "kernels/cuda/batch_norm.cuh"

namespace
{
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
__global__ void __launch_bounds__(THREADS, RESIDENT / 2)
    norm_grad_sums(const T *dy, const T *x, const T *y, const float *mean, float *parts, grid grid)
{
    CDDPI_DYNAMIC_SHARED(float, shared);
    place at = place_of<W>(grid);
    float centre[W] = {0};
    float sum[W] = {0};
    float products[W] = {0};

    if (at.channel < grid.channels) {
        load_floats(mean + at.channel, centre);
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
    leave_part<W>(grid, at, sum, products, shared, parts);
}

struct gradients {
    const float *inverse;
    float *dweight, *dbias;
    float *means; /* of dy, all channels'; then all slopes along x - mean */
    bool add;
    double *sums; /* instead of means: of dy and of dy (x - mean), without the scale */
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

/* All ranks' sums, in rank order, to `means` of a batch of *rows: a thread for each channel. */
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
    norm_grad_inputs(const T *dy, const T *x, const T *y, factors by, const float *means, T *dx,
                     T *dsum, grid grid)
{
    place at = place_of<W>(grid);
    float mean[W], inverse[W], factor[W], offset[W], slope[W];

    if (at.channel >= grid.channels) {
        return;
    }
    load_floats(by.mean + at.channel, mean);
    load_floats(by.inverse + at.channel, inverse);
    load_floats(by.weight + at.channel, factor);
    load_floats(means + at.channel, offset);
    load_floats(means + grid.channels + at.channel, slope);
    CDDPI_UNROLL
    for (int j = 0; j < W; j++) {
        factor[j] *= inverse[j];
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

/* Everything that the entry is given. */
struct arguments {
    const struct cddpi_cuda_norm *shape;
    const void *dy, *x, *y;
    factors by;
    gradients made;
    void *out, *dsum; /* out NULL: sums only */
    float *parts;     /* NULL: means are there */
};

template <class T, int W> cudaError_t run_grad(cudaStream_t stream, const arguments &a)
{
    grid grid = grid_of(a.shape->rows, a.shape->channels, W);
    const T *x = static_cast<const T *>(a.x);
    const T *dy = static_cast<const T *>(a.dy);
    const T *y = static_cast<const T *>(a.shape->relu ? a.y : nullptr);
    cudaError_t error = cudaSuccess;

    if (a.parts != nullptr) {
        error = CDDPI_LAUNCH((norm_grad_sums<T, W>), blocks_of(grid), THREADS, shared_bytes<W>(),
                             stream, dy, x, y, a.by.mean, a.parts, grid);
        if (error == cudaSuccess) {
            error = CDDPI_LAUNCH(norm_grad_join, join_blocks(grid), JOIN_CHANNELS * JOIN_ROWS, 0,
                                 stream, static_cast<const float *>(a.parts), grid, a.made);
        }
    }
    if (error == cudaSuccess && a.out != nullptr) {
        error = CDDPI_LAUNCH((norm_grad_inputs<T, W>), blocks_of(grid), THREADS, 0, stream, dy, x,
                             y, a.by, static_cast<const float *>(a.made.means),
                             static_cast<T *>(a.out), static_cast<T *>(a.dsum), grid);
    }
    return error;
}

template <class T> cddp_status backward(struct cddpi_device *device, const arguments &a)
{
    cudaStream_t stream = cddpi_cuda_compute_stream(device);

    return CDDPI_STARTED(device, "gradient of batch norm",
                         is_whole<T>(a.shape->channels) ? (run_grad<T, packed<T>::N>(stream, a))
                                                        : (run_grad<T, 1>(stream, a)));
}
} // namespace

size_t cddpi_cuda_batch_norm_scratch(int channels)
{
    return (part_floats((size_t)channels) + 2 * (size_t)channels) * sizeof(float);
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
    a.made = {inverse, dweight, dbias, scratch + part_floats((size_t)shape->channels),
              add,     nullptr, 1};
    a.out = dx;
    a.dsum = dsum;
    a.parts = scratch;
    return CDDPI_BY_TYPE(shape->type, backward, device, a);
}

cddp_status cddpi_cuda_own_batch_norm_grad_record(struct cddpi_device *device,
                                                  const struct cddpi_cuda_norm *shape,
                                                  const void *dy, const void *x, const void *y,
                                                  const float *mean, const float *inverse, bool add,
                                                  double scale, float *dweight, float *dbias,
                                                  double *sums, float *scratch)
{
    arguments a = {};

    a.shape = shape;
    a.dy = dy;
    a.x = x;
    a.y = y;
    a.by.mean = mean;
    a.made = {inverse, dweight, dbias, nullptr, add, sums, scale};
    a.parts = scratch;
    return CDDPI_BY_TYPE(shape->type, backward, device, a);
}

cddp_status cddpi_cuda_own_batch_norm_grad_apply(
    struct cddpi_device *device, const struct cddpi_cuda_norm *shape, const void *dy, const void *x,
    const void *y, const float *weight, const float *mean, const float *inverse, const double *sums,
    int ranks, const double *rows, double scale, void *dx, void *dsum, float *scratch)
{
    arguments a = {};
    cddp_status status = CDDPI_STARTED(
        device, "gradient of batch norm over ranks",
        CDDPI_LAUNCH(norm_grad_merge, (unsigned)cddpi_ceil((size_t)shape->channels, 128), 128, 0,
                     cddpi_cuda_compute_stream(device), sums, ranks, shape->channels, rows, inverse,
                     scale, scratch));

    a.shape = shape;
    a.dy = dy;
    a.x = x;
    a.y = y;
    a.by = {mean, inverse, weight, nullptr, shape->epsilon};
    a.made.means = scratch;
    a.out = dx;
    a.dsum = dsum;
    return status != CDDP_OK ? status : CDDPI_BY_TYPE(shape->type, backward, device, a);
}
