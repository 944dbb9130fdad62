/* pointwise.cu - owns the functions of kernels/pointwise.h and their gradients: one pass each, see
 * elementwise.cuh. gelu needs two special functions for each element (exp, 1 / x): on an H200 0.54
 * us for a million elements, where the bytes of bf16 take 0.83 us. */
#include "kernels/cuda/elementwise.cuh"

#include <type_traits>

namespace
{
/* Beyond these limits the function is constant; a NaN stays a NaN. */
__device__ __forceinline__ float near_zero(float x)
{
    return x < -20.0f ? -20.0f : x > 20.0f ? 20.0f : x;
}

/* gelu(x) = x value; gelu'(x) = value + slope. As in kernels/cpu/per_isa/gelu_loops.c, no nearly
 * equal numbers are subtracted, so the left tail stays exact. */
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

/* The operations on x, and on dy and the saved value: a pair of structs for each function. Only
 * leaky_relu has a member, its slope. */
template <class T, cddpi_pointwise F> struct value_op;
template <class T, cddpi_pointwise F> struct grad_op;

/* A pair of operations without members: a function of x, and one of dy and @p saved (x or y). */
#define PLAIN_ROW(function, value, saved, grad)                                                    \
    template <class T> struct value_op<T, CDDPI_POINTWISE_##function> {                            \
        static constexpr int inputs = 1;                                                           \
        static __device__ __forceinline__ float apply(float x, float)                              \
        {                                                                                          \
            return value;                                                                          \
        }                                                                                          \
    };                                                                                             \
    template <class T> struct grad_op<T, CDDPI_POINTWISE_##function> {                             \
        static constexpr int inputs = 2;                                                           \
        static __device__ __forceinline__ float apply(float dy, float saved)                       \
        {                                                                                          \
            return grad;                                                                           \
        }                                                                                          \
    };

/* dy times a derivative of two parts */
__device__ __forceinline__ float silu_grad(float dy, float x, const distribution &at)
{
    return dy * (at.value + x * at.slope);
}
__device__ __forceinline__ float gelu_grad(float dy, const distribution &at)
{
    return dy * (at.value + at.slope);
}

PLAIN_ROW(RELU, relu_of(x), y, (y > 0 ? dy : 0))
PLAIN_ROW(TANH, tanhf(x), y, (dy * (1.0f - y * y)))
PLAIN_ROW(SIGMOID, sigmoid_at<T>(x).value, y, (dy * (y * (1.0f - y))))
PLAIN_ROW(SILU, (x * sigmoid_at<T>(x).value), x, silu_grad(dy, x, sigmoid_at<T>(x)))
PLAIN_ROW(GELU, (x * distribution_at<T, false>(x).value), x,
          gelu_grad(dy, (distribution_at<T, false>(x))))
PLAIN_ROW(GELU_EXACT, (x * distribution_at<T, true>(x).value), x,
          gelu_grad(dy, (distribution_at<T, true>(x))))

template <class T> struct value_op<T, CDDPI_POINTWISE_LEAKY_RELU> {
    static constexpr int inputs = 1;
    float slope;
    __device__ __forceinline__ float apply(float x, float) const
    {
        return x > 0 ? x : slope * x;
    }
};
template <class T> struct grad_op<T, CDDPI_POINTWISE_LEAKY_RELU> {
    static constexpr int inputs = 2;
    float slope;
    __device__ __forceinline__ float apply(float dy, float y) const
    {
        return y > 0 ? dy : slope * dy;
    }
};

template <class Op> Op with_slope(float slope)
{
    if constexpr (std::is_empty<Op>::value) {
        return {};
    } else {
        return {slope};
    }
}

template <class T>
cddp_status pointwise_as(cddpi_device *device, cddpi_pointwise function, float slope, const void *x,
                         size_t count, void *y)
{
    switch (function) {
#define ROW(function, name, needs)                                                                 \
    case CDDPI_POINTWISE_##function: {                                                             \
        using op = value_op<T, CDDPI_POINTWISE_##function>;                                        \
        return CDDPI_STARTED(                                                                      \
            device, name,                                                                          \
            (start_map<T, op>(device, x, nullptr, count, y, with_slope<op>(slope))));              \
    }
        CDDPI_POINTWISE_ROWS(ROW)
#undef ROW
    default:
        return cuda_fail(device, CDDP_ERR_ARGUMENT, "pointwise: there is no function %d",
                         (int)function);
    }
}

cddp_status pointwise(cddpi_device *device, cddp_type type, cddpi_pointwise function, float slope,
                      const void *x, size_t count, void *y)
{
    return CDDPI_BY_TYPE(type, pointwise_as, device, function, slope, x, count, y);
}

template <class T>
cddp_status pointwise_grad_as(cddpi_device *device, cddpi_pointwise function, float slope,
                              const void *dy, const void *saved, size_t count, void *dx)
{
    switch (function) {
#define ROW(function, name, needs)                                                                 \
    case CDDPI_POINTWISE_##function: {                                                             \
        using op = grad_op<T, CDDPI_POINTWISE_##function>;                                         \
        return CDDPI_STARTED(                                                                      \
            device, name "_grad",                                                                  \
            (start_map<T, op>(device, dy, saved, count, dx, with_slope<op>(slope))));              \
    }
        CDDPI_POINTWISE_ROWS(ROW)
#undef ROW
    default:
        return cuda_fail(device, CDDP_ERR_ARGUMENT, "pointwise: there is no function %d",
                         (int)function);
    }
}

cddp_status pointwise_grad(cddpi_device *device, cddp_type type, cddpi_pointwise function,
                           float slope, const void *dy, const void *saved, size_t count, void *dx)
{
    return CDDPI_BY_TYPE(type, pointwise_grad_as, device, function, slope, dy, saved, count, dx);
}
} // namespace

void cddpi_cuda_fill_pointwise(struct cddpi_cuda_kernels *out)
{
    out->pointwise = pointwise;
    out->pointwise_grad = pointwise_grad;
}
