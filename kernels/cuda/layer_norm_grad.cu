/* layer_norm_grad.cu - owns layer norm backward.
 *
 * dy, x and the other gradient are read once, dx is written once: 4 x 48 MiB for 32768 x 768 of
 * bf16, 42 us at 4.8 TB/s. The parameters' gradients are summed in the same pass: a lane keeps the
 * sums of its columns in registers over all rows of its warp(s), the warps of a block add theirs in
 * shared memory, and each of at most 2 blocks for an SM writes one partial sum, which sum_parts adds
 * in order (1.6 MiB together on 132 SMs). 2 blocks on an SM are 16 warps; each lane requests its 9
 * vectors of a row at once, so 72 KiB are in flight.
 *
 * With g = dy weight and normal = (x - mean) inverse:
 *     dx = inverse (g - mean of g - normal x mean of g normal). */
#include "kernels/cuda/layer_norm.cuh"
#include "kernels/cuda/vector.cuh"

namespace
{
enum {
    MOST = 3,    /* vectors in the registers of a lane */
    RESIDENT = 2 /* blocks for each multiprocessor */
};

template <class T> struct grad_arguments {
    const T *dy, *x, *other;
    const float *weight, *mean, *inverse;
    size_t rows;
    int columns;
    T *dx;
    float *parts; /* of a block: columns of dweight, then columns of dbias */
};

/* The sums of a lane's columns. */
template <int EACH, int N> struct lane_parts {
    float dweight[EACH][N], dbias[EACH][N];
};

template <class T, int EACH>
__device__ __forceinline__ void load_all(const T *from, const norm_place &place, int vectors,
                                         bool active, uint4 (&words)[EACH])
{
    CDDPI_UNROLL
    for (int k = 0; k < EACH; k++) {
        int v = place.slot + k * place.stride;

        words[k] = make_uint4(0, 0, 0, 0);
        if (active && v < vectors) {
            words[k] = load_words(from + (size_t)v * packed<T>::N);
        }
    }
}

/* Compute the row's two means, and add to the parameters' sums. */
template <class T, int EACH>
__device__ __forceinline__ float2 add_row(const grad_arguments<T> &a, const norm_place &place,
                                          int vectors, const uint4 (&dy_words)[EACH],
                                          const uint4 (&x_words)[EACH], float mean, float inverse,
                                          lane_parts<EACH, packed<T>::N> &parts, float2 *shared)
{
    constexpr int N = packed<T>::N;
    float2 sums = make_float2(0, 0);

    CDDPI_UNROLL
    for (int k = 0; k < EACH; k++) {
        int v = place.slot + k * place.stride;

        if (v < vectors) {
            float dy[N], x[N], weight[N];

            packed<T>::unpack(dy_words[k], dy);
            packed<T>::unpack(x_words[k], x);
            load_floats(a.weight + v * N, weight);
            CDDPI_UNROLL
            for (int j = 0; j < N; j++) {
                float normal = (x[j] - mean) * inverse;
                float g = dy[j] * weight[j];

                sums.x += g;
                sums.y = fmaf(g, normal, sums.y);
                parts.dweight[k][j] = fmaf(dy[j], normal, parts.dweight[k][j]);
                parts.dbias[k][j] += dy[j];
            }
        }
    }
    sums = row_sums(sums, place, shared);
    return make_float2(sums.x / (float)a.columns, sums.y / (float)a.columns);
}

template <class T, int EACH>
__device__ __forceinline__ void
write_row(const grad_arguments<T> &a, const norm_place &place, size_t at, int vectors,
          const uint4 (&dy_words)[EACH], const uint4 (&x_words)[EACH],
          const uint4 (&other_words)[EACH], float mean, float inverse, float2 means)
{
    constexpr int N = packed<T>::N;

    CDDPI_UNROLL
    for (int k = 0; k < EACH; k++) {
        int v = place.slot + k * place.stride;

        if (v < vectors) {
            float dy[N], x[N], other[N], weight[N];

            packed<T>::unpack(dy_words[k], dy);
            packed<T>::unpack(x_words[k], x);
            packed<T>::unpack(other_words[k], other);
            load_floats(a.weight + v * N, weight);
            CDDPI_UNROLL
            for (int j = 0; j < N; j++) {
                float normal = (x[j] - mean) * inverse;

                dy[j] = fmaf(fmaf(-normal, means.y, fmaf(dy[j], weight[j], -means.x)), inverse,
                             other[j]);
            }
            store_words(a.dx + at + (size_t)v * N, packed<T>::pack(dy));
        }
    }
}

/* The groups of a block add their sums one after the other; then the block's sums are written. */
template <int EACH, int N>
__device__ __forceinline__ void leave_part(const float (&sums)[EACH][N], const norm_place &place,
                                           int vectors, float *shared, float *part)
{
    int groups = CDDPI_NORM_WARPS / place.warps;

    for (int group = 0; group < groups; group++) {
        CDDPI_UNROLL
        for (int k = 0; k < EACH; k++) {
            int v = place.slot + k * place.stride;

            if (group == place.group && v < vectors) {
                CDDPI_UNROLL
                /* adjacent lanes use adjacent addresses: no bank conflicts */
                for (int j = 0; j < N; j++) {
                    int at = j * vectors + v;

                    shared[at] = group == 0 ? sums[k][j] : shared[at] + sums[k][j];
                }
            }
        }
        __syncthreads();
    }
    for (int c = (int)threadIdx.x; c < vectors * N; c += (int)blockDim.x) {
        part[c] = shared[c % N * vectors + c / N];
    }
    __syncthreads();
}

template <class T, int EACH>
__global__ void __launch_bounds__(CDDPI_NORM_THREADS, 2)
    grad_rows(const grad_arguments<T> a, int warps_of_row)
{
    constexpr int N = packed<T>::N;
    __shared__ float2 shared[CDDPI_NORM_WARPS];
    CDDPI_DYNAMIC_SHARED(float, columns_shared);
    const norm_place place(warps_of_row);
    size_t groups = (size_t)(CDDPI_NORM_WARPS / place.warps);
    int vectors = a.columns / N;
    float *part = a.parts + (size_t)blockIdx.x * 2 * (size_t)a.columns;
    lane_parts<EACH, N> parts = {};

    for (size_t base = blockIdx.x * groups; base < a.rows; base += gridDim.x * groups) {
        size_t row = base + (size_t)place.group;
        bool active = row < a.rows;
        size_t at = row * (size_t)a.columns;
        uint4 dy[EACH], x[EACH], other[EACH];
        float mean = active ? a.mean[row] : 0;
        float inverse = active ? a.inverse[row] : 0;
        float2 means;

        load_all<T, EACH>(a.dy + at, place, vectors, active, dy);
        load_all<T, EACH>(a.x + at, place, vectors, active, x);
        load_all<T, EACH>(a.other + at, place, vectors, active && a.other != nullptr, other);
        means = add_row<T, EACH>(a, place, vectors, dy, x, mean, inverse, parts, shared);
        if (active) {
            write_row<T, EACH>(a, place, at, vectors, dy, x, other, mean, inverse, means);
        }
    }
    leave_part<EACH, N>(parts.dweight, place, vectors, columns_shared, part);
    leave_part<EACH, N>(parts.dbias, place, vectors, columns_shared, part + a.columns);
}

/* Any number of columns: a block handles one row at a time, and accumulates its partial sums in
 * memory, each column in one thread. */
template <class T>
__global__ void __launch_bounds__(CDDPI_NORM_THREADS) grad_any_rows(const grad_arguments<T> a)
{
    __shared__ float2 shared[CDDPI_NORM_WARPS];
    const norm_place place(CDDPI_NORM_WARPS);
    float *dweight = a.parts + (size_t)blockIdx.x * 2 * (size_t)a.columns;
    float *dbias = dweight + a.columns;

    for (int c = place.slot; c < a.columns; c += place.stride) {
        dweight[c] = dbias[c] = 0;
    }
    for (size_t row = blockIdx.x; row < a.rows; row += gridDim.x) {
        size_t at = row * (size_t)a.columns;
        float mean = a.mean[row];
        float inverse = a.inverse[row];
        float2 sums = make_float2(0, 0);

        for (int c = place.slot; c < a.columns; c += place.stride) {
            float dy = to_float(a.dy[at + (size_t)c]);
            float normal = (to_float(a.x[at + (size_t)c]) - mean) * inverse;

            sums.x += dy * a.weight[c];
            sums.y += dy * a.weight[c] * normal;
            dweight[c] += dy * normal;
            dbias[c] += dy;
        }
        sums = row_sums(sums, place, shared);
        sums.x /= (float)a.columns;
        sums.y /= (float)a.columns;
        for (int c = place.slot; c < a.columns; c += place.stride) {
            float g = to_float(a.dy[at + (size_t)c]) * a.weight[c];
            float normal = (to_float(a.x[at + (size_t)c]) - mean) * inverse;
            float other = a.other != nullptr ? to_float(a.other[at + (size_t)c]) : 0;

            a.dx[at + (size_t)c] = from_float<T>((g - sums.x - normal * sums.y) * inverse + other);
        }
    }
}

template <class T, int EACH>
cudaError_t start(cudaStream_t stream, const grad_arguments<T> &a, int warps, unsigned blocks)
{
    return CDDPI_LAUNCH((grad_rows<T, EACH>), blocks, CDDPI_NORM_THREADS,
                        (size_t)a.columns * sizeof(float), stream, a, warps);
}

template <class T>
cudaError_t choose(cudaStream_t stream, const grad_arguments<T> &a, cddpi_norm_layout layout,
                   unsigned blocks)
{
    switch (layout.each) {
    case 1:
        return start<T, 1>(stream, a, layout.warps, blocks);
    case 2:
        return start<T, 2>(stream, a, layout.warps, blocks);
    case 3:
        return start<T, 3>(stream, a, layout.warps, blocks);
    default:
        return CDDPI_LAUNCH((grad_any_rows<T>), blocks, CDDPI_NORM_THREADS, 0, stream, a);
    }
}

/* @p blocks, or as many as the device has places for. */
size_t at_most(const cddpi_device *device, size_t blocks)
{
    size_t places = RESIDENT * cddpi_cuda_multiprocessors(device);

    return blocks < places ? blocks : places;
}

template <class T>
cddp_status layer_norm_grad_as(cddpi_device *device, const grad_arguments<void> &any, bool add,
                               float *dweight, float *dbias)
{
    const grad_arguments<T> a = {static_cast<const T *>(any.dy),
                                 static_cast<const T *>(any.x),
                                 static_cast<const T *>(any.other),
                                 any.weight,
                                 any.mean,
                                 any.inverse,
                                 any.rows,
                                 any.columns,
                                 static_cast<T *>(any.dx),
                                 any.parts};
    cudaStream_t stream = cddpi_cuda_compute_stream(device);
    cddpi_norm_layout layout = cddpi_norm_layout_of((size_t)a.columns, packed<T>::N, MOST);
    size_t together = layout.each > 0 ? (size_t)(CDDPI_NORM_WARPS / layout.warps) : 1;
    size_t blocks = cddpi_ceil(a.rows, together);
    cudaError_t error;

    blocks = at_most(device, blocks);
    error = choose(stream, a, layout, (unsigned)blocks);
    if (error == cudaSuccess) {
        error = cddpi_cuda_sum_parts(stream, a.parts, blocks, 2 * (size_t)a.columns,
                                     (size_t)a.columns, add, dweight, dbias);
    }
    return CDDPI_STARTED(device, "layer_norm_grad", error);
}

cddp_status layer_norm_grad(cddpi_device *device, cddp_type type, const void *dy, const void *x,
                            const float *weight, const float *mean, const float *inverse,
                            size_t rows, size_t columns, const void *other, bool add, void *dx,
                            float *dweight, float *dbias, void *scratch)
{
    const grad_arguments<void> any = {
        dy, x, other, weight, mean, inverse, rows, (int)columns, dx, static_cast<float *>(scratch)};

    if (columns == 0) {
        return CDDP_OK;
    }
    if (rows == 0) {
        cudaStream_t stream = cddpi_cuda_compute_stream(device);
        cudaError_t error = cudaSuccess;

        if (!add) {
            error = cudaMemsetAsync(dweight, 0, columns * sizeof *dweight, stream);
        }
        if (!add && error == cudaSuccess) {
            error = cudaMemsetAsync(dbias, 0, columns * sizeof *dbias, stream);
        }
        return CDDPI_STARTED(device, "layer_norm_grad", error);
    }
    return CDDPI_BY_TYPE(type, layer_norm_grad_as, device, any, add, dweight, dbias);
}

size_t layer_norm_scratch(const cddpi_device *device, size_t rows, size_t columns)
{
    return at_most(device, rows) * 2 * columns * sizeof(float);
}
} // namespace

void cddpi_cuda_fill_layer_norm_grad(struct cddpi_cuda_kernels *out)
{
    out->layer_norm_grad = layer_norm_grad;
    out->layer_norm_scratch = layer_norm_scratch;
}
