/* elementwise.cu - owns gelu, silu, relu, sums of two activations or with a bias, and their
 * gradients.
 *
 * Each is one pass, as elementwise.cuh has it. gelu costs two special functions an element (exp, 1
 * / x): on an H200 0.54 us a million elements against 0.83 us for the bytes of bf16. */
#include "kernels/cuda/elementwise.cuh"

namespace
{
enum { BLOCK = 256 };

/* Further out nothing changes; a NaN stays one. */
__device__ __forceinline__ float near_zero(float x)
{
    return x < -20.0f ? -20.0f : x > 20.0f ? 20.0f : x;
}

/* gelu(x) = x value; gelu'(x) = value + slope. As kernels/cpu/per_isa/gelu_loops.c has it: no difference
 * of nearly equal numbers, so the left tail stays exact. */
template <bool ACCURATE> __device__ __forceinline__ distribution with_tanh(float x)
{
    const float linear = 1.5957691216f; /* 2 sqrt(2 / pi) */
    const float cubic = 0.0713548163f;  /* ... x 0.044715 */
    float near = near_zero(x);
    float square = near * near;
    float e = power_of<ACCURATE>(-fabsf(near * fmaf(square, cubic, linear)));
    float right = one_over<ACCURATE>(1.0f + e);

    return {x < 0 ? e * right : right,
            near * (e * right * right) * fmaf(square, 3 * cubic, linear)};
}

template <bool ACCURATE> __device__ __forceinline__ distribution with_erf(float x)
{
    const float p[] = {0.0387939326f,  -0.228135630f, 0.542777359f, -0.617635131f, 0.268099070f,
                       -0.0236316919f, 0.163119966f,  0.176899940f, 0.179718316f,  -6.16626357e-6f};
    float near = near_zero(x);
    float e = power_of<ACCURATE>(near * near * -0.5f);
    float t = one_over<ACCURATE>(fmaf(fabsf(near), 0.45f, 1.0f));
    float tail = p[0];

    CDDPI_UNROLL
    for (int i = 1; i < 10; i++) {
        tail = fmaf(tail, t, p[i]);
    }
    tail *= e;
    return {x < 0 ? tail : 1.0f - tail, near * e * 0.398942280f}; /* 1 / sqrt(2 pi) */
}

template <class T, bool EXACT> __device__ __forceinline__ distribution distribution_at(float x)
{
    constexpr bool accurate = sizeof(T) == 4;

    return EXACT ? with_erf<accurate>(x) : with_tanh<accurate>(x);
}

/* What is done to an element (a) or a pair of them (a, b). */
template <class T, bool EXACT> struct gelu_op {
    static constexpr int inputs = 1;
    static __device__ __forceinline__ float apply(float x, float)
    {
        return x * distribution_at<T, EXACT>(x).value;
    }
};
template <class T, bool EXACT> struct gelu_grad_op {
    static constexpr int inputs = 2;
    static __device__ __forceinline__ float apply(float dy, float x)
    {
        distribution at = distribution_at<T, EXACT>(x);

        return dy * (at.value + at.slope);
    }
};
template <class T> struct silu_op {
    static constexpr int inputs = 1;
    static __device__ __forceinline__ float apply(float x, float)
    {
        return x * sigmoid_at<T>(x).value;
    }
};
template <class T> struct silu_grad_op {
    static constexpr int inputs = 2;
    static __device__ __forceinline__ float apply(float dy, float x)
    {
        distribution at = sigmoid_at<T>(x);

        return dy * (at.value + x * at.slope);
    }
};
__device__ __forceinline__ float relu_of(float x)
{
    return x <= 0 ? 0 : x; /* a NaN stays one */
}
struct relu_op {
    static constexpr int inputs = 1;
    static __device__ __forceinline__ float apply(float x, float)
    {
        return relu_of(x);
    }
};
struct relu_grad_op {
    static constexpr int inputs = 2;
    static __device__ __forceinline__ float apply(float dy, float y)
    {
        return y > 0 ? dy : 0;
    }
};
struct add_op {
    static constexpr int inputs = 2;
    static __device__ __forceinline__ float apply(float a, float b)
    {
        return a + b;
    }
};
struct add_relu_op {
    static constexpr int inputs = 2;
    static __device__ __forceinline__ float apply(float a, float b)
    {
        return relu_of(a + b);
    }
};

/* y = x + bias, whose vector for a vector of x depends on its place in a row of `groups`. */
template <class T, int W, bool RELU>
__global__ void __launch_bounds__(BLOCK)
    map_rows(const T *x, const float *__restrict__ bias, unsigned vectors, unsigned groups, T *y)
{
    constexpr int VECTORS = 4;
    unsigned first = blockIdx.x * BLOCK * VECTORS + threadIdx.x;
    typename wide<T, W>::raw words[VECTORS];

    CDDPI_UNROLL
    for (int i = 0; i < VECTORS; i++) {
        unsigned v = first + (unsigned)i * BLOCK;

        if (v < vectors) {
            words[i] = wide<T, W>::fetch(x + (size_t)v * W);
        }
    }
    CDDPI_UNROLL
    for (int i = 0; i < VECTORS; i++) {
        unsigned v = first + (unsigned)i * BLOCK;

        if (v < vectors) {
            float element[W], b[W];

            wide<T, W>::unpack(words[i], element);
            load_floats(bias + (size_t)(v % groups) * W, b);
            CDDPI_UNROLL
            for (int j = 0; j < W; j++) {
                element[j] = RELU ? relu_of(element[j] + b[j]) : element[j] + b[j];
            }
            wide<T, W>::store(y + (size_t)v * W, element);
        }
    }
}

template <class T, int W>
cudaError_t start_rows(cddpi_device *device, const void *x, const float *bias, bool with_relu,
                       size_t rows, size_t columns, void *y)
{
    cudaStream_t stream = cddpi_cuda_compute_stream(device);
    size_t vectors = rows * (columns / W);
    unsigned blocks = (unsigned)cddpi_ceil(vectors, (size_t)BLOCK * 4);
    const T *from = static_cast<const T *>(x);
    T *to = static_cast<T *>(y);

    if (vectors == 0) {
        return cudaSuccess;
    }
    return with_relu ? CDDPI_LAUNCH((map_rows<T, W, true>), blocks, BLOCK, 0, stream, from, bias,
                                    (unsigned)vectors, (unsigned)(columns / W), to)
                     : CDDPI_LAUNCH((map_rows<T, W, false>), blocks, BLOCK, 0, stream, from, bias,
                                    (unsigned)vectors, (unsigned)(columns / W), to);
}

template <class T>
cddp_status add_bias_as(cddpi_device *device, const void *x, const float *bias, bool with_relu,
                        size_t rows, size_t columns, void *y)
{
    constexpr int N = packed<T>::N;
    size_t vectors = rows * (columns / (columns % N == 0 ? N : 1));

    if (vectors > UINT32_MAX - 4 * BLOCK) { /* which the kernel counts by 32 bits */
        return cddpi_cuda_fail(device, CDDP_ERR_ARGUMENT,
                               "add_bias: %zu rows of %zu are too many at once", rows, columns);
    }
    cudaError_t error = columns % N == 0
                            ? start_rows<T, N>(device, x, bias, with_relu, rows, columns, y)
                            : start_rows<T, 1>(device, x, bias, with_relu, rows, columns, y);

    return CDDPI_STARTED(device, "add_bias", error);
}

cddp_status add_bias(cddpi_device *device, cddp_type type, const void *x, const float *bias,
                     bool with_relu, size_t rows, size_t columns, void *y)
{
    return CDDPI_BY_TYPE(type, add_bias_as, device, x, bias, with_relu, rows, columns, y);
}

template <class T>
cddp_status gelu_as(cddpi_device *device, bool exact, const void *x, size_t count, void *out)
{
    cudaError_t error = exact ? start_map<T, gelu_op<T, true>>(device, x, nullptr, count, out)
                              : start_map<T, gelu_op<T, false>>(device, x, nullptr, count, out);

    return CDDPI_STARTED(device, "gelu", error);
}

cddp_status gelu(cddpi_device *device, cddp_type type, bool exact, const void *x, size_t count,
                 void *out)
{
    return CDDPI_BY_TYPE(type, gelu_as, device, exact, x, count, out);
}

template <class T>
cddp_status gelu_grad_as(cddpi_device *device, bool exact, const void *dy, const void *x,
                         size_t count, void *dx)
{
    cudaError_t error = exact ? start_map<T, gelu_grad_op<T, true>>(device, dy, x, count, dx)
                              : start_map<T, gelu_grad_op<T, false>>(device, dy, x, count, dx);

    return CDDPI_STARTED(device, "gelu_grad", error);
}

cddp_status gelu_grad(cddpi_device *device, cddp_type type, bool exact, const void *dy,
                      const void *x, size_t count, void *dx)
{
    return CDDPI_BY_TYPE(type, gelu_grad_as, device, exact, dy, x, count, dx);
}

template <class T> cddp_status silu_as(cddpi_device *device, const void *x, size_t count, void *out)
{
    return CDDPI_STARTED(device, "silu",
                         (start_map<T, silu_op<T>>(device, x, nullptr, count, out)));
}

cddp_status silu(cddpi_device *device, cddp_type type, const void *x, size_t count, void *out)
{
    return CDDPI_BY_TYPE(type, silu_as, device, x, count, out);
}

template <class T>
cddp_status silu_grad_as(cddpi_device *device, const void *dy, const void *x, size_t count,
                         void *dx)
{
    return CDDPI_STARTED(device, "silu_grad",
                         (start_map<T, silu_grad_op<T>>(device, dy, x, count, dx)));
}

cddp_status silu_grad(cddpi_device *device, cddp_type type, const void *dy, const void *x,
                      size_t count, void *dx)
{
    return CDDPI_BY_TYPE(type, silu_grad_as, device, dy, x, count, dx);
}

template <class T> cddp_status relu_as(cddpi_device *device, const void *x, size_t count, void *out)
{
    return CDDPI_STARTED(device, "relu", (start_map<T, relu_op>(device, x, nullptr, count, out)));
}

cddp_status relu(cddpi_device *device, cddp_type type, const void *x, size_t count, void *out)
{
    return CDDPI_BY_TYPE(type, relu_as, device, x, count, out);
}

template <class T>
cddp_status relu_grad_as(cddpi_device *device, const void *dy, const void *y, size_t count,
                         void *dx)
{
    return CDDPI_STARTED(device, "relu_grad",
                         (start_map<T, relu_grad_op>(device, dy, y, count, dx)));
}

cddp_status relu_grad(cddpi_device *device, cddp_type type, const void *dy, const void *y,
                      size_t count, void *dx)
{
    return CDDPI_BY_TYPE(type, relu_grad_as, device, dy, y, count, dx);
}

template <class T>
cddp_status add_as(cddpi_device *device, const void *a, const void *b, bool with_relu, size_t count,
                   void *out)
{
    cudaError_t error = with_relu ? start_map<T, add_relu_op>(device, a, b, count, out)
                                  : start_map<T, add_op>(device, a, b, count, out);

    return CDDPI_STARTED(device, "add", error);
}

cddp_status add(cddpi_device *device, cddp_type type, const void *a, const void *b, bool with_relu,
                size_t count, void *out)
{
    return CDDPI_BY_TYPE(type, add_as, device, a, b, with_relu, count, out);
}
} // namespace

void cddpi_cuda_fill_elementwise(struct cddpi_cuda_kernels *out)
{
    out->gelu = gelu;
    out->gelu_grad = gelu_grad;
    out->silu = silu;
    out->silu_grad = silu_grad;
    out->relu = relu;
    out->relu_grad = relu_grad;
    out->add = add;
    out->add_bias = add_bias;
}
