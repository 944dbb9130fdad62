/* pointwise.cu - owns tanh, sigmoid and leaky_relu, functions of one number whose derivative is
 * known from their value, and their gradients: one pass each, as elementwise.cuh has it. */
#include "kernels/cuda/elementwise.cuh"

namespace
{
struct tanh_op {
    static constexpr int inputs = 1;
    __device__ __forceinline__ float apply(float x, float) const
    {
        return tanhf(x);
    }
};
struct tanh_grad_op {
    static constexpr int inputs = 2;
    __device__ __forceinline__ float apply(float dy, float y) const
    {
        return dy * (1.0f - y * y);
    }
};
template <class T> struct sigmoid_op {
    static constexpr int inputs = 1;
    __device__ __forceinline__ float apply(float x, float) const
    {
        return sigmoid_at<T>(x).value;
    }
};
struct sigmoid_grad_op {
    static constexpr int inputs = 2;
    __device__ __forceinline__ float apply(float dy, float y) const
    {
        return dy * (y * (1.0f - y));
    }
};
struct leaky_relu_op {
    static constexpr int inputs = 1;
    float slope;
    __device__ __forceinline__ float apply(float x, float) const
    {
        return x > 0 ? x : slope * x;
    }
};
struct leaky_relu_grad_op {
    static constexpr int inputs = 2;
    float slope;
    __device__ __forceinline__ float apply(float dy, float y) const
    {
        return y > 0 ? dy : slope * dy;
    }
};

template <class T>
cddp_status pointwise_as(cddpi_device *device, enum cddpi_cuda_function function, float slope,
                         const void *x, size_t count, void *y)
{
    switch (function) {
    case CDDPI_FUNCTION_TANH:
        return CDDPI_STARTED(device, "tanh", (start_map<T, tanh_op>(device, x, nullptr, count, y)));
    case CDDPI_FUNCTION_SIGMOID:
        return CDDPI_STARTED(device, "sigmoid",
                             (start_map<T, sigmoid_op<T>>(device, x, nullptr, count, y)));
    default:
        return CDDPI_STARTED(device, "leaky_relu",
                             (start_map<T, leaky_relu_op>(device, x, nullptr, count, y, {slope})));
    }
}

cddp_status pointwise(cddpi_device *device, cddp_type type, enum cddpi_cuda_function function,
                      float slope, const void *x, size_t count, void *y)
{
    return CDDPI_BY_TYPE(type, pointwise_as, device, function, slope, x, count, y);
}

template <class T>
cddp_status pointwise_grad_as(cddpi_device *device, enum cddpi_cuda_function function, float slope,
                              const void *dy, const void *y, size_t count, void *dx)
{
    switch (function) {
    case CDDPI_FUNCTION_TANH:
        return CDDPI_STARTED(device, "tanh_grad",
                             (start_map<T, tanh_grad_op>(device, dy, y, count, dx)));
    case CDDPI_FUNCTION_SIGMOID:
        return CDDPI_STARTED(device, "sigmoid_grad",
                             (start_map<T, sigmoid_grad_op>(device, dy, y, count, dx)));
    default:
        return CDDPI_STARTED(device, "leaky_relu_grad",
                             (start_map<T, leaky_relu_grad_op>(device, dy, y, count, dx, {slope})));
    }
}

cddp_status pointwise_grad(cddpi_device *device, cddp_type type, enum cddpi_cuda_function function,
                           float slope, const void *dy, const void *y, size_t count, void *dx)
{
    return CDDPI_BY_TYPE(type, pointwise_grad_as, device, function, slope, dy, y, count, dx);
}
} // namespace

void cddpi_cuda_fill_pointwise(struct cddpi_cuda_kernels *out)
{
    out->pointwise = pointwise;
    out->pointwise_grad = pointwise_grad;
}
