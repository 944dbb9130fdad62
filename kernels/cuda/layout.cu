/* layout.cu - owns transposes: of images between N x C x H x W and channels last, with a conversion
 * of the type, and of matrices in general.
 *
 * One read and one write. A block moves a tile of 2048 elements through shared memory; it is read
 * along the rows and written along the columns, with 8 elements of each thread in flight: on an SM
 * with 6 blocks, 24 KiB of bf16 or 48 KiB of float32. A tile is 64 x 32. If one side is short (3
 * channels, a kernel of 3 x 3), the tile covers that side completely, so that whole cache lines are
 * read and written there, too. */
#include "kernels/cuda/vector.cuh"

namespace
{
enum { BLOCK = 256, TILE = 2048, SHORT = 32 };

/* in: count x rows x columns; out: count x columns x rows. */
struct transposition {
    unsigned rows, columns;
    unsigned tile_rows, tile_columns; /* of `in` */
    unsigned down, across;            /* tiles of a matrix */
};

/* The row and column of element i in rows of `width`, while i grows by BLOCK: needs no division in
 * each step. */
struct walk {
    unsigned row, column, width, rows_a_step, columns_a_step;

    __device__ walk(unsigned i, unsigned width_)
        : row(i / width_), column(i % width_), width(width_), rows_a_step(BLOCK / width_),
          columns_a_step(BLOCK % width_)
    {
    }
    __device__ void step()
    {
        row += rows_a_step;
        column += columns_a_step;
        if (column >= width) {
            column -= width;
            row++;
        }
    }
};

template <class In, class Out, bool ADD>
__global__ void __launch_bounds__(BLOCK, 5)
    transpose_tiles(const In *__restrict__ in, const transposition t, Out *out)
{
    __shared__ float tile[TILE + TILE / 2]; /* the most that odd row lengths take: 1024 rows of 3 */
    /* odd, so that elements of a column are in different banks */
    unsigned stride = t.tile_columns | 1;
    unsigned tiles = t.down * t.across;
    size_t matrix = (size_t)(blockIdx.x / tiles) * t.rows * t.columns;
    unsigned first_row = blockIdx.x % tiles / t.across * t.tile_rows;
    unsigned first_column = blockIdx.x % tiles % t.across * t.tile_columns;
    unsigned elements = t.tile_rows * t.tile_columns;
    walk from(threadIdx.x, t.tile_columns);
    walk to(threadIdx.x, t.tile_rows);
    In fetched[TILE / BLOCK];

    CDDPI_UNROLL
    /* all loads are issued before one is used */
    for (unsigned i = 0; i < TILE; i += BLOCK, from.step()) {
        unsigned row = first_row + from.row;
        unsigned column = first_column + from.column;

        fetched[i / BLOCK] = i + threadIdx.x < elements && row < t.rows && column < t.columns
                                 ? in[matrix + (size_t)row * t.columns + column]
                                 : In{};
    }
    from = walk(threadIdx.x, t.tile_columns);
    CDDPI_UNROLL
    for (unsigned i = 0; i < TILE; i += BLOCK, from.step()) {
        if (i + threadIdx.x < elements) {
            tile[from.row * stride + from.column] = to_float(fetched[i / BLOCK]);
        }
    }
    __syncthreads();
    CDDPI_UNROLL
    for (unsigned i = 0; i < TILE; i += BLOCK, to.step()) {
        unsigned row = first_row + to.column;
        unsigned column = first_column + to.row;
        size_t at = matrix + (size_t)column * t.rows + row;

        if (i + threadIdx.x < elements && row < t.rows && column < t.columns) {
            float x = tile[to.column * stride + to.row];

            out[at] = from_float<Out>(ADD ? to_float(out[at]) + x : x);
        }
    }
}

template <class In, class Out, bool ADD>
cudaError_t start(cddpi_device *device, const void *in, size_t count, size_t rows, size_t columns,
                  void *out)
{
    transposition t = {(unsigned)rows, (unsigned)columns, 2 * SHORT, SHORT, 0, 0};
    size_t blocks;

    if (count * rows * columns == 0) {
        return cudaSuccess;
    }
    if (rows > INT32_MAX || columns > INT32_MAX) {
        return cudaErrorInvalidValue;
    }
    if (columns <= SHORT) {
        t.tile_columns = (unsigned)columns;
        t.tile_rows = (unsigned)(rows < TILE / columns ? rows : TILE / columns);
    } else if (rows <= SHORT) {
        t.tile_rows = (unsigned)rows;
        t.tile_columns = (unsigned)(columns < TILE / rows ? columns : TILE / rows);
    }
    t.down = (unsigned)cddpi_ceil(rows, t.tile_rows);
    t.across = (unsigned)cddpi_ceil(columns, t.tile_columns);
    blocks = count * t.down * t.across;
    if (blocks > INT32_MAX) {
        return cudaErrorInvalidConfiguration;
    }
    return CDDPI_LAUNCH((transpose_tiles<In, Out, ADD>), (unsigned)blocks, BLOCK, 0,
                        cddpi_cuda_compute_stream(device), static_cast<const In *>(in), t,
                        static_cast<Out *>(out));
}

template <class T>
cddp_status to_channels_last_as(cddpi_device *device, const float *in, size_t count,
                                size_t channels, size_t area, void *out)
{
    return CDDPI_STARTED(device, "to_channels_last",
                         (start<float, T, false>(device, in, count, channels, area, out)));
}

cddp_status to_channels_last(cddpi_device *device, cddp_type type, const float *in, size_t count,
                             size_t channels, size_t area, void *out)
{
    return CDDPI_BY_TYPE(type, to_channels_last_as, device, in, count, channels, area, out);
}

template <class T>
cddp_status from_channels_last_as(cddpi_device *device, const void *in, size_t count,
                                  size_t channels, size_t area, bool add, float *out)
{
    cudaError_t error = add ? start<T, float, true>(device, in, count, area, channels, out)
                            : start<T, float, false>(device, in, count, area, channels, out);

    return CDDPI_STARTED(device, "from_channels_last", error);
}

cddp_status from_channels_last(cddpi_device *device, cddp_type type, const void *in, size_t count,
                               size_t channels, size_t area, bool add, float *out)
{
    return CDDPI_BY_TYPE(type, from_channels_last_as, device, in, count, channels, area, add, out);
}

template <class T>
cddp_status transpose_as(cddpi_device *device, const void *x, size_t count, size_t rows,
                         size_t columns, void *out)
{
    return CDDPI_STARTED(device, "transpose",
                         (start<T, T, false>(device, x, count, rows, columns, out)));
}

cddp_status transpose(cddpi_device *device, cddp_type type, const void *x, size_t count,
                      size_t rows, size_t columns, void *out)
{
    return CDDPI_BY_TYPE(type, transpose_as, device, x, count, rows, columns, out);
}
} // namespace

void cddpi_cuda_fill_layout(struct cddpi_cuda_kernels *out)
{
    out->to_channels_last = to_channels_last;
    out->from_channels_last = from_channels_last;
    out->transpose = transpose;
}
