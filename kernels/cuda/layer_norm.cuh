/* layer_norm.cuh - how layer norm's rows are laid over warps, forward and backward. */
#ifndef CDDPI_CUDA_LAYER_NORM_CUH
#define CDDPI_CUDA_LAYER_NORM_CUH

#include "kernels/cuda/vector.cuh"

enum { CDDPI_NORM_WARPS = 8, CDDPI_NORM_THREADS = CDDPI_NORM_WARPS * CDDPI_WARP };

/* A row belongs to `warps` warps (1, 2, 4 or 8) of a block of 8, with `each` vectors in the
 * registers of a lane; each == 0: it does not fit, the block goes over it in a loop. */
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

/* The thread's place in a block whose rows lie over `warps` warps each. */
struct norm_place {
    int warps, group, slot, stride; /* group: which of the block's rows; slot: first vector */

    __device__ explicit norm_place(int warps_of_row) : warps(warps_of_row)
    {
        group = (int)threadIdx.x / (CDDPI_WARP * warps);
        slot = (int)threadIdx.x % (CDDPI_WARP * warps);
        stride = CDDPI_WARP * warps;
    }
};

/* Two sums over the row's threads at once, for each of them. @p shared: two floats a warp. All
 * threads of the block come here together. */
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
