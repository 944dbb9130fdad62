/* layer_norm.cuh - how the forward and backward kernels of layer norm assign rows to warps. */
#ifndef CDDPI_CUDA_LAYER_NORM_CUH
#define CDDPI_CUDA_LAYER_NORM_CUH

#include "kernels/cuda/vector.cuh"

enum { CDDPI_NORM_WARPS = 8, CDDPI_NORM_THREADS = CDDPI_NORM_WARPS * CDDPI_WARP };

/* A row belongs to `warps` warps (1, 2, 4 or 8) of a block of 8, and each lane holds `each` vectors
 * in registers. each == 0: the row does not fit, so the block loops over it. */
struct cddpi_norm_layout {
    int warps, each;
};

static inline cddpi_norm_layout cddpi_norm_layout_of(size_t columns, size_t width, size_t most)
{
    size_t vectors = columns / width;

    if (columns % width == 0) {
        for (int warps = 1; warps <= CDDPI_NORM_WARPS; warps *= 2) {
            size_t each = cddpi_ceil(vectors, (size_t)warps * CDDPI_WARP);

            if (each <= most) {
                return {warps, (int)each};
            }
        }
    }
    return {CDDPI_NORM_WARPS, 0};
}

/* The place of a thread in a block where each row belongs to `warps` warps. */
struct norm_place {
    /* group: which of the block's rows; slot: this thread's first vector */
    int warps, group, slot, stride;

    __device__ explicit norm_place(int warps_of_row) : warps(warps_of_row)
    {
        group = (int)threadIdx.x / (CDDPI_WARP * warps);
        slot = (int)threadIdx.x % (CDDPI_WARP * warps);
        stride = CDDPI_WARP * warps;
    }
};

/* Two sums at once over the threads of a row; each of them receives both. @p shared: two floats for
 * each warp. All threads of the block must call this together. */
static __device__ __forceinline__ float2 row_sums(float2 value, const norm_place &place,
                                                  float2 *shared)
{
    value.x = warp_sum(value.x);
    value.y = warp_sum(value.y);
    if (place.warps > 1) {
        int warp = (int)threadIdx.x / CDDPI_WARP;

        if (threadIdx.x % CDDPI_WARP == 0) {
            shared[warp] = value;
        }
        __syncthreads();
        value = make_float2(0, 0);
        for (int i = 0; i < place.warps; i++) {
            float2 part = shared[place.group * place.warps + i];

            value.x += part.x;
            value.y += part.y;
        }
        __syncthreads();
    }
    return value;
}

#endif
