/* attention_grad.cu - owns the gradient of causal attention without cuDNN (attention.cu describes
 * the method). One block computes the gradients of a tile of keys and values, and one block the
 * gradient of a tile of queries, so no two blocks add to the same sum. */
#include "kernels/cuda/attention.cuh"

namespace
{
/* dots = sum over a head's columns of dout x out, with one warp for each row. */
template <class T>
__global__ void attention_dots(const T *out, const T *dout, float *dots, size_t rows, layout at)
{
    size_t i = (size_t)blockIdx.x * (blockDim.x / CDDPI_WARP) + threadIdx.x / CDDPI_WARP;
    size_t sequence = i / (size_t)at.length / (size_t)at.heads;
    size_t head = i / (size_t)at.length % (size_t)at.heads;
    size_t row = i % (size_t)at.length;
    size_t start = ((sequence * at.length + row) * at.heads + head) * at.head;
    float sum = 0;

    if (i >= rows) {
        return; /* the whole warp returns */
    }
    for (int c = (int)(threadIdx.x % CDDPI_WARP); c < at.head; c += CDDPI_WARP) {
        sum = fmaf(to_float(out[start + c]), to_float(dout[start + c]), sum);
    }
    sum = warp_sum(sum);
    if (threadIdx.x % CDDPI_WARP == 0) {
        dots[i] = sum;
    }
}

/* Tiles of queries and keys in shared memory, and their intermediate results. */
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
        __syncthreads(); /* all threads have finished with the previous tile */
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
        __syncthreads(); /* all threads have finished with the previous tile */
        load_tile<T, D, TILE>(base + width, 3 * width, key, at, tiles.k);
        load_tile<T, D, TILE>(base + 2 * width, 3 * width, key, at, tiles.v);
        __syncthreads();
        make_scores<T, D>(tiles, stats + rows, dots + rows, first, key, at, tx, ty);
        __syncthreads();
        add_weighted<D, SIDE, TILE, TILE + 1, false>(tiles.ds, tiles.k, tx, ty, dq);
    }
    store_tile<T, SIDE>(dqkv + start, 3 * width, first, at, tx, ty, dq);
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
} // namespace

size_t cddpi_cuda_own_attention_scratch(const struct cddpi_cuda_attention *shape)
{
    return (size_t)shape->batch * (size_t)shape->heads * (size_t)shape->length * sizeof(float);
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
