/* batch_norm.cuh - what the forward and backward kernels of batch normalisation share: which
 * channels and rows a block processes, and sums over rows. */
#ifndef CDDPI_CUDA_BATCH_NORM_CUH
#define CDDPI_CUDA_BATCH_NORM_CUH

#include "base/error.h"
#include "kernels/cuda/vector.cuh"

namespace
{
/* Blocks have THREADS threads: `across` of them side by side over channels, the others below over
 * rows. All blocks of a grid run at the same time, RESIDENT on each multiprocessor of the device; or
 * in two waves of half as many, where two inputs and their factors take more than 64 registers. A
 * few blocks more would run alone at the end, with too few memory requests in flight. */
enum { THREADS = 256, WIDEST = 32, JOIN_CHANNELS = 8, JOIN_ROWS = 32, RESIDENT = 4 };
/* Rows that a thread requests at once: if it only sums, and if it has two inputs or more. */
enum { SUMMED = 4, WRITTEN = 2 };

struct grid {
    size_t rows;
    int channels;
    int across;      /* threads over channels */
    unsigned strips; /* of channels, blocks side by side */
    unsigned pieces; /* of rows */
    size_t piece;    /* rows of one */
};

/* Whether @p channels fill whole vectors; that is then true of every row. */
template <class T> bool is_whole(int channels)
{
    return channels % packed<T>::N == 0;
}

inline size_t wanted_blocks(const cddpi_device *device)
{
    return RESIDENT * cddpi_cuda_multiprocessors(device);
}

inline unsigned pieces_of(size_t rows, unsigned strips, size_t below, size_t blocks)
{
    size_t wanted = strips < blocks ? blocks / strips : 1;
    size_t most = cddpi_ceil(rows, 4 * below); /* at least four rows for each thread */

    return (unsigned)(wanted < most ? wanted : most > 0 ? most : 1);
}

inline grid grid_of(const cddpi_device *device, size_t rows, int channels, int width)
{
    int vectors = (channels + width - 1) / width;
    grid grid = {rows, channels, 1, 0, 0, 0};

    while (grid.across < vectors && grid.across < WIDEST) {
        grid.across *= 2;
    }
    grid.strips = (unsigned)cddpi_ceil((size_t)vectors, (size_t)grid.across);
    grid.piece = cddpi_ceil(rows, pieces_of(rows, grid.strips, (size_t)(THREADS / grid.across),
                                            wanted_blocks(device)));
    /* rounded up, so fewer pieces can be enough */
    grid.pieces = (unsigned)cddpi_ceil(rows, grid.piece);
    return grid;
}

/* The channels and rows of this thread. */
struct place {
    int channel; /* the first one; beyond the last if it is `channels` or more */
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

/* Rows row, row + step ... unconverted; zeros beyond the last. All are requested before the first
 * is used, which keeps the memory busy. */
template <class T, int W, int ROWS>
__device__ __forceinline__ void fetch_rows(const T *from, const grid &grid, const place &at,
                                           size_t row, typename wide<T, W>::raw (&out)[ROWS])
{
    CDDPI_UNROLL
    for (int r = 0; r < ROWS; r++) {
        size_t i = row + (size_t)r * at.step;

        out[r] = i < at.end ? wide<T, W>::fetch(from + i * grid.channels + at.channel)
                            : typename wide<T, W>::raw{};
    }
}

/* The same, converted to floats. */
template <class T, int W, int ROWS>
__device__ __forceinline__ void load_rows(const T *from, const grid &grid, const place &at,
                                          size_t row, float (&out)[ROWS][W])
{
    typename wide<T, W>::raw words[ROWS];

    fetch_rows<T, W, ROWS>(from, grid, at, row, words);
    CDDPI_UNROLL
    for (int r = 0; r < ROWS; r++) {
        wide<T, W>::unpack(words[r], out[r]);
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

/* The block's sums over its rows, valid in the threads of its first row. @p shared: 2 W floats for
 * each thread. */
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

/* parts[piece][channel] = the block's two sums. */
template <int W>
__device__ __forceinline__ void leave_part(const grid &grid, const place &at, float (&a)[W],
                                           float (&b)[W], float *shared, float *parts)
{
    sum_rows<W>(grid, a, b, shared);
    if (at.channel < grid.channels && threadIdx.x < (unsigned)grid.across) {
        CDDPI_UNROLL
        for (int j = 0; j < W; j++) {
            float *to = parts + 2 * ((size_t)blockIdx.y * grid.channels + at.channel + j);

            to[0] = a[j];
            to[1] = b[j];
        }
    }
}

/* The factors of a channel are computed from these. */
struct factors {
    const float *mean, *inverse, *weight, *bias;
    float epsilon;
};

/* --- launches --- */

inline dim3 blocks_of(const grid &grid)
{
    return dim3(grid.strips, grid.pieces);
}

template <int W> size_t shared_bytes()
{
    return THREADS * 2 * W * sizeof(float);
}

inline unsigned join_blocks(const grid &grid)
{
    return (unsigned)cddpi_ceil((size_t)grid.channels, JOIN_CHANNELS);
}

/* Floats for all pieces of any shape with @p channels channels, for every vector width: unless
 * there are more strips, a grid has at most the wanted blocks. */
inline size_t part_floats(const cddpi_device *device, size_t channels)
{
    size_t strips = cddpi_ceil(channels, WIDEST * packed<cddpi_bf16>::N);

    return 2 * channels * cddpi_ceil(wanted_blocks(device), strips);
}

/* Scratch that is enough for any batch normalisation of the shape's channels. */
inline cddp_status norm_scratch(cddpi_device *device, const cddpi_cuda_norm *shape, float **out)
{
    size_t channels = (size_t)shape->channels;
    void *memory = nullptr;

    CDDPI_TRY(cddpi_cuda_scratch(
        device, (part_floats(device, channels) + 2 * channels) * sizeof(float), &memory));
    *out = static_cast<float *>(memory);
    return CDDP_OK;
}
} // namespace

#endif
