/* elementwise.cuh - what element-wise kernels share: one pass over one input or two, and the scalar
 * functions that several kernels need.
 *
 * A pass only reads `inputs` elements and writes one for each element, so memory bandwidth limits
 * it. A thread requests all its 16-byte vectors (4 of one input, or 2 of each of two) before it
 * uses the first. With 1536 threads on an SM these are 96 KiB in flight on each, where 4.8 TB/s x
 * 0.7 us / 132 = 25 KiB would be enough. */
#ifndef CDDPI_CUDA_ELEMENTWISE_CUH
#define CDDPI_CUDA_ELEMENTWISE_CUH

#include "kernels/cuda/vector.cuh"

enum { CDDPI_MAP_BLOCK = 256 };

/* The value of a function that grows from 0 to 1, and its derivative, or what the derivative is
 * computed from. */
struct distribution {
    float value, slope;
};

/* 16-bit results do not need the last bits. */
template <bool ACCURATE> static __device__ __forceinline__ float power_of(float x)
{
    return ACCURATE ? expf(x) : __expf(x);
}
template <bool ACCURATE> static __device__ __forceinline__ float one_over(float x)
{
    return ACCURATE ? 1.0f / x : __fdividef(1.0f, x);
}

/* 1 / (1 + e^-x) by e^-|x|, as in kernels/cpu: the left tail stays exact. */
template <class T> static __device__ __forceinline__ distribution sigmoid_at(float x)
{
    constexpr bool accurate = sizeof(T) == 4;
    float e = power_of<accurate>(-fabsf(x));
    float right = one_over<accurate>(1.0f + e);

    return {x < 0 ? e * right : right, e * right * right};
}

static __device__ __forceinline__ float relu_of(float x)
{
    return x <= 0 ? 0 : x; /* a NaN stays a NaN */
}

/* Op has `inputs`, 1 or 2, and apply(a, b), the function of one element or a pair of elements. */
template <class T, class Op>
static __device__ __forceinline__ uint4 apply_to(const Op &op, const uint4 &a_words,
                                                 const uint4 &b_words)
{
    float a[packed<T>::N], b[packed<T>::N];

    packed<T>::unpack(a_words, a);
    packed<T>::unpack(b_words, b);
    CDDPI_UNROLL
    for (int i = 0; i < packed<T>::N; i++) {
        a[i] = op.apply(a[i], b[i]);
    }
    return packed<T>::pack(a);
}

template <class Op> struct vectors_of {
    static constexpr int value = 4 / Op::inputs;
};

/* The first elements are `vectors` vectors, the others are read one by one. One thread reads and
 * writes each element, so out may be an input. */
template <class T, class Op>
__global__ void __launch_bounds__(CDDPI_MAP_BLOCK)
    map(const T *a, const T *b, size_t vectors, size_t count, T *out, const Op op)
{
    constexpr int N = packed<T>::N;
    constexpr int VECTORS = vectors_of<Op>::value;
    size_t first = (size_t)blockIdx.x * CDDPI_MAP_BLOCK * VECTORS + threadIdx.x;
    uint4 a_words[VECTORS], b_words[VECTORS];

    CDDPI_UNROLL
    for (int i = 0; i < VECTORS; i++) {
        size_t v = first + (size_t)i * CDDPI_MAP_BLOCK;

        if (v < vectors) {
            a_words[i] = load_words(a + v * N);
            b_words[i] = Op::inputs == 2 ? load_words(b + v * N) : make_uint4(0, 0, 0, 0);
        }
    }
    CDDPI_UNROLL
    for (int i = 0; i < VECTORS; i++) {
        size_t v = first + (size_t)i * CDDPI_MAP_BLOCK;

        if (v < vectors) {
            store_words(out + v * N, apply_to<T>(op, a_words[i], b_words[i]));
        }
    }
    for (size_t e = vectors * N + (size_t)blockIdx.x * CDDPI_MAP_BLOCK + threadIdx.x; e < count;
         e += (size_t)gridDim.x * CDDPI_MAP_BLOCK) {
        out[e] = from_float<T>(op.apply(to_float(a[e]), Op::inputs == 2 ? to_float(b[e]) : 0.0f));
    }
}

/* out = op of a, or of a and b; either may be out. What is not aligned to 16 bytes is slower. */
template <class T, class Op>
static cudaError_t start_map(cddpi_device *device, const void *a, const void *b, size_t count,
                             void *out, const Op &op = {})
{
    size_t each = (size_t)CDDPI_MAP_BLOCK * vectors_of<Op>::value * packed<T>::N;
    bool is_aligned = ((uintptr_t)a | (uintptr_t)b | (uintptr_t)out) % 16 == 0;

    if (count == 0) {
        return cudaSuccess;
    }
    return CDDPI_LAUNCH((map<T, Op>), (unsigned)cddpi_ceil(count, each), CDDPI_MAP_BLOCK, 0,
                        cddpi_cuda_compute_stream(device), static_cast<const T *>(a),
                        static_cast<const T *>(b), is_aligned ? count / packed<T>::N : 0, count,
                        static_cast<T *>(out), op);
}

#endif
