/* elementwise.cu - owns sums of two activations, and of an activation and a bias, with a fused
 * relu: one pass each, see elementwise.cuh. */
#include "kernels/cuda/elementwise.cuh"

namespace
{
enum { BLOCK = 256 };

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

/* y = x + bias; the bias's vector depends on the place of x's vector in a row of `groups` vectors.
 */
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

    if (vectors > UINT32_MAX - 4 * BLOCK) { /* the kernel counts vectors with 32 bits */
        return cuda_fail(device, CDDP_ERR_ARGUMENT,
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
    out->add = add;
    out->add_bias = add_bias;
}
