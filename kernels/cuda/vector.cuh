/* vector.cuh - what kernels share: 16-byte accesses as floats, sums over warps and blocks, dispatch
 * by type. Arithmetic is in float32 whatever the type in memory. */
#ifndef CDDPI_CUDA_VECTOR_CUH
#define CDDPI_CUDA_VECTOR_CUH

#include "kernels/cuda/kernels_module.h"
#include "kernels/cuda/launch.cuh"

#include <string.h>

typedef __nv_bfloat16 cddpi_bf16;
typedef __half cddpi_f16;

/* N elements of T are 16 bytes. */
template <class T> struct packed;

template <> struct packed<float> {
    static constexpr int N = 4;

    static __device__ __forceinline__ void unpack(const uint4 &words, float (&out)[N])
    {
        out[0] = __uint_as_float(words.x);
        out[1] = __uint_as_float(words.y);
        out[2] = __uint_as_float(words.z);
        out[3] = __uint_as_float(words.w);
    }
    static __device__ __forceinline__ uint4 pack(const float (&in)[N])
    {
        return make_uint4(__float_as_uint(in[0]), __float_as_uint(in[1]), __float_as_uint(in[2]),
                          __float_as_uint(in[3]));
    }
};

/* Two 16-bit numbers form one word; Pair is CUDA's type for them. */
template <class Pair> static __device__ __forceinline__ unsigned word_of(Pair pair)
{
    unsigned word;

    memcpy(&word, &pair, sizeof word);
    return word;
}

template <> struct packed<cddpi_bf16> {
    static constexpr int N = 8;

    static __device__ __forceinline__ void unpack(const uint4 &words, float (&out)[N])
    {
        const unsigned word[4] = {words.x, words.y, words.z, words.w};

        CDDPI_UNROLL
        for (int i = 0; i < 4; i++) { /* a bf16 is the upper half of a float */
            out[2 * i] = __uint_as_float(word[i] << 16);
            out[2 * i + 1] = __uint_as_float(word[i] & 0xffff0000u);
        }
    }
    static __device__ __forceinline__ uint4 pack(const float (&in)[N])
    {
        return make_uint4(word_of(__floats2bfloat162_rn(in[0], in[1])),
                          word_of(__floats2bfloat162_rn(in[2], in[3])),
                          word_of(__floats2bfloat162_rn(in[4], in[5])),
                          word_of(__floats2bfloat162_rn(in[6], in[7])));
    }
};

template <> struct packed<cddpi_f16> {
    static constexpr int N = 8;

    static __device__ __forceinline__ void unpack(const uint4 &words, float (&out)[N])
    {
        const unsigned word[4] = {words.x, words.y, words.z, words.w};

        CDDPI_UNROLL
        for (int i = 0; i < 4; i++) {
            __half2 pair;
            float2 two;

            memcpy(static_cast<void *>(&pair), &word[i], sizeof pair);
            two = __half22float2(pair);
            out[2 * i] = two.x;
            out[2 * i + 1] = two.y;
        }
    }
    static __device__ __forceinline__ uint4 pack(const float (&in)[N])
    {
        return make_uint4(
            word_of(__floats2half2_rn(in[0], in[1])), word_of(__floats2half2_rn(in[2], in[3])),
            word_of(__floats2half2_rn(in[4], in[5])), word_of(__floats2half2_rn(in[6], in[7])));
    }
};

static __device__ __forceinline__ float to_float(float x)
{
    return x;
}
static __device__ __forceinline__ float to_float(cddpi_bf16 x)
{
    return __bfloat162float(x);
}
static __device__ __forceinline__ float to_float(cddpi_f16 x)
{
    return __half2float(x);
}
template <class T> static __device__ __forceinline__ T from_float(float x);
template <> __device__ __forceinline__ float from_float<float>(float x)
{
    return x;
}
template <> __device__ __forceinline__ cddpi_bf16 from_float<cddpi_bf16>(float x)
{
    return __float2bfloat16_rn(x);
}
template <> __device__ __forceinline__ cddpi_f16 from_float<cddpi_f16>(float x)
{
    return __float2half_rn(x);
}

/* 16 aligned bytes, unconverted. */
template <class T> static __device__ __forceinline__ uint4 load_words(const T *from)
{
    return *reinterpret_cast<const uint4 *>(from);
}
template <class T> static __device__ __forceinline__ void store_words(T *to, const uint4 &words)
{
    *reinterpret_cast<uint4 *>(to) = words;
}

/* A store for data that is not read again while it is in the cache. */
template <class T> static __device__ __forceinline__ void stream_words(T *to, const uint4 &words)
{
    __stcs(reinterpret_cast<uint4 *>(to), words);
}

/* W elements as floats: W = packed<T>::N, aligned to 16 bytes, or 1. `raw` is their form in memory,
 * for kernels that fetch several before they use the first; raw{} is W zeros. */
