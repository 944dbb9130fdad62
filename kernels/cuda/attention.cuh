/* attention.cuh - what the forward and backward kernels of attention share: tiles of a head in
 * shared memory, and products of tiles. */
#ifndef CDDPI_CUDA_ATTENTION_CUH
#define CDDPI_CUDA_ATTENTION_CUH

#include "kernels/cuda/own_kernels.h"
#include "kernels/cuda/vector.cuh"

namespace
{
/* The memory layout of a head; all strides are in elements. */
struct layout {
    int heads, length, head;
    float scale;
};

/* The threads of a block form a square of SIDE x SIDE. A tile of D columns is stored in rows of D +
 * 1, so that threads that read down a column use different banks. */
template <int D> struct shape_of;
template <> struct shape_of<64> {
    enum { QUERIES = 64, KEYS = 32, TILE = 32, SIDE = 16 };
};
template <> struct shape_of<128> {
    enum { QUERIES = 32, KEYS = 32, TILE = 16, SIDE = 16 };
};
template <> struct shape_of<256> {
    enum { QUERIES = 16, KEYS = 16, TILE = 8, SIDE = 8 };
};

template <class T> __device__ __forceinline__ float power(float x)
{
    return sizeof(T) == 4 ? expf(x) : __expf(x);
}

/* Load rows [first, first + ROWS) of a head into shared memory; zeros beyond the last row and the
 * last column. */
template <class T, int D, int ROWS, int W>
__device__ __forceinline__ void load_vectors(const T *from, size_t stride, int first,
                                             const layout &at, float *to)
{
    for (int i = (int)threadIdx.x; i < ROWS * (D / W); i += (int)blockDim.x) {
        int row = i / (D / W);
        int column = i % (D / W) * W;
        float values[W] = {0};

        if (first + row < at.length && column < at.head) {
            wide<T, W>::load(from + (size_t)(first + row) * stride + column, values);
        }
        CDDPI_UNROLL
        for (int j = 0; j < W; j++) {
            to[row * (D + 1) + column + j] = values[j];
        }
    }
}

template <class T, int D, int ROWS>
__device__ void load_tile(const T *from, size_t stride, int first, const layout &at, float *to)
{
    if (at.head % packed<T>::N == 0) {
        load_vectors<T, D, ROWS, packed<T>::N>(from, stride, first, at, to);
    } else {
        load_vectors<T, D, ROWS, 1>(from, stride, first, at, to);
    }
}

/* sum[i][j] += rows of a times rows of b, over the columns of a head. This thread's rows are SIDE
 * apart, starting at ty in a and at tx in b. */
template <int D, int SIDE, int RA, int RB>
__device__ __forceinline__ void dot_rows(const float *a, const float *b, int head, int tx, int ty,
                                         float (&sum)[RA][RB])
{
    for (int d = 0; d < head; d++) {
        float x[RA], y[RB];

        CDDPI_UNROLL
        for (int i = 0; i < RA; i++) {
            x[i] = a[(ty + SIDE * i) * (D + 1) + d];
        }
        CDDPI_UNROLL
        for (int j = 0; j < RB; j++) {
            y[j] = b[(tx + SIDE * j) * (D + 1) + d];
        }
        CDDPI_UNROLL
        for (int i = 0; i < RA; i++) {
            CDDPI_UNROLL
            for (int j = 0; j < RB; j++) {
                sum[i][j] = fmaf(x[i], y[j], sum[i][j]);
            }
        }
    }
}

/* sum[i][j] += the weights of row i (rows are WIDTH apart; DOWN: of column i) times column j of
 * tile. */
template <int D, int SIDE, int COUNT, int WIDTH, bool DOWN, int RA, int RB>
__device__ __forceinline__ void add_weighted(const float *weights, const float *tile, int tx,
                                             int ty, float (&sum)[RA][RB])
{
    for (int k = 0; k < COUNT; k++) {
        float x[RA], y[RB];

        CDDPI_UNROLL
        for (int i = 0; i < RA; i++) {
            x[i] = DOWN ? weights[k * WIDTH + ty + SIDE * i] : weights[(ty + SIDE * i) * WIDTH + k];
        }
        CDDPI_UNROLL
        for (int j = 0; j < RB; j++) {
            y[j] = tile[k * (D + 1) + tx + SIDE * j];
        }
        CDDPI_UNROLL
        for (int i = 0; i < RA; i++) {
            CDDPI_UNROLL
            for (int j = 0; j < RB; j++) {
                sum[i][j] = fmaf(x[i], y[j], sum[i][j]);
            }
        }
    }
}

template <class T, int SIDE, int RA, int RB>
__device__ __forceinline__ void store_tile(T *to, size_t stride, int first, const layout &at,
                                           int tx, int ty, const float (&values)[RA][RB])
{
    CDDPI_UNROLL
    for (int i = 0; i < RA; i++) {
        int row = first + ty + SIDE * i;

        CDDPI_UNROLL
        for (int j = 0; j < RB; j++) {
            int column = tx + SIDE * j;

            if (row < at.length && column < at.head) {
                to[(size_t)row * stride + column] = from_float<T>(values[i][j]);
            }
        }
    }
}

/* --- launches --- */

inline layout layout_of(const struct cddpi_cuda_attention *shape)
{
    return {shape->heads, shape->length, shape->head, 1.0f / sqrtf((float)shape->head)};
}

inline dim3 grid_of(const struct cddpi_cuda_attention *shape, int tile)
{
    return dim3((unsigned)((shape->length + tile - 1) / tile), (unsigned)shape->heads,
                (unsigned)shape->batch);
}

inline cddp_status check(struct cddpi_device *device, const struct cddpi_cuda_attention *shape)
{
    /* WIDEST: the widest head for which shared memory is enough; MOST: CUDA's limit of a grid's y
     * and z */
    enum { WIDEST = 256, MOST = 65535 };

    if (shape->head > WIDEST || shape->heads > MOST || shape->batch > MOST) {
        return cuda_fail(device, CDDP_ERR_UNAVAILABLE,
                         "attention: heads of %d (at most %d), %d heads, %d sequences (at "
                         "most %d of each)",
                         shape->head, (int)WIDEST, shape->heads, shape->batch, (int)MOST);
    }
    return CDDP_OK;
}
} // namespace

#endif
