/* attention.cu - owns causal attention without cuDNN, and its gradient: for float32, which cuDNN
 * has no fused kernels for, for shapes that it does not take, and where it is not installed.
 *
 * FlashAttention's way (Dao, FlashAttention-2, 2023): a block keeps a tile of queries (backward: of
 * keys), walks over the tiles that it meets below the diagonal, and nothing of length x length is
 * ever in memory. Bytes are few (each block reads a head's keys and values once per tile of
 * queries, mostly from the second-level cache); what limits it is float32 arithmetic through shared
 * memory: a thread does 8 fused multiply-adds for 6 loads of 4 bytes from it, so about a third of
 * the card's float32 rate is what can be hoped for. Tensor cores are cuDNN's.
 *
 * Every sum has one order: a tile of keys gets its gradient from one block, tiles of queries in
 * turn, and queries get theirs in a second kernel, which makes the probabilities once more. */
#include "kernels/cuda/attention.h"

#include "kernels/cuda/vector.cuh"

namespace
{
/* Where the numbers of a head lie; all strides in elements. */
struct layout {
    int heads, length, head;
    float scale;
};

/* Threads of a block form a square of SIDE x SIDE; a tile of D columns is kept in rows of D + 1, so
 * that threads that read down a column meet different banks. */
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

/* Rows first ... first + ROWS - 1 of a head into shared memory; zeros behind the last. */
template <class T, int D, int ROWS>
__device__ void load_tile(const T *from, size_t stride, int first, const layout &at, float *to)
{
    constexpr int W = packed<T>::N;

    if (at.head % W == 0) {
        int vectors = at.head / W;

        for (int i = (int)threadIdx.x; i < ROWS * vectors; i += (int)blockDim.x) {
            int row = i / vectors;
            int column = i % vectors * W;
            float values[W] = {0};

            if (first + row < at.length) {
                wide<T, W>::load(from + (size_t)(first + row) * stride + column, values);
            }
            CDDPI_UNROLL
            for (int j = 0; j < W; j++) {
                to[row * (D + 1) + column + j] = values[j];
            }
        }
        return;
    }
    for (int i = (int)threadIdx.x; i < ROWS * at.head; i += (int)blockDim.x) {
        int row = i / at.head;
        int column = i % at.head;

        to[row * (D + 1) + column] = first + row < at.length
                                         ? to_float(from[(size_t)(first + row) * stride + column])
                                         : 0;
    }
}

/* sum[i][j] += rows of a times rows of b, over the columns of a head. This thread's rows are
 * SIDE apart, from ty of a and tx of b on. */
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

/* sum[i][j] += weights of row i (WIDTH apart; DOWN: of column i) times column j of tile. */
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

/* What a row of queries has seen so far. */
template <int ROWS> struct softmax_state {
    float max[ROWS], sum[ROWS];
};

/* Scores become powers of what is left after the largest so far; `factor` makes up for the one
 * before. A row's columns are with the SIDE threads of one ty, neighbours in a warp. */
template <class T, int SIDE, int RA, int RB>
__device__ __forceinline__ void soften(const layout &at, int first_query, int first_key, int tx,
                                       int ty, float (&s)[RA][RB], softmax_state<RA> &state,
                                       float (&factor)[RA])
{
    CDDPI_UNROLL
    for (int i = 0; i < RA; i++) {
        int query = first_query + ty + SIDE * i;
        float max = state.max[i];
        float sum = 0;

        CDDPI_UNROLL
        for (int j = 0; j < RB; j++) {
            s[i][j] = first_key + tx + SIDE * j <= query ? s[i][j] * at.scale : -INFINITY;
            max = fmaxf(max, s[i][j]);
        }
        CDDPI_UNROLL
        for (int mask = SIDE / 2; mask > 0; mask /= 2) {
            max = fmaxf(max, __shfl_xor_sync(CDDPI_ALL_LANES, max, mask, SIDE));
        }
        factor[i] = power<T>(state.max[i] - max);
        CDDPI_UNROLL
        for (int j = 0; j < RB; j++) {
            s[i][j] = power<T>(s[i][j] - max);
            sum += s[i][j];
        }
        CDDPI_UNROLL
        for (int mask = SIDE / 2; mask > 0; mask /= 2) {
            sum += __shfl_xor_sync(CDDPI_ALL_LANES, sum, mask, SIDE);
        }
        state.max[i] = max;
        state.sum[i] = state.sum[i] * factor[i] + sum;
    }
}

/* Grid: tiles of queries, the longest first; heads; sequences. */
template <class T, int D>
__global__ void __launch_bounds__(shape_of<D>::SIDE *shape_of<D>::SIDE)
    attention_forward(const T *qkv, T *out, float *stats, layout at)
{
    constexpr int SIDE = shape_of<D>::SIDE, QUERIES = shape_of<D>::QUERIES;
    constexpr int KEYS = shape_of<D>::KEYS;
    constexpr int RA = QUERIES / SIDE, RB = KEYS / SIDE, RD = D / SIDE;
    CDDPI_DYNAMIC_SHARED(float, shared);
    float *q = shared;
    float *kv = q + QUERIES * (D + 1);
    float *p = kv + KEYS * (D + 1);
    int tx = (int)threadIdx.x % SIDE, ty = (int)threadIdx.x / SIDE;
    int first = (int)(gridDim.x - 1 - blockIdx.x) * QUERIES;
    size_t width = (size_t)at.heads * (size_t)at.head;
    const T *base = qkv + blockIdx.z * (size_t)at.length * 3 * width + blockIdx.y * (size_t)at.head;
    softmax_state<RA> state;
    float o[RA][RD] = {{0}};
    int end = first + QUERIES < at.length ? first + QUERIES : at.length;

    CDDPI_UNROLL
    for (int i = 0; i < RA; i++) {
        state.max[i] = -INFINITY;
        state.sum[i] = 0;
    }
    load_tile<T, D, QUERIES>(base, 3 * width, first, at, q);
    for (int key = 0; key < end; key += KEYS) {
        float s[RA][RB] = {{0}};
        float factor[RA];

        __syncthreads(); /* values of the tile before, and p, have been used */
        load_tile<T, D, KEYS>(base + width, 3 * width, key, at, kv);
        __syncthreads();
        dot_rows<D, SIDE>(q, kv, at.head, tx, ty, s);
        soften<T, SIDE>(at, first, key, tx, ty, s, state, factor);
        CDDPI_UNROLL
        for (int i = 0; i < RA; i++) {
            CDDPI_UNROLL
            for (int j = 0; j < RB; j++) {
                p[(ty + SIDE * i) * (KEYS + 1) + tx + SIDE * j] = s[i][j];
            }
            CDDPI_UNROLL
            for (int j = 0; j < RD; j++) {
                o[i][j] *= factor[i];
            }
        }
        __syncthreads();
        load_tile<T, D, KEYS>(base + 2 * width, 3 * width, key, at, kv);
        __syncthreads();
        add_weighted<D, SIDE, KEYS, KEYS + 1, false>(p, kv, tx, ty, o);
    }
    CDDPI_UNROLL
    for (int i = 0; i < RA; i++) {
        int row = first + ty + SIDE * i;
        float inverse = 1.0f / state.sum[i];

        CDDPI_UNROLL
        for (int j = 0; j < RD; j++) {
            o[i][j] *= inverse;
        }
        if (stats != nullptr && tx == 0 && row < at.length) {
            stats[((size_t)blockIdx.z * at.heads + blockIdx.y) * at.length + row] =
                state.max[i] + logf(state.sum[i]);
        }
    }
    store_tile<T, SIDE>(out + blockIdx.z * (size_t)at.length * width + blockIdx.y * (size_t)at.head,
                        width, first, at, tx, ty, o);
}

/* dots = sum over a head's columns of dout x out; a warp a row. */
template <class T>
__global__ void attention_dots(const T *out, const T *dout, float *dots, size_t rows, layout at)
{
    size_t i = (size_t)blockIdx.x * (blockDim.x / CDDPI_WARP) + threadIdx.x / CDDPI_WARP;
    size_t sequence = i / (size_t)(at.heads * at.length);
    size_t head = i / (size_t)at.length % (size_t)at.heads;
    size_t row = i % (size_t)at.length;
    size_t start = ((sequence * at.length + row) * at.heads + head) * at.head;
    float sum = 0;

    if (i >= rows) {
        return; /* with its whole warp */
    }
    for (int c = (int)(threadIdx.x % CDDPI_WARP); c < at.head; c += CDDPI_WARP) {
        sum = fmaf(to_float(out[start + c]), to_float(dout[start + c]), sum);
    }
    sum = warp_sum(sum);
    if (threadIdx.x % CDDPI_WARP == 0) {
        dots[i] = sum;
    }
}

/* Tiles of both kinds in shared memory, and what comes of them. */
template <int D> struct backward_tiles {
    float *q, *dout, *k, *v, *p, *ds;
};

template <int D> constexpr size_t backward_bytes()
{
    constexpr size_t tile = shape_of<D>::TILE;

    return (4 * tile * (D + 1) + 2 * tile * (tile + 1)) * sizeof(float);
}

template <int D> __device__ __forceinline__ backward_tiles<D> tiles_at(float *shared)
{
    constexpr int tile = shape_of<D>::TILE * (D + 1);
    float *small = shared + 4 * tile;

    return {shared,
            shared + tile,
            shared + 2 * tile,
            shared + 3 * tile,
            small,
            small + shape_of<D>::TILE * (shape_of<D>::TILE + 1)};
}

/* p = probabilities of a tile of queries over a tile of keys, ds = gradients of their scores. */
template <class T, int D>
__device__ __forceinline__ void make_scores(const backward_tiles<D> &tiles, const float *stats,
                                            const float *dots, int first_query, int first_key,
                                            const layout &at, int tx, int ty)
{
    constexpr int SIDE = shape_of<D>::SIDE, TILE = shape_of<D>::TILE;
    constexpr int R = TILE / SIDE;
    float s[R][R] = {{0}};
    float dp[R][R] = {{0}};

    dot_rows<D, SIDE>(tiles.q, tiles.k, at.head, tx, ty, s);
    dot_rows<D, SIDE>(tiles.dout, tiles.v, at.head, tx, ty, dp);
    CDDPI_UNROLL
    for (int i = 0; i < R; i++) {
        int query = first_query + ty + SIDE * i;
        bool there = query < at.length;
        float log_sum = there ? stats[query] : 0;
        float dot = there ? dots[query] : 0;

        CDDPI_UNROLL
        for (int j = 0; j < R; j++) {
            int key = first_key + tx + SIDE * j;
            int place = (ty + SIDE * i) * (TILE + 1) + tx + SIDE * j;
            float p = there && key <= query ? power<T>(s[i][j] * at.scale - log_sum) : 0;

            tiles.p[place] = p;
            tiles.ds[place] = there && key <= query ? p * (dp[i][j] - dot) * at.scale : 0;
        }
    }
}

/* Grid: tiles of keys, the longest first; heads; sequences. */
template <class T, int D>
__global__ void __launch_bounds__(shape_of<D>::SIDE *shape_of<D>::SIDE)
    attention_backward_keys(const T *qkv, const T *dout, const float *stats, const float *dots,
                            T *dqkv, layout at)
{
    constexpr int SIDE = shape_of<D>::SIDE, TILE = shape_of<D>::TILE;
    CDDPI_DYNAMIC_SHARED(float, shared);
    backward_tiles<D> tiles = tiles_at<D>(shared);
    int tx = (int)threadIdx.x % SIDE, ty = (int)threadIdx.x / SIDE;
    int first = (int)blockIdx.x * TILE;
    size_t width = (size_t)at.heads * (size_t)at.head;
    size_t start = blockIdx.z * (size_t)at.length * 3 * width + blockIdx.y * (size_t)at.head;
    size_t rows = ((size_t)blockIdx.z * at.heads + blockIdx.y) * at.length;
    const T *base = qkv + start;
    const T *from = dout + blockIdx.z * (size_t)at.length * width + blockIdx.y * (size_t)at.head;
    float dk[TILE / SIDE][D / SIDE] = {{0}};
    float dv[TILE / SIDE][D / SIDE] = {{0}};

    load_tile<T, D, TILE>(base + width, 3 * width, first, at, tiles.k);
    load_tile<T, D, TILE>(base + 2 * width, 3 * width, first, at, tiles.v);
    for (int query = first; query < at.length; query += TILE) {
        __syncthreads(); /* everything of the tile before has been used */
        load_tile<T, D, TILE>(base, 3 * width, query, at, tiles.q);
        load_tile<T, D, TILE>(from, width, query, at, tiles.dout);
        __syncthreads();
        make_scores<T, D>(tiles, stats + rows, dots + rows, query, first, at, tx, ty);
        __syncthreads();
        add_weighted<D, SIDE, TILE, TILE + 1, true>(tiles.p, tiles.dout, tx, ty, dv);
        add_weighted<D, SIDE, TILE, TILE + 1, true>(tiles.ds, tiles.q, tx, ty, dk);
    }
    store_tile<T, SIDE>(dqkv + start + width, 3 * width, first, at, tx, ty, dk);
    store_tile<T, SIDE>(dqkv + start + 2 * width, 3 * width, first, at, tx, ty, dv);
}

/* Grid: tiles of queries, the longest first; heads; sequences. */
template <class T, int D>
__global__ void __launch_bounds__(shape_of<D>::SIDE *shape_of<D>::SIDE)
    attention_backward_queries(const T *qkv, const T *dout, const float *stats, const float *dots,
                               T *dqkv, layout at)
{
    constexpr int SIDE = shape_of<D>::SIDE, TILE = shape_of<D>::TILE;
    CDDPI_DYNAMIC_SHARED(float, shared);
    backward_tiles<D> tiles = tiles_at<D>(shared);
    int tx = (int)threadIdx.x % SIDE, ty = (int)threadIdx.x / SIDE;
    int first = (int)(gridDim.x - 1 - blockIdx.x) * TILE;
    size_t width = (size_t)at.heads * (size_t)at.head;
    size_t start = blockIdx.z * (size_t)at.length * 3 * width + blockIdx.y * (size_t)at.head;
    size_t rows = ((size_t)blockIdx.z * at.heads + blockIdx.y) * at.length;
    const T *base = qkv + start;
    const T *from = dout + blockIdx.z * (size_t)at.length * width + blockIdx.y * (size_t)at.head;
    float dq[TILE / SIDE][D / SIDE] = {{0}};

    load_tile<T, D, TILE>(base, 3 * width, first, at, tiles.q);
    load_tile<T, D, TILE>(from, width, first, at, tiles.dout);
    for (int key = 0; key < first + TILE && key < at.length; key += TILE) {
        __syncthreads(); /* everything of the tile before has been used */
        load_tile<T, D, TILE>(base + width, 3 * width, key, at, tiles.k);
        load_tile<T, D, TILE>(base + 2 * width, 3 * width, key, at, tiles.v);
        __syncthreads();
        make_scores<T, D>(tiles, stats + rows, dots + rows, first, key, at, tx, ty);
        __syncthreads();
        add_weighted<D, SIDE, TILE, TILE + 1, false>(tiles.ds, tiles.k, tx, ty, dq);
    }
    store_tile<T, SIDE>(dqkv + start, 3 * width, first, at, tx, ty, dq);
}

/* --- launches --- */

layout layout_of(const struct cddpi_cuda_attention *shape)
{
    return {shape->heads, shape->length, shape->head, 1.0f / sqrtf((float)shape->head)};
}

dim3 grid_of(const struct cddpi_cuda_attention *shape, int tile)
{
    return dim3((unsigned)((shape->length + tile - 1) / tile), (unsigned)shape->heads,
                (unsigned)shape->batch);
}

template <class T, int D>
cudaError_t launch_forward(cudaStream_t stream, const struct cddpi_cuda_attention *shape,
                           const T *qkv, T *out, float *stats)
{
    typedef shape_of<D> s;
    size_t bytes = ((s::QUERIES + s::KEYS) * (D + 1) + s::QUERIES * (s::KEYS + 1)) * sizeof(float);

    return CDDPI_LAUNCH((attention_forward<T, D>), grid_of(shape, s::QUERIES), s::SIDE * s::SIDE,
                        bytes, stream, qkv, out, stats, layout_of(shape));
}

template <class T, int D>
cudaError_t launch_backward(cudaStream_t stream, const struct cddpi_cuda_attention *shape,
                            const T *qkv, const float *stats, const T *dout, T *dqkv,
                            const float *dots)
{
    typedef shape_of<D> s;
    cudaError_t error;

    error = CDDPI_LAUNCH((attention_backward_keys<T, D>), grid_of(shape, s::TILE),
                         s::SIDE * s::SIDE, backward_bytes<D>(), stream, qkv, dout, stats, dots,
                         dqkv, layout_of(shape));
    if (error != cudaSuccess) {
        return error;
    }
    return CDDPI_LAUNCH((attention_backward_queries<T, D>), grid_of(shape, s::TILE),
                        s::SIDE * s::SIDE, backward_bytes<D>(), stream, qkv, dout, stats, dots,
                        dqkv, layout_of(shape));
}

template <class T>
cddp_status forward(struct cddpi_device *device, const struct cddpi_cuda_attention *shape,
                    const void *qkv, void *out, float *stats)
{
    cudaStream_t stream = cddpi_cuda_compute_stream(device);
    const T *from = static_cast<const T *>(qkv);
    T *to = static_cast<T *>(out);
    cudaError_t error = shape->head <= 64 ? launch_forward<T, 64>(stream, shape, from, to, stats)
                        : shape->head <= 128
                            ? launch_forward<T, 128>(stream, shape, from, to, stats)
                            : launch_forward<T, 256>(stream, shape, from, to, stats);

    return CDDPI_STARTED(device, "attention", error);
}

template <class T>
cddp_status backward(struct cddpi_device *device, const struct cddpi_cuda_attention *shape,
                     const void *qkv, const void *out, const float *stats, const void *dout,
                     void *dqkv, float *dots)
{
    enum { WARPS = 8 };
    cudaStream_t stream = cddpi_cuda_compute_stream(device);
    size_t rows = (size_t)shape->batch * (size_t)shape->heads * (size_t)shape->length;
    const T *from = static_cast<const T *>(qkv);
    const T *gradient = static_cast<const T *>(dout);
    T *to = static_cast<T *>(dqkv);
    cudaError_t error = CDDPI_LAUNCH(attention_dots<T>, (unsigned)cddpi_ceil(rows, WARPS),
                                     WARPS * CDDPI_WARP, 0, stream, static_cast<const T *>(out),
                                     gradient, dots, rows, layout_of(shape));

    if (error == cudaSuccess) {
        error = shape->head <= 64
                    ? launch_backward<T, 64>(stream, shape, from, stats, gradient, to, dots)
                : shape->head <= 128
                    ? launch_backward<T, 128>(stream, shape, from, stats, gradient, to, dots)
                    : launch_backward<T, 256>(stream, shape, from, stats, gradient, to, dots);
    }
    return CDDPI_STARTED(device, "gradient of attention", error);
}

cddp_status check(struct cddpi_device *device, const struct cddpi_cuda_attention *shape)
{
    enum { WIDEST = 256, MOST = 65535 }; /* of shared memory; of a grid's other dimensions */

    if (shape->head > WIDEST || shape->heads > MOST || shape->batch > MOST) {
        return cddpi_cuda_fail(device, CDDP_ERR_UNAVAILABLE,
                               "attention: heads of %d (at most %d), %d heads, %d sequences (at "
                               "most %d of each)",
                               shape->head, (int)WIDEST, shape->heads, shape->batch, (int)MOST);
    }
    return CDDP_OK;
}
} // namespace

size_t cddpi_cuda_own_attention_scratch(const struct cddpi_cuda_attention *shape)
{
    return (size_t)shape->batch * (size_t)shape->heads * (size_t)shape->length * sizeof(float);
}

cddp_status cddpi_cuda_own_attention(struct cddpi_device *device,
                                     const struct cddpi_cuda_attention *shape, const void *qkv,
                                     void *out, float *stats)
{
    cddp_status status = check(device, shape);

    return status != CDDP_OK ? status
                             : CDDPI_BY_TYPE(shape->type, forward, device, shape, qkv, out, stats);
}

cddp_status cddpi_cuda_own_attention_grad(struct cddpi_device *device,
                                          const struct cddpi_cuda_attention *shape, const void *qkv,
                                          const void *out, const float *stats, const void *dout,
                                          void *dqkv, float *scratch)
{
    cddp_status status = check(device, shape);

    return status != CDDP_OK ? status
                             : CDDPI_BY_TYPE(shape->type, backward, device, shape, qkv, out, stats,
                                             dout, dqkv, scratch);
}