template <class T, int W> struct wide {
    typedef uint4 raw;

    static __device__ __forceinline__ raw fetch(const T *from)
    {
        return load_words(from);
    }
    static __device__ __forceinline__ void unpack(const raw &words, float (&out)[W])
    {
        packed<T>::unpack(words, out);
    }
    static __device__ __forceinline__ void load(const T *from, float (&out)[W])
    {
        packed<T>::unpack(load_words(from), out);
    }
    static __device__ __forceinline__ void store(T *to, const float (&in)[W])
    {
        store_words(to, packed<T>::pack(in));
    }
};
template <class T> struct wide<T, 1> {
    typedef T raw;

    static __device__ __forceinline__ raw fetch(const T *from)
    {
        return *from;
    }
    static __device__ __forceinline__ void unpack(const raw &one, float (&out)[1])
    {
        out[0] = to_float(one);
    }
    static __device__ __forceinline__ void load(const T *from, float (&out)[1])
    {
        out[0] = to_float(*from);
    }
    static __device__ __forceinline__ void store(T *to, const float (&in)[1])
    {
        *to = from_float<T>(in[0]);
    }
};

/* sum += each of several vectors, in order. */
template <class T, int W, int COUNT>
static __device__ __forceinline__ void add_vectors(const typename wide<T, W>::raw (&words)[COUNT],
                                                   float (&sum)[W])
{
    CDDPI_UNROLL
    for (int i = 0; i < COUNT; i++) {
        float element[W];

        wide<T, W>::unpack(words[i], element);
        CDDPI_UNROLL
        for (int j = 0; j < W; j++) {
            sum[j] += element[j];
        }
    }
}

/* W floats (a multiple of 4, aligned to 16 bytes, or 1), which accompany W elements of a type. */
template <int W>
static __device__ __forceinline__ void load_floats(const float *from, float (&out)[W])
{
    if constexpr (W == 1) {
        out[0] = *from;
    } else {
        CDDPI_UNROLL
        for (int i = 0; i < W; i += 4) {
            float4 four = *reinterpret_cast<const float4 *>(from + i);

            out[i] = four.x;
            out[i + 1] = four.y;
            out[i + 2] = four.z;
            out[i + 3] = four.w;
        }
    }
}
template <int W>
static __device__ __forceinline__ void store_floats(float *to, const float (&in)[W])
{
    if constexpr (W == 1) {
        *to = in[0];
    } else {
        CDDPI_UNROLL
        for (int i = 0; i < W; i += 4) {
            *reinterpret_cast<float4 *>(to + i) = make_float4(in[i], in[i + 1], in[i + 2],
                                                              in[i + 3]);
        }
    }
}

static const unsigned CDDPI_ALL_LANES = 0xffffffffu;

/* Every lane gets the same bits: each step adds the same two numbers in both lanes of a pair. */
template <class S> static __device__ __forceinline__ S warp_sum(S value)
{
    CDDPI_UNROLL
    for (int mask = CDDPI_WARP / 2; mask > 0; mask /= 2) {
        value += __shfl_xor_sync(CDDPI_ALL_LANES, value, mask);
    }
    return value;
}

/* The sum over the block, for every thread; @p shared: one element for each warp. Calls
 * __syncthreads() twice. */
template <class S> static __device__ __forceinline__ S block_sum(S value, S *shared)
{
    int warps = (int)(blockDim.x / CDDPI_WARP);
    S sum = 0;

    value = warp_sum(value);
    if (threadIdx.x % CDDPI_WARP == 0) {
        shared[threadIdx.x / CDDPI_WARP] = value;
    }
    __syncthreads();
    for (int i = 0; i < warps; i++) {
        sum += shared[i];
    }
    __syncthreads();
    return sum;
}

static inline size_t cddpi_ceil(size_t count, size_t by)
{
    return (count + by - 1) / by;
}

/* function<T>(device, ...) for the T that @p type selects. */
#define CDDPI_BY_TYPE(type, function, device, ...)                                                 \
    ((type) == CDDP_F32    ? function<float>(device, __VA_ARGS__)                                  \
     : (type) == CDDP_BF16 ? function<cddpi_bf16>(device, __VA_ARGS__)                             \
     : (type) == CDDP_F16  ? function<cddpi_f16>(device, __VA_ARGS__)                              \
                           : cuda_fail(device, CDDP_ERR_ARGUMENT, "%s: no kernels for type %d",    \
                                       __func__, (int)(type)))

#define CDDPI_STARTED(device, name, error)                                                         \
    cddpi_cuda_status(device, error, "kernel " name, __FILE__, __LINE__)

/* --- sums over rows in two steps (column_sums.cu): each block of a kernel sums some rows and
 * writes a partial sum, then the partial sums are added in order. Their number depends on the shape
 * alone, and so do the bits. --- */

/** first[c] = or += the sum over p of parts[p * columns + c] for c < @p split; the other columns go
 *  to second[c - split] (split == columns: there is no second). */
cudaError_t cddpi_cuda_sum_parts(cudaStream_t stream, const float *parts, size_t count,
                                 size_t columns, size_t split, bool add, float *first,
                                 float *second);

/* --- losses (loss.cu): one result for each row, and their sum in a fixed order --- */

struct row_result {
    double loss, correct;
};

/** Add the sum of all `loss`, as one term, and the sum of all `correct` to @p out. */
cudaError_t cddpi_cuda_add_results(cudaStream_t stream, const struct row_result *results,
                                   size_t rows, struct cddpi_loss_totals *out);

#endif
