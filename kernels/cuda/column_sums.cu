/* column_sums.cu - owns sums over rows, and the second step of all sums in parts.
 *
 * x is read once. A warp reads 32 adjacent vectors of 16 bytes; a block reads 8 rows at a time, and
 * requests 4 of these before it adds the first. That is 16 KiB in flight for each block; with 6
 * blocks on an SM, more than the 25 KiB that an H200's memory needs. About 8 blocks for each SM share
 * the rows, so that the partial sums (parts x columns floats) are small compared with x: on 132 SMs,
 * 32768 x 768 of bf16 are 48 MiB and give 352 parts, 1 MiB. */
#include "kernels/cuda/vector.cuh"

namespace
{
enum {
    WARPS = 8, /* warps of a block */
    AHEAD = 4, /* rows that a warp loads before it adds the first */
    RESIDENT = 8, /* blocks for each multiprocessor */
    LEAST_ROWS = WARPS * AHEAD, /* of a part */
    SUM_COLUMNS = 32,
    SUM_ROWS = 32
};

/* A thread sums W columns over every eighth row of the block; then the warps' sums are added in
 * order. */
template <class T, int W>
__global__ void __launch_bounds__(WARPS *CDDPI_WARP)
    column_parts(const T *__restrict__ x, size_t rows, size_t columns, size_t part_rows,
                 float *__restrict__ parts)
{
    __shared__ float sums[WARPS][CDDPI_WARP * W];
    int warp = (int)threadIdx.x / CDDPI_WARP;
    int lane = (int)threadIdx.x % CDDPI_WARP;
    size_t tile = (size_t)blockIdx.x * CDDPI_WARP * W;
    size_t column = tile + (size_t)lane * W;
    size_t first = (size_t)blockIdx.y * part_rows;
    size_t end = first + part_rows < rows ? first + part_rows : rows;
    float sum[W] = {};

    if (column < columns) {
        for (size_t base = first + warp; base < end; base += (size_t)WARPS * AHEAD) {
            typename wide<T, W>::raw row[AHEAD];

            CDDPI_UNROLL
            for (int i = 0; i < AHEAD; i++) {
                size_t r = base + (size_t)i * WARPS;

                row[i] = r < end ? wide<T, W>::fetch(x + r * columns + column)
                                 : typename wide<T, W>::raw{};
            }
            add_vectors<T, W>(row, sum);
        }
    }
    CDDPI_UNROLL
    for (int j = 0; j < W; j++) {
        /* adjacent lanes use adjacent addresses: no bank conflicts */
        sums[warp][j * CDDPI_WARP + lane] = sum[j];
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < CDDPI_WARP * W; i += (int)blockDim.x) {
        size_t c = tile + (size_t)(i % CDDPI_WARP) * W + i / CDDPI_WARP;
        float total = 0;

        for (int w = 0; w < WARPS; w++) {
            total += sums[w][i];
        }
        if (c < columns) {
            parts[(size_t)blockIdx.y * columns + c] = total;
        }
    }
}

/* 32 columns for each block; thread row r adds parts r, r + 32 ..., then these 32 sums are added in
 * order. */
__global__ void __launch_bounds__(SUM_COLUMNS *SUM_ROWS)
    sum_parts(const float *__restrict__ parts, size_t count, size_t columns, size_t split, bool add,
              float *__restrict__ first, float *__restrict__ second)
{
    __shared__ float sums[SUM_ROWS][SUM_COLUMNS];
    int r = (int)threadIdx.x / SUM_COLUMNS;
    size_t c = (size_t)blockIdx.x * SUM_COLUMNS + threadIdx.x % SUM_COLUMNS;
    float sum = 0;

    if (c < columns) {
        CDDPI_UNROLL
        for (size_t p = r; p < count; p += SUM_ROWS) {
            sum += parts[p * columns + c];
        }
    }
    sums[r][threadIdx.x % SUM_COLUMNS] = sum;
    __syncthreads();
    if (r == 0 && c < columns) {
        float *to = c < split ? first + c : second + (c - split);

        sum = 0;
        for (int i = 0; i < SUM_ROWS; i++) {
            sum += sums[i][threadIdx.x];
        }
        *to = add ? *to + sum : sum;
    }
}

/* How rows are divided. It depends only on the shape and the device, because the size of the scratch
 * memory depends on it. */
struct division {
    size_t parts, part_rows;
};

division divide(const cddpi_device *device, size_t rows, size_t columns, size_t width)
{
    size_t blocks = RESIDENT * cddpi_cuda_multiprocessors(device);
    size_t tiles = cddpi_ceil(columns, CDDPI_WARP * width);
    size_t wanted = tiles < blocks ? blocks / tiles : 1;
    size_t most = cddpi_ceil(rows, LEAST_ROWS);
    size_t part_rows = cddpi_ceil(rows, wanted < most ? wanted : most);

    return {cddpi_ceil(rows, part_rows), part_rows};
}

template <class T, int W>
cudaError_t start(cddpi_device *device, const void *x, size_t rows, size_t columns, bool add,
                  float *out, float *parts)
{
    cudaStream_t stream = cddpi_cuda_compute_stream(device);
    division shares = divide(device, rows, columns, W);
    dim3 grid((unsigned)cddpi_ceil(columns, CDDPI_WARP * W), (unsigned)shares.parts);
    cudaError_t error = CDDPI_LAUNCH((column_parts<T, W>), grid, WARPS * CDDPI_WARP, 0, stream,
                                     static_cast<const T *>(x), rows, columns, shares.part_rows,
                                     parts);

    return error != cudaSuccess ? error
                                : cddpi_cuda_sum_parts(stream, parts, shares.parts, columns,
                                                       columns, add, out, nullptr);
}

template <class T>
cddp_status column_sums_as(cddpi_device *device, const void *x, size_t rows, size_t columns,
                           bool add, float *out, float *parts)
{
    constexpr int N = packed<T>::N;
    cudaError_t error = columns % N == 0 ? start<T, N>(device, x, rows, columns, add, out, parts)
                                         : start<T, 1>(device, x, rows, columns, add, out, parts);

    return CDDPI_STARTED(device, "column_sums", error);
}

cddp_status column_sums(cddpi_device *device, cddp_type type, const void *x, size_t rows,
                        size_t columns, bool add, float *out, void *scratch)
{
    if (columns == 0) {
        return CDDP_OK;
    }
    if (rows == 0) {
        cudaError_t error = add ? cudaSuccess
                                : cudaMemsetAsync(out, 0, columns * sizeof *out,
                                                  cddpi_cuda_compute_stream(device));

        return CDDPI_STARTED(device, "column_sums", error);
    }
    return CDDPI_BY_TYPE(type, column_sums_as, device, x, rows, columns, add, out,
                         static_cast<float *>(scratch));
}

size_t sums_scratch(const cddpi_device *device, size_t rows, size_t columns)
{
    size_t most = 0;

    for (size_t width = 1; rows > 0 && width <= 8; width *= 2) {
        size_t parts = divide(device, rows, columns, width).parts;

        most = parts > most ? parts : most;
    }
    return most * columns * sizeof(float);
}
} // namespace

cudaError_t cddpi_cuda_sum_parts(cudaStream_t stream, const float *parts, size_t count,
                                 size_t columns, size_t split, bool add, float *first,
                                 float *second)
{
    return CDDPI_LAUNCH(sum_parts, (unsigned)cddpi_ceil(columns, SUM_COLUMNS),
                        SUM_COLUMNS * SUM_ROWS, 0, stream, parts, count, columns, split, add, first,
                        second);
}

void cddpi_cuda_fill_column_sums(struct cddpi_cuda_kernels *out)
{
    out->column_sums = column_sums;
    out->sums_scratch = sums_scratch;
}
