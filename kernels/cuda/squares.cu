/* squares.cu - owns the sum of squares of all gradients, and what is computed from it: the factor
 * of the update, and the loss scale.
 *
 * The sum reads 4 bytes for each element: GPT-2 124M's 0.5 GB take 0.10 ms at 4.8 TB/s; 90 % of
 * that is the target. It is a tree whose shape depends only on the counts: four sums in a thread,
 * then a warp, a block, then all pieces. Everything is in float64, where squares of float32 cannot
 * overflow. */
#include "kernels/cuda/kernels_module.h"
#include "kernels/cuda/tensors.cuh"

namespace
{

enum { THREADS = 256, AHEAD = 4, LAST_THREADS = 1024 };

/* The sum of all threads' values, in thread 0. */
template <int COUNT> __device__ static double sum_block(double value)
{
    __shared__ double warps[COUNT / CDDPI_WARP];
    int lane = (int)threadIdx.x % CDDPI_WARP;
    int warp = (int)threadIdx.x / CDDPI_WARP;

    for (int width = CDDPI_WARP / 2; width > 0; width /= 2) {
        value += __shfl_down_sync(0xffffffffu, value, width);
    }
    if (lane == 0) {
        warps[warp] = value;
    }
    __syncthreads();
    if (warp == 0) {
        value = lane < COUNT / CDDPI_WARP ? warps[lane] : 0;
        for (int width = CDDPI_WARP / 2; width > 0; width /= 2) {
            value += __shfl_down_sync(0xffffffffu, value, width);
        }
    }
    return value;
}

/* A thread's four sums; four elements are added, one to each. */
__device__ __forceinline__ void add_four(const pack<float> &four, double (&sums)[4])
{
    CDDPI_UNROLL
    for (int k = 0; k < 4; k++) {
        sums[k] += (double)four.at[k] * four.at[k];
    }
}

/* Vectors i, i + THREADS ... below @p end: AHEAD loads are issued before one is used. Adding zeros
 * changes no sum. */
__device__ __forceinline__ void add_vectors(const float *x, size_t end, double (&sums)[4])
{
    for (size_t i = (size_t)threadIdx.x * 4; i < end; i += AHEAD * THREADS * 4) {
        pack<float> some[AHEAD];

        CDDPI_UNROLL
        for (int a = 0; a < AHEAD; a++) {
            size_t at = i + (size_t)a * THREADS * 4;

            some[a] = at < end ? *(const pack<float> *)(x + at) : pack<float>{};
        }
        CDDPI_UNROLL
        for (int a = 0; a < AHEAD; a++) {
            add_four(some[a], sums);
        }
    }
}

/* The same from @p begin on, a multiple of 4, one element at a time. */
__device__ __forceinline__ void add_elements(const float *x, size_t begin, size_t end,
                                             double (&sums)[4])
{
    for (size_t i = (size_t)threadIdx.x * 4; i < end; i += THREADS * 4) {
        pack<float> four = {};

        if (i < begin) {
            continue;
        }
        CDDPI_UNROLL
        for (int k = 0; k < 4; k++) {
            four.at[k] = i + k < end ? x[i + k] : 0;
        }
        add_four(four, sums);
    }
}

__global__ void __launch_bounds__(THREADS)
    square_piece(const tensor_entry *entries, const tensor_piece *pieces, double *sums)
{
    tensor_piece piece = pieces[blockIdx.x];
    const tensor_entry &entry = entries[piece.tensor];
    size_t first = (size_t)piece.index * CDDPI_PIECE;
    size_t left = entry.count - first;
    size_t n = left < CDDPI_PIECE ? left : CDDPI_PIECE;
    const float *x = entry.grad + first;
    size_t whole = packs(x) ? n / 4 * 4 : 0;
    double lanes[4] = {0, 0, 0, 0};

    add_vectors(x, whole, lanes);
    add_elements(x, whole, n, lanes);
    double sum = sum_block<THREADS>((lanes[0] + lanes[1]) + (lanes[2] + lanes[3]));

    if (threadIdx.x == 0) {
        sums[blockIdx.x] = sum;
    }
}

__global__ void __launch_bounds__(LAST_THREADS)
    add_pieces(const double *sums, unsigned count, double *out)
{
    double sum = 0;

    for (unsigned i = threadIdx.x; i < count; i += LAST_THREADS) {
        sum += sums[i];
    }
    sum = sum_block<LAST_THREADS>(sum);
    if (threadIdx.x == 0) {
        *out = sum;
    }
}

/* Clips as src/trainer/train/update.c does: the norm is rounded to float32, the factor is computed
 * in float64. */
__global__ void find_scale(const double *squares, const float *loss_scale, double clip,
                           float *scale, int32_t *skip, float *norm)
{
    double by = loss_scale != nullptr ? (double)*loss_scale : 1.0;
    bool finite = *squares <= 1.7976931348623157e308; /* also false for a NaN */
    float length = (float)(sqrt(*squares) / by);
    double factor = clip > 0 && length > clip ? clip / length : 1.0;

    *scale = finite ? (float)(factor / by) : 0.0f;
    *skip = !finite;
    if (norm != nullptr) {
        *norm = length;
    }
}

/* The same as cddpi_loss_scale_update() of src/trainer/optim/loss_scale.c. */
__global__ void move_scale(const int32_t *skip, double growth, double backoff, float least,
                           int32_t interval, float *loss_scale, int32_t *good_steps)
{
    float scale = *loss_scale;
    int32_t steps = *good_steps;

    if (*skip != 0) {
        float shrunk = (float)((double)scale * backoff);

        if (scale > least) {
            *loss_scale = shrunk > least ? shrunk : least;
        }
        *good_steps = (steps < 0 ? steps : 0) - 1;
        return;
    }
    steps = (steps < 0 ? 0 : steps) + 1;
    if (steps >= interval) {
        float grown = (float)((double)scale * growth);

        *loss_scale = grown <= 3.402823466e38f ? grown : scale;
        steps = 0;
    }
    *good_steps = steps;
}

cddp_status squares(struct cddpi_device *device, const struct cddpi_cuda_tensors *tensors,
                    double *out)
{
    cudaStream_t stream = cddpi_cuda_compute_stream(device);
    tensor_table table = tensor_table_at(tensors->table, tensors->slots, tensors->pieces);
    cudaError_t error = cudaSuccess;

    if (tensors->pieces > 0) {
        error = CDDPI_LAUNCH(square_piece, (unsigned)tensors->pieces, THREADS, 0, stream,
                             table.entries, table.pieces, table.sums);
    }
    if (error == cudaSuccess) {
        error = CDDPI_LAUNCH(add_pieces, 1, LAST_THREADS, 0, stream, table.sums,
                             (unsigned)tensors->pieces, out);
    }
    return cddpi_cuda_status(device, error, "squares", __FILE__, __LINE__);
}

cddp_status clip(struct cddpi_device *device, const double *squares, const float *loss_scale,
                 double clip, float *scale, int32_t *skip, float *norm)
{
    cudaError_t error = CDDPI_LAUNCH(find_scale, 1, 1, 0, cddpi_cuda_compute_stream(device),
                                     squares, loss_scale, clip, scale, skip, norm);

    return cddpi_cuda_status(device, error, "clip", __FILE__, __LINE__);
}

cddp_status scale_loss(struct cddpi_device *device, const int32_t *skip, double growth,
                       double backoff, float least, int32_t interval, float *loss_scale,
                       int32_t *good_steps)
{
    cudaError_t error = CDDPI_LAUNCH(move_scale, 1, 1, 0, cddpi_cuda_compute_stream(device), skip,
                                     growth, backoff, least, interval, loss_scale, good_steps);

    return cddpi_cuda_status(device, error, "scale_loss", __FILE__, __LINE__);
}

} // namespace

void cddpi_cuda_fill_squares(struct cddpi_cuda_kernels *out)
{
    out->squares = squares;
    out->clip = clip;
    out->scale_loss = scale_loss;
}
