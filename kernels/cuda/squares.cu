/* squares.cu - owns the sum of squares of all gradients, and what is computed from it: the factor
 * of the update, and the loss scale.
 *
 * The sum reads 4 bytes for each element: GPT-2 124M's 0.5 GB take 0.10 ms at 4.8 TB/s; 90 % of
 * that is the target. It has the bits of kernels/cpu/cpu_optim.h: squares are summed up in float64
 * in blocks of 16 elements, and the blocks' sums exactly.
 *
 * Within a piece, that needs no integers. Its largest sum is in [2^m, 2^(m + 1)). Each sum is split
 * into multiples of 2^(m - 42), of 2^(m - 86) and of 2^(m - 130), and a rest, which is nearly
 * always 0. There are 1024 sums, so float64 adds up each kind without rounding, in any order. */
#include "kernels/cuda/exact_sum.cuh"
#include "kernels/cuda/kernels_module.h"
#include "kernels/cuda/tensors.cuh"

namespace
{

/* A thread loads AHEAD vectors of four elements before it uses one. Four threads load AHEAD blocks
 * of 16. */
enum {
    THREADS = 256,
    AHEAD = 4,
    WARPS = THREADS / CDDPI_WARP,
    TURN = THREADS * AHEAD * 4, /* elements */
    TURNS = (int)CDDPI_PIECE / TURN,
    KINDS = 3,
    FEW_THREADS = 96 /* for the parts of one sum */
};
/* Of a launch: more than 132 multiprocessors hold. Each adds its sum to the whole once. */
constexpr size_t MOST_BLOCKS = 1024;
static_assert(CDDPI_PIECE % TURN == 0 && CDDPI_PIECE / 16 <= 1024, "see above");

/* Four elements from @p at on, zeros from @p end on. */
__device__ __forceinline__ pack<float> load_four(const float *x, size_t at, size_t end, bool packed)
{
    pack<float> four = {};

    if (packed && at + 4 <= end) {
        return *(const pack<float> *)(x + at);
    }
    CDDPI_UNROLL
    for (int k = 0; k < 4; k++) {
        four.at[k] = at + k < end ? x[at + k] : 0;
    }
    return four;
}

/* Exchange vector @p j for the partner's vector @p j + @p bit, or the other way round. */
__device__ __forceinline__ void exchange(pack<float> (&some)[AHEAD], int j, int bit)
{
    bool upper = ((int)threadIdx.x & bit) != 0;

    CDDPI_UNROLL
    for (int k = 0; k < 4; k++) {
        float &low = some[j].at[k];
        float &high = some[j + bit].at[k];
        float got = __shfl_xor_sync(0xffffffffu, upper ? low : high, bit);

        low = upper ? got : low;
        high = upper ? high : got;
    }
}

/* Vector b of each of four threads is a quarter of block b: give block b to thread b. */
__device__ __forceinline__ void transpose(pack<float> (&some)[AHEAD])
{
    exchange(some, 0, 1);
    exchange(some, 2, 1);
    exchange(some, 0, 2);
    exchange(some, 1, 2);
}

__device__ __forceinline__ double square(float x)
{
    return (double)x * x;
}

__device__ __forceinline__ double sum_block(const pack<float> (&x)[4])
{
    double four[4];

    CDDPI_UNROLL
    for (int k = 0; k < 4; k++) {
        four[k] = (square(x[0].at[k]) + square(x[2].at[k])) +
                  (square(x[1].at[k]) + square(x[3].at[k]));
    }
    return (four[0] + four[1]) + (four[2] + four[3]);
}

/* This thread's blocks of a piece. */
__device__ __forceinline__ void sum_blocks(const float *x, size_t n, double (&sums)[TURNS])
{
    bool packed = packs(x);

    CDDPI_UNROLL
    for (int turn = 0; turn < TURNS; turn++) {
        pack<float> some[AHEAD];

        CDDPI_UNROLL
        for (int a = 0; a < AHEAD; a++) {
            some[a] = load_four(x, (size_t)turn * TURN + (a * THREADS + threadIdx.x) * 4, n,
                                packed);
        }
        transpose(some);
        sums[turn] = sum_block(some);
    }
}

/* The upper half of the largest sum's bits without the sign: an exponent, or that of infinity, or
 * more for a NaN. For all threads. */
__device__ __forceinline__ int find_largest(const double (&sums)[TURNS], int *shared)
{
    int largest = 0;

    CDDPI_UNROLL
    for (int i = 0; i < TURNS; i++) {
        int upper = (int)(cddpi_exact_bits(sums[i]) >> 32) & 0x7fffffff;

        largest = upper > largest ? upper : largest;
    }
    for (int width = CDDPI_WARP / 2; width > 0; width /= 2) {
        int other = __shfl_xor_sync(0xffffffffu, largest, width);

        largest = other > largest ? other : largest;
    }
    if (threadIdx.x % CDDPI_WARP == 0) {
        shared[threadIdx.x / CDDPI_WARP] = largest;
    }
    __syncthreads();
    for (int i = 0; i < WARPS; i++) {
        largest = shared[i] > largest ? shared[i] : largest;
    }
    return largest;
}

/* Split sums into multiples of three powers of 2, add these up over a warp, and leave the rests.
 * @p round  3 x 2^(m + 9): adding and subtracting it rounds to multiples of 2^(m - 42). */
__device__ __forceinline__ void split(double (&sums)[TURNS], double round, double (&kinds)[KINDS])
{
    CDDPI_UNROLL
    for (int kind = 0; kind < KINDS; kind++) {
        kinds[kind] = 0;
        CDDPI_UNROLL
        for (int i = 0; i < TURNS; i++) {
            double part = (sums[i] + round) - round;

            kinds[kind] += part;
            sums[i] -= part;
        }
        for (int width = CDDPI_WARP / 2; width > 0; width /= 2) {
            kinds[kind] += __shfl_xor_sync(0xffffffffu, kinds[kind], width);
        }
        round *= 0x1p-44;
    }
}

/* What a block of threads shares. */
struct square_shared {
    int largest[WARPS];
    double kinds[WARPS][KINDS];
    int64_t parts[CDDPI_EXACT_PARTS];
};

/* Add a piece's sums to the block's parts. */
__device__ __forceinline__ void add_piece(double (&sums)[TURNS], square_shared &shared)
{
    const int infinite = 0x7ff00000;
    int largest = find_largest(sums, shared.largest);
    double kinds[KINDS];

    if (largest >= infinite) {
        if (threadIdx.x == 0) {
            shared.parts[largest > infinite ? CDDPI_EXACT_NAN : CDDPI_EXACT_POSITIVE]++;
        }
        __syncthreads();
        return;
    }
    split(sums, 1536 * cddpi_exact_from_bits((uint64_t)(largest & infinite) << 32), kinds);
    for (int i = 0; i < TURNS; i++) {
        if (sums[i] != 0) {
            exact_add_shared(shared.parts, sums[i]);
        }
    }
    if (threadIdx.x % CDDPI_WARP == 0) {
        for (int kind = 0; kind < KINDS; kind++) {
            shared.kinds[threadIdx.x / CDDPI_WARP][kind] = kinds[kind];
        }
    }
    __syncthreads();
    if (threadIdx.x < KINDS) {
        double sum = 0;

        for (int i = 0; i < WARPS; i++) {
            sum += shared.kinds[i][threadIdx.x];
        }
        exact_add_shared(shared.parts, sum);
    }
}

__global__ void __launch_bounds__(THREADS)
    square_pieces(const tensor_entry *entries, const tensor_piece *pieces, unsigned count,
                  int64_t *out)
{
    __shared__ square_shared shared;

    for (int i = (int)threadIdx.x; i < CDDPI_EXACT_PARTS; i += THREADS) {
        shared.parts[i] = 0;
    }
    __syncthreads();
    for (unsigned i = blockIdx.x; i < count; i += gridDim.x) {
        const tensor_entry &entry = entries[pieces[i].tensor];
        size_t first = (size_t)pieces[i].index * CDDPI_PIECE;
        size_t left = entry.count - first;
        double sums[TURNS];

        sum_blocks(entry.grad + first, left < CDDPI_PIECE ? left : CDDPI_PIECE, sums);
        add_piece(sums, shared);
    }
    __syncthreads();
    for (int i = (int)threadIdx.x; i < CDDPI_EXACT_PARTS; i += THREADS) {
        if (shared.parts[i] != 0) {
            exact_add_atomic(&out[i], shared.parts[i]);
        }
    }
}

/* Move a sum to @p out, where it has carried, and leave zero. */
__global__ void move_sum(int64_t *sum, int64_t *out)
{
    __shared__ int64_t parts[CDDPI_EXACT_PARTS];

    exact_copy(sum, parts);
    if (threadIdx.x == 0) {
        cddpi_exact_carry_parts(parts);
    }
    __syncthreads();
    exact_copy(parts, out);
    for (int i = (int)threadIdx.x; i < CDDPI_EXACT_PARTS; i += (int)blockDim.x) {
        sum[i] = 0;
    }
}

/* Clips as src/trainer/train/update.c does, in float64. */
__global__ void find_scale(const int64_t *squares, const float *loss_scale, double clip,
                           float *scale, int32_t *skip, double *norm)
{
    __shared__ int64_t parts[CDDPI_EXACT_PARTS];

    exact_copy(squares, parts);
    if (threadIdx.x != 0) {
        return;
    }
    double sum = cddpi_exact_round(parts);
    double by = loss_scale != nullptr ? (double)*loss_scale : 1.0;
    bool finite = sum <= 1.7976931348623157e308; /* also false for a NaN */
    double length = sqrt(sum) / by;
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
                    struct cddpi_exact_sum *out)
{
    cudaStream_t stream = cddpi_cuda_compute_stream(device);
    tensor_table table = tensor_table_at(tensors->table, tensors->slots, tensors->pieces);
    size_t blocks = tensors->pieces < MOST_BLOCKS ? tensors->pieces : MOST_BLOCKS;
    cudaError_t error;

    if (tensors->pieces == 0) {
        error = cudaMemsetAsync(out, 0, sizeof *out, stream);
        return cddpi_cuda_status(device, error, "squares", __FILE__, __LINE__);
    }
    error = CDDPI_LAUNCH(square_pieces, (unsigned)blocks, THREADS, 0, stream, table.entries,
                         table.pieces, (unsigned)tensors->pieces, table.squares->parts);
    if (error == cudaSuccess) {
        error = CDDPI_LAUNCH(move_sum, 1, FEW_THREADS, 0, stream, table.squares->parts, out->parts);
    }
    return cddpi_cuda_status(device, error, "squares", __FILE__, __LINE__);
}

cddp_status clip(struct cddpi_device *device, const struct cddpi_exact_sum *squares,
                 const float *loss_scale, double clip, float *scale, int32_t *skip, double *norm)
{
    cudaError_t error = CDDPI_LAUNCH(find_scale, 1, FEW_THREADS, 0,
                                     cddpi_cuda_compute_stream(device), squares->parts, loss_scale,
                                     clip, scale, skip, norm);

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
