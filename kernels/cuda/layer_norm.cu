/* layer_norm.cu - owns layer norm forward, fused with the residual sum before it.
 *
 * x and the residual are read once, the sum and the output are written once: 4 x 48 MiB for 32768 x
 * 768 of bf16, 42 us at 4.8 TB/s. A row stays in the registers of its warp(s), so mean, variance
 * and output need no second read. With 768 columns of bf16 a lane holds 3 vectors and requests all
 * of them (6 with a residual) at once; 32 warps on an SM have 96 KiB in flight. Weight and bias
 * come from L1: 6 KiB for each row, beside 6 KiB from memory, which is a quarter of L1's rate.
 *
 * The variance is that of the remainders after subtracting the mean, and the mean is corrected by
 * the mean of the remainders, so a row far from zero loses no precision. Statistics are computed
 * from the rounded sum as it is stored, because backward reads that. */
#include "kernels/cuda/layer_norm.cuh"

namespace
{
enum { MOST = 4 }; /* vectors in the registers of a lane */

template <class T> struct norm_arguments {
    const T *x, *residual;
    const float *weight, *bias;
    float epsilon;
    size_t rows;
    int columns;
    T *sum, *out;
    float *mean, *inverse;
};

/* x + residual, rounded as it is stored. */
template <class T> __device__ __forceinline__ float stored_sum(float x, float residual)
{
    return to_float(from_float<T>(x + residual));
}

struct layer_norm_moments {
    float mean, inverse;
};

/* From the sums of (x - mean) and of its squares. */
__device__ __forceinline__ layer_norm_moments moments_from(float mean, float2 sums, int columns, float epsilon)
{
    float offset = sums.x / (float)columns;
    float variance = fmaxf(sums.y / (float)columns - offset * offset, 0.0f);

    /* the maximum would hide a NaN */
    variance = sums.y != sums.y ? sums.y : variance;
    return {mean + offset, 1.0f / sqrtf(variance + epsilon)};
}

template <class T, int EACH>
__device__ __forceinline__ void load_row(const norm_arguments<T> &a, const norm_place &place,
                                         size_t at, int vectors, bool active,
                                         float (&x)[EACH][packed<T>::N])
{
    constexpr int N = packed<T>::N;
    uint4 words[EACH], more[EACH];

    CDDPI_UNROLL
    for (int k = 0; k < EACH; k++) {
        int v = place.slot + k * place.stride;

        words[k] = active && v < vectors ? load_words(a.x + at + (size_t)v * N)
                                         : make_uint4(0, 0, 0, 0);
        more[k] = active && v < vectors && a.residual != nullptr
                      ? load_words(a.residual + at + (size_t)v * N)
                      : make_uint4(0, 0, 0, 0);
    }
    CDDPI_UNROLL
    for (int k = 0; k < EACH; k++) {
        packed<T>::unpack(words[k], x[k]);
        if (a.residual != nullptr) {
            float b[N];

            packed<T>::unpack(more[k], b);
            CDDPI_UNROLL
            for (int j = 0; j < N; j++) {
                x[k][j] = stored_sum<T>(x[k][j], b[j]);
            }
        }
    }
}

/* For a row in registers; elements beyond its end are 0. */
template <class T, int EACH>
__device__ __forceinline__ layer_norm_moments moments_of(const float (&x)[EACH][packed<T>::N],
                                              const norm_arguments<T> &a, const norm_place &place,
                                              int vectors, float2 *shared)
{
    constexpr int N = packed<T>::N;
    float2 sums = make_float2(0, 0);
    float mean;

    CDDPI_UNROLL
    for (int k = 0; k < EACH; k++) {
        CDDPI_UNROLL
        for (int j = 0; j < N; j++) {
            sums.x += x[k][j];
        }
    }
    mean = row_sums(sums, place, shared).x / (float)a.columns;
    sums = make_float2(0, 0);
    CDDPI_UNROLL
    for (int k = 0; k < EACH; k++) {
        if (place.slot + k * place.stride < vectors) {
            CDDPI_UNROLL
            for (int j = 0; j < N; j++) {
                float centred = x[k][j] - mean;

                sums.x += centred;
                sums.y = fmaf(centred, centred, sums.y);
            }
        }
    }
    return moments_from(mean, row_sums(sums, place, shared), a.columns, a.epsilon);
}

template <class T, int EACH>
__global__ void __launch_bounds__(CDDPI_NORM_THREADS)
    norm_rows(const norm_arguments<T> a, int warps_of_row)
{
    constexpr int N = packed<T>::N;
    __shared__ float2 shared[CDDPI_NORM_WARPS];
    const norm_place place(warps_of_row);
    size_t row = (size_t)blockIdx.x * (CDDPI_NORM_WARPS / place.warps) + place.group;
    bool active = row < a.rows;
    size_t at = row * (size_t)a.columns;
    int vectors = a.columns / N;
    float x[EACH][N];
    layer_norm_moments m;

    load_row<T, EACH>(a, place, at, vectors, active, x);
    m = moments_of<T, EACH>(x, a, place, vectors, shared);
    if (!active) {
        return;
    }
    CDDPI_UNROLL
    for (int k = 0; k < EACH; k++) {
        int v = place.slot + k * place.stride;

        if (v < vectors) {
            float weight[N], bias[N];

            if (a.sum != nullptr) {
                store_words(a.sum + at + (size_t)v * N, packed<T>::pack(x[k]));
            }
            load_floats(a.weight + v * N, weight);
            load_floats(a.bias + v * N, bias);
            CDDPI_UNROLL
            for (int j = 0; j < N; j++) {
                x[k][j] = fmaf((x[k][j] - m.mean) * m.inverse, weight[j], bias[j]);
            }
            store_words(a.out + at + (size_t)v * N, packed<T>::pack(x[k]));
        }
    }
    if (place.slot == 0 && a.mean != nullptr) {
        a.mean[row] = m.mean;
        a.inverse[row] = m.inverse;
    }
}

template <class T> __device__ __forceinline__ float element(const norm_arguments<T> &a, size_t at)
{
    float x = to_float(a.x[at]);

    return a.residual != nullptr ? stored_sum<T>(x, to_float(a.residual[at])) : x;
}

/* Any number of columns: one block for each row, which is read three times (from L2 after the
 * first). */
template <class T>
__global__ void __launch_bounds__(CDDPI_NORM_THREADS) norm_any_rows(const norm_arguments<T> a)
{
    __shared__ float2 shared[CDDPI_NORM_WARPS];
    const norm_place place(CDDPI_NORM_WARPS);
    size_t at = (size_t)blockIdx.x * (size_t)a.columns;
    float2 sums = make_float2(0, 0);
    float mean;
    layer_norm_moments m;

    for (int c = place.slot; c < a.columns; c += place.stride) {
        sums.x += element(a, at + (size_t)c);
    }
    mean = row_sums(sums, place, shared).x / (float)a.columns;
    sums = make_float2(0, 0);
    for (int c = place.slot; c < a.columns; c += place.stride) {
        float centred = element(a, at + (size_t)c) - mean;

        sums.x += centred;
        sums.y += centred * centred;
    }
    m = moments_from(mean, row_sums(sums, place, shared), a.columns, a.epsilon);
    for (int c = place.slot; c < a.columns; c += place.stride) {
        float x = element(a, at + (size_t)c);

        if (a.sum != nullptr) {
            a.sum[at + (size_t)c] = from_float<T>(x);
        }
        a.out[at + (size_t)c] = from_float<T>(
            fmaf((x - m.mean) * m.inverse, a.weight[c], a.bias[c]));
    }
    if (place.slot == 0 && a.mean != nullptr) {
        a.mean[blockIdx.x] = m.mean;
        a.inverse[blockIdx.x] = m.inverse;
    }
}

template <class T, int EACH>
cudaError_t start(cudaStream_t stream, const norm_arguments<T> &a, int warps)
{
    size_t together = (size_t)(CDDPI_NORM_WARPS / warps);

    return CDDPI_LAUNCH((norm_rows<T, EACH>), (unsigned)cddpi_ceil(a.rows, together),
                        CDDPI_NORM_THREADS, 0, stream, a, warps);
}

template <class T> cudaError_t choose(cudaStream_t stream, const norm_arguments<T> &a)
{
    cddpi_norm_layout layout = cddpi_norm_layout_of((size_t)a.columns, packed<T>::N, MOST);

    switch (layout.each) {
    case 1:
        return start<T, 1>(stream, a, layout.warps);
    case 2:
        return start<T, 2>(stream, a, layout.warps);
    case 3:
        return start<T, 3>(stream, a, layout.warps);
    case 4:
        return start<T, 4>(stream, a, layout.warps);
    default:
        return CDDPI_LAUNCH((norm_any_rows<T>), (unsigned)a.rows, CDDPI_NORM_THREADS, 0, stream, a);
    }
}

template <class T>
cddp_status layer_norm_as(cddpi_device *device, const void *x, const void *residual,
                          const float *weight, const float *bias, float epsilon, size_t rows,
                          size_t columns, void *sum, void *out, float *mean, float *inverse)
{
    const norm_arguments<T> arguments = {static_cast<const T *>(x),
                                         static_cast<const T *>(residual),
                                         weight,
                                         bias,
                                         epsilon,
                                         rows,
                                         (int)columns,
                                         static_cast<T *>(sum),
                                         static_cast<T *>(out),
                                         mean,
                                         inverse};

    return CDDPI_STARTED(device, "layer_norm",
                         choose(cddpi_cuda_compute_stream(device), arguments));
}

cddp_status layer_norm(cddpi_device *device, cddp_type type, const void *x, const void *residual,
                       const float *weight, const float *bias, float epsilon, size_t rows,
                       size_t columns, void *sum, void *out, float *mean, float *inverse)
{
    if (rows == 0 || columns == 0) {
        return CDDP_OK;
    }
    return CDDPI_BY_TYPE(type, layer_norm_as, device, x, residual, weight, bias, epsilon, rows,
                         columns, sum, out, mean, inverse);
}
} // namespace

void cddpi_cuda_fill_layer_norm(struct cddpi_cuda_kernels *out)
{
    out->layer_norm = layer_norm;
}
