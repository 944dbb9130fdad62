/* cast.cu - owns conversions between floating types, and multiplication by one factor.
 *
 * Both are limited by memory: a cast from float32 to 16 bits moves 6 bytes for each element, a
 * scale 8 (or 4). Each thread handles 16 bytes of the narrower type, without a loop. The target is
 * 90 % of the bandwidth. */
#include "kernels/cuda/kernels_module.h"
#include "kernels/cuda/pack.cuh"

namespace
{

enum { THREADS = 256, EACH = 8 };

template <class FROM, class TO> __device__ static inline TO convert(FROM value)
{
    return number<TO>::store(number<FROM>::load(value));
}

/* Each thread has EACH elements; in and out may be the same memory if their types have the same
 * size. */
template <class FROM, class TO>
__global__ void __launch_bounds__(THREADS)
    cast_all(const FROM *in, TO *out, size_t count, bool packed)
{
    struct alignas(16) from {
        FROM at[EACH];
    } read;
    struct alignas(16) to {
        TO at[EACH];
    } written;
    size_t first = ((size_t)blockIdx.x * THREADS + threadIdx.x) * EACH;

    if (packed && first + EACH <= count) {
        read = *(const from *)(in + first);
        CDDPI_UNROLL
        for (int k = 0; k < EACH; k++) {
            written.at[k] = convert<FROM, TO>(read.at[k]);
        }
        *(to *)(out + first) = written;
        return;
    }
    for (size_t i = first; i < count && i < first + EACH; i++) {
        out[i] = convert<FROM, TO>(in[i]);
    }
}

template <class FROM, class TO>
cudaError_t launch_cast(const void *in, void *out, size_t count, cudaStream_t stream)
{
    const FROM *from = (const FROM *)in;
    TO *to = (TO *)out;

    return CDDPI_LAUNCH((cast_all<FROM, TO>), blocks_for(count, THREADS, EACH), THREADS, 0, stream,
                        from, to, count, packs(from) && packs(to));
}

template <class FROM>
cudaError_t cast_from(const void *in, cddp_type to, void *out, size_t count, cudaStream_t stream)
{
    return to == CDDP_F32    ? launch_cast<FROM, float>(in, out, count, stream)
           : to == CDDP_BF16 ? launch_cast<FROM, __nv_bfloat16>(in, out, count, stream)
                             : launch_cast<FROM, __half>(in, out, count, stream);
}

bool is_real(cddp_type type)
{
    return type == CDDP_F32 || type == CDDP_BF16 || type == CDDP_F16;
}

cddp_status cast(struct cddpi_device *device, cddp_type from, const void *in, cddp_type to,
                 void *out, size_t count)
{
    cudaStream_t stream = cddpi_cuda_compute_stream(device);
    cudaError_t error;

    if (!is_real(from) || !is_real(to)) {
        return cuda_fail(device, CDDP_ERR_ARGUMENT, "cast: from type %d to %d", (int)from, (int)to);
    }
    if (count == 0 || (from == to && in == out)) {
        return CDDP_OK;
    }
    if (from == to) {
        error = cudaMemcpyAsync(out, in, count * (from == CDDP_F32 ? 4 : 2),
                                cudaMemcpyDeviceToDevice, stream);
    } else if (from == CDDP_F32) {
        error = cast_from<float>(in, to, out, count, stream);
    } else if (from == CDDP_BF16) {
        error = cast_from<__nv_bfloat16>(in, to, out, count, stream);
    } else {
        error = cast_from<__half>(in, to, out, count, stream);
    }
    return cddpi_cuda_status(device, error, "cast", __FILE__, __LINE__);
}

template <class T>
__global__ void __launch_bounds__(THREADS)
    scale_all(const double *factor, T *data, size_t count, bool packed)
{
    typedef typename number<T>::inner real;
    enum { COUNT = pack<T>::COUNT };
    size_t first = ((size_t)blockIdx.x * THREADS + threadIdx.x) * COUNT;
    bool clears = *factor == 0; /* then write zeros, even over a NaN */
    real by = (real)*factor;
    pack<T> some;

    if (packed && first + COUNT <= count) {
        some = *(const pack<T> *)(data + first);
        CDDPI_UNROLL
        for (int k = 0; k < COUNT; k++) {
            some.at[k] = number<T>::store(clears ? (real)0 : number<T>::load(some.at[k]) * by);
        }
        *(pack<T> *)(data + first) = some;
        return;
    }
    for (size_t i = first; i < count && i < first + COUNT; i++) {
        data[i] = number<T>::store(clears ? (real)0 : number<T>::load(data[i]) * by);
    }
}

template <class T>
cudaError_t launch_scale(const double *factor, void *data, size_t count, cudaStream_t stream)
{
    T *values = (T *)data;

    return CDDPI_LAUNCH(scale_all<T>, blocks_for(count, THREADS, pack<T>::COUNT), THREADS, 0,
                        stream, factor, values, count, packs(values));
}

cddp_status scale(struct cddpi_device *device, cddp_type type, const double *factor, size_t count,
                  void *data)
{
    cudaStream_t stream = cddpi_cuda_comm_stream(device);
    cudaError_t error = cudaSuccess;

    if (!is_real(type) && type != CDDP_F64) {
        return cuda_fail(device, CDDP_ERR_ARGUMENT, "scale: of type %d", (int)type);
    }
    if (count == 0) {
        return CDDP_OK;
    }
    if (type == CDDP_F32) {
        error = launch_scale<float>(factor, data, count, stream);
    } else if (type == CDDP_F64) {
        error = launch_scale<double>(factor, data, count, stream);
    } else if (type == CDDP_BF16) {
        error = launch_scale<__nv_bfloat16>(factor, data, count, stream);
    } else {
        error = launch_scale<__half>(factor, data, count, stream);
    }
    return cddpi_cuda_status(device, error, "scale", __FILE__, __LINE__);
}

} // namespace

void cddpi_cuda_fill_cast(struct cddpi_cuda_kernels *out)
{
    out->cast = cast;
    out->scale = scale;
}
