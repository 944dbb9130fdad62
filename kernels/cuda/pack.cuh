/* pack.cuh - accesses elements in units of 16 bytes, and 16-bit floating types as float32. */
#ifndef CDDPI_CUDA_PACK_CUH
#define CDDPI_CUDA_PACK_CUH

#include "kernels/cuda/launch.cuh"

#include <stddef.h>
#include <stdint.h>

/* Loaded and stored by one instruction each; pointers to it must be 16-byte aligned. */
template <class T> struct alignas(16) pack {
    enum { COUNT = 16 / sizeof(T) };
    T at[COUNT];
};

template <class T> __host__ __device__ inline bool packs(const T *pointer)
{
    return (uintptr_t)pointer % 16 == 0;
}

/* Arithmetic on T is done in the type number<T>::inner. bf16 and f16 round to nearest even. */
template <class T> struct number {
    typedef T inner;
    static __device__ inline T load(T value)
    {
        return value;
    }
    static __device__ inline T store(T value)
    {
        return value;
    }
};
template <> struct number<__nv_bfloat16> {
    typedef float inner;
    static __device__ inline float load(__nv_bfloat16 value)
    {
        return __bfloat162float(value);
    }
    static __device__ inline __nv_bfloat16 store(float value)
    {
        return __float2bfloat16_rn(value);
    }
};
template <> struct number<__half> {
    typedef float inner;
    static __device__ inline float load(__half value)
    {
        return __half2float(value);
    }
    static __device__ inline __half store(float value)
    {
        return __float2half_rn(value);
    }
};

/* The size of a one-dimensional grid for @p count elements, of which each thread takes @p each. */
inline unsigned blocks_for(size_t count, size_t threads, size_t each)
{
    return (unsigned)((count + threads * each - 1) / (threads * each));
}

#endif
