/* attention.cu - owns causal attention without cuDNN (its gradient: attention_grad.cu): for
 * float32, where cuDNN has no fused kernels; for shapes that cuDNN does not support; and where it
 * is not installed.
 *
 * The method is FlashAttention (Dao, FlashAttention-2, 2023). A block keeps a tile of queries (in
 * backward: of keys) and loops over the tiles up to the diagonal, so nothing of length x length is
 * ever in memory. Little memory is read: each block reads a head's keys and values once for each
 * tile of queries, mostly from L2. The limit is float32 arithmetic with operands from shared
 * memory: a thread does 8 fused multiply-adds for 6 loads of 4 bytes, so at best it reaches about a
 * third of the card's float32 rate. Tensor cores are left to cuDNN.
 *
 * Every sum has a fixed order. One block computes the gradient of a tile of keys, with the tiles of
 * queries in order. A second kernel computes the gradient of queries, and recomputes the
 * probabilities. */
#include "kernels/cuda/attention.cuh"

namespace
{
/* The running state of a row of queries: its maximum and sum so far. */
template <int ROWS> struct softmax_state {
    float max[ROWS], sum[ROWS];
};

/* Replace scores by exponentials relative to the maximum so far; `factor` corrects results that
 * used an earlier maximum. The columns of a row belong to the SIDE threads of one ty, which are
 * neighbours in a warp. */
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

        __syncthreads(); /* all threads have finished with p and the previous tile's values */
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
