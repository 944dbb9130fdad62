/* attention.cu - owns causal attention without cuDNN (its gradient: attention_grad.cu): for float32,
 * which cuDNN has no fused kernels for, for shapes that it does not take, and where it is not
 * installed.
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
#include "kernels/cuda/attention.cuh"

namespace
{
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

template <class T, int D>
cudaError_t launch_forward(cudaStream_t stream, const struct cddpi_cuda_attention *shape,
                           const T *qkv, T *out, float *stats)
{
    typedef shape_of<D> s;
    size_t bytes = ((s::QUERIES + s::KEYS) * (D + 1) + s::QUERIES * (s::KEYS + 1)) * sizeof(float);

    return CDDPI_LAUNCH((attention_forward<T, D>), grid_of(shape, s::QUERIES), s::SIDE * s::SIDE,
                        bytes, stream, qkv, out, stats, layout_of(shape));
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
} // namespace

cddp_status cddpi_cuda_own_attention(struct cddpi_device *device,
                                     const struct cddpi_cuda_attention *shape, const void *qkv,
                                     void *out, float *stats)
{
    cddp_status status = check(device, shape);

    return status != CDDP_OK ? status
                             : CDDPI_BY_TYPE(shape->type, forward, device, shape, qkv, out, stats);
}
