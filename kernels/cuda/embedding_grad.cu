/* embedding_grad.cu - owns the gradients of the tables of tokens and positions.
 *
 * Rows of dy are added to the table's in a fixed order without atomics: the row numbers are first
 * sorted by (token, row). Chunks of 1024 are sorted in shared memory, then merged in pairs, where
 * each element finds its rank in the other run: 1 + log2(rows / 1024) small launches of about 3 us
 * each. Then one warp adds up the rows of each token with at most 32 of them. Blocks add up the
 * rows of the other tokens, 32 rows at a time, each for a slice of 8 vectors of the columns; so the
 * most frequent token (1300 rows of 32768 in English) is spread over 12 blocks.
 *
 * dy is read twice (for the table, for the positions), and the affected part of the table is read
 * and written: for 32768 x 768 of bf16 with 8000 tokens 2 x 48 + 2 x 23 MiB, 31 us at 4.8 TB/s and
 * about 50 us with the sort. A step of GPT-2 takes 65 ms. */
#include "kernels/cuda/vector.cuh"

namespace
{
enum {
    CHUNK = 1024, /* keys that one block sorts */
    SORTERS = CHUNK / 2,
    BLOCK = 256,
    FEW = CDDPI_WARP, /* the most rows of a token that one warp adds up */
    SLICE = 8,        /* vectors of columns for each block */
    LANES = BLOCK / SLICE,
    AHEAD = 4
};

/* Token in the upper half, row in the lower half: keys are unique. */
typedef unsigned long long sort_key;

__device__ __forceinline__ unsigned token_of(sort_key key)
{
    return (unsigned)(key >> 32);
}
__device__ __forceinline__ size_t row_of(sort_key key)
{
    return (unsigned)key;
}

/* A bitonic network. */
__global__ void __launch_bounds__(SORTERS)
    sort_chunks(const int32_t *__restrict__ tokens, size_t rows, sort_key *__restrict__ out)
{
    __shared__ sort_key keys[CHUNK];
    size_t first = (size_t)blockIdx.x * CHUNK;

    for (unsigned i = threadIdx.x; i < CHUNK; i += SORTERS) {
        size_t row = first + i;

        keys[i] = row < rows ? (sort_key)(unsigned)tokens[row] << 32 | row : ~(sort_key)0;
    }
    for (unsigned size = 2; size <= CHUNK; size *= 2) {
        for (unsigned step = size / 2; step > 0; step /= 2) {
            unsigned low = threadIdx.x / step * step * 2 + threadIdx.x % step;
            bool up = (low & size) == 0;
            sort_key a, b;

            __syncthreads();
            a = keys[low];
            b = keys[low + step];
            if ((a > b) == up) {
                keys[low] = b;
                keys[low + step] = a;
            }
        }
    }
    __syncthreads();
    for (unsigned i = threadIdx.x; i < CHUNK && first + i < rows; i += SORTERS) {
        out[first + i] = keys[i];
    }
}

/* How many of the sorted keys [first, end) are smaller. */
__device__ __forceinline__ size_t rank_of(sort_key key, const sort_key *keys, size_t first,
                                          size_t end)
{
    size_t low = first;

    while (low < end) {
        size_t middle = low + (end - low) / 2;

        if (keys[middle] < key) {
            low = middle + 1;
        } else {
            end = middle;
        }
    }
    return low - first;
}

/* Merge pairs of sorted runs of `run` keys. */
__global__ void __launch_bounds__(BLOCK)
    merge_runs(const sort_key *__restrict__ in, size_t rows, size_t run, sort_key *__restrict__ out)
{
    size_t i = (size_t)blockIdx.x * BLOCK + threadIdx.x;
    size_t mine = i / run * run;
    size_t pair = i / (2 * run) * (2 * run);
    size_t other = mine == pair ? pair + run : pair;
    size_t end = other + run < rows ? other + run : rows;

    if (i < rows) {
        sort_key key = in[i];
        size_t rank = other < rows ? rank_of(key, in, other, end) : 0;

        out[pair + (i - mine) + rank] = key;
    }
}

/* table[...] += sum: W floats that only this thread accesses. */
template <int W> __device__ __forceinline__ void add_to(float *table, const float (&sum)[W])
{
    float before[W];

    load_floats(table, before);
    CDDPI_UNROLL
    for (int j = 0; j < W; j++) {
        before[j] += sum[j];
    }
    store_floats(table, before);
}

/* For tokens with few keys: the warp of the token's first key. */
template <class T, int W>
__global__ void __launch_bounds__(BLOCK)
    add_few(const sort_key *__restrict__ keys, const T *__restrict__ dy, size_t rows,
            size_t columns, float *dtable)
{
    size_t first = (size_t)blockIdx.x * (BLOCK / CDDPI_WARP) + threadIdx.x / CDDPI_WARP;
    int lane = (int)threadIdx.x % CDDPI_WARP;
    size_t vectors = columns / W;
    unsigned token, row;
    int count;
    sort_key key;

    if (first >= rows) {
        return;
    }
    token = token_of(keys[first]);
    if (first > 0 && token_of(keys[first - 1]) == token) {
        return;
    }
    if (first + FEW < rows && token_of(keys[first + FEW]) == token) {
        return;
    }
    key = first + (size_t)lane < rows ? keys[first + (size_t)lane] : ~(sort_key)0;
    count = __popc(__ballot_sync(CDDPI_ALL_LANES, token_of(key) == token));
    row = (unsigned)key;
    for (size_t base = 0; base < vectors; base += CDDPI_WARP) {
        size_t v = base + (size_t)lane;
        float sum[W] = {};

        for (int next = 0; next < count; next += AHEAD) {
            typename wide<T, W>::raw words[AHEAD];

            CDDPI_UNROLL
            for (int i = 0; i < AHEAD; i++) {
                size_t from = __shfl_sync(CDDPI_ALL_LANES, row, (next + i) % CDDPI_WARP);

                words[i] = next + i < count && v < vectors
                               ? wide<T, W>::fetch(dy + from * columns + v * W)
                               : typename wide<T, W>::raw{};
            }
            add_vectors<T, W>(words, sum);
        }
        if (v < vectors) {
            add_to(dtable + (size_t)token * columns + v * W, sum);
        }
    }
}

/* If a token has more than FEW keys, one of them is at a multiple of FEW. The block of the first
 * such place adds up all its rows; each slice of columns has a block of its own. */
template <class T, int W>
__global__ void __launch_bounds__(BLOCK)
    add_many(const sort_key *__restrict__ keys, const T *__restrict__ dy, size_t rows,
             size_t columns, float *dtable)
{
    __shared__ float sums[LANES][SLICE * W];
    size_t place = (size_t)blockIdx.x * FEW;
    unsigned token = token_of(keys[place]);
    int lane = (int)threadIdx.x / SLICE;
    size_t v = (size_t)blockIdx.y * SLICE + threadIdx.x % SLICE;
    size_t vectors = columns / W;
    size_t first, end;
    float sum[W] = {};

    if (place >= FEW && token_of(keys[place - FEW]) == token) {
        return;
    }
    first = place >= FEW ? place - FEW : 0;
    first += rank_of((sort_key)token << 32, keys, first, place);
    end = place + rank_of((sort_key)(token + 1) << 32, keys, place, rows);
    if (end - first <= FEW) {
        return;
    }
    for (size_t base = first + (size_t)lane; base < end; base += (size_t)LANES * AHEAD) {
        typename wide<T, W>::raw words[AHEAD];
        size_t from[AHEAD];

        CDDPI_UNROLL
        /* load all row numbers before the rows that depend on them */
        for (int i = 0; i < AHEAD; i++) {
            size_t at = base + (size_t)i * LANES;

            from[i] = at < end ? row_of(keys[at]) : rows;
        }
        CDDPI_UNROLL
        for (int i = 0; i < AHEAD; i++) {
            words[i] = from[i] < rows && v < vectors
                           ? wide<T, W>::fetch(dy + from[i] * columns + v * W)
                           : typename wide<T, W>::raw{};
        }
        add_vectors<T, W>(words, sum);
    }
    CDDPI_UNROLL
    for (int j = 0; j < W; j++) {
        sums[lane][threadIdx.x % SLICE * W + (unsigned)j] = sum[j];
    }
    __syncthreads();
    if (lane == 0 && v < vectors) {
        CDDPI_UNROLL
        for (int j = 0; j < W; j++) {
            sum[j] = 0;
            for (int i = 0; i < LANES; i++) {
                sum[j] += sums[i][threadIdx.x % SLICE * W + (unsigned)j];
            }
        }
        add_to(dtable + (size_t)token * columns + v * W, sum);
    }
}

/* Each thread has one vector of one position, and adds up its rows in order. */
template <class T, int W>
__global__ void __launch_bounds__(BLOCK)
    add_positions(const T *__restrict__ dy, size_t rows, size_t length, size_t columns, bool add,
                  float *dpositions)
{
    size_t v = (size_t)blockIdx.x * BLOCK + threadIdx.x;
    size_t row = v / (columns / W);
    size_t at = v * W; /* row * columns + column */
    float sum[W] = {};

    if (row >= length) {
        return;
    }
    for (; row < rows; row += AHEAD * length) {
        typename wide<T, W>::raw words[AHEAD];

        CDDPI_UNROLL
        for (int i = 0; i < AHEAD; i++) {
            words[i] = row + (size_t)i * length < rows
                           ? wide<T, W>::fetch(dy + at + (size_t)i * length * columns)
                           : typename wide<T, W>::raw{};
        }
        add_vectors<T, W>(words, sum);
        at += AHEAD * length * columns;
    }
    if (add) {
        add_to(dpositions + v * W, sum);
    } else {
        store_floats(dpositions + v * W, sum);
    }
}

/* @p a first receives the sorted chunks; *out is @p a or @p b, whichever holds the sorted keys. */
cudaError_t sort(cudaStream_t stream, const int32_t *tokens, size_t rows, sort_key *a, sort_key *b,
                 const sort_key **out)
{
    cudaError_t error = CDDPI_LAUNCH(sort_chunks, (unsigned)cddpi_ceil(rows, CHUNK), SORTERS, 0,
                                     stream, tokens, rows, a);

    for (size_t run = CHUNK; run < rows && error == cudaSuccess; run *= 2) {
        sort_key *from = a;

        error = CDDPI_LAUNCH(merge_runs, (unsigned)cddpi_ceil(rows, BLOCK), BLOCK, 0, stream, from,
                             rows, run, b);
        a = b;
        b = from;
    }
    *out = a;
    return error;
}

template <class T, int W>
cudaError_t start(cudaStream_t stream, const sort_key *keys, const T *dy, size_t rows,
                  size_t length, size_t columns, bool add, float *dtable, float *dpositions)
{
    size_t vectors = columns / W;
    dim3 many((unsigned)cddpi_ceil(rows, FEW), (unsigned)cddpi_ceil(vectors, SLICE));
    cudaError_t error = CDDPI_LAUNCH((add_few<T, W>),
                                     (unsigned)cddpi_ceil(rows, BLOCK / CDDPI_WARP), BLOCK, 0,
                                     stream, keys, dy, rows, columns, dtable);

    if (error == cudaSuccess && rows > FEW) {
        error = CDDPI_LAUNCH((add_many<T, W>), many, BLOCK, 0, stream, keys, dy, rows, columns,
                             dtable);
    }
    if (error == cudaSuccess && dpositions != nullptr) {
        error = CDDPI_LAUNCH((add_positions<T, W>), (unsigned)cddpi_ceil(length * vectors, BLOCK),
                             BLOCK, 0, stream, dy, rows, length, columns, add, dpositions);
    }
    return error;
}

template <class T>
cddp_status embedding_grad_as(cddpi_device *device, const int32_t *tokens, const void *dy,
                              size_t rows, size_t length, size_t columns, bool add, float *dtable,
                              float *dpositions, void *scratch)
{
    constexpr int N = packed<T>::N;
    cudaStream_t stream = cddpi_cuda_compute_stream(device);
    sort_key *space = static_cast<sort_key *>(scratch);
    const T *gradient = static_cast<const T *>(dy);
    const sort_key *keys;
    cudaError_t error = sort(stream, tokens, rows, space, space + rows, &keys);

    if (error == cudaSuccess) {
        error = columns % N == 0 ? start<T, N>(stream, keys, gradient, rows, length, columns, add,
                                               dtable, dpositions)
                                 : start<T, 1>(stream, keys, gradient, rows, length, columns, add,
                                               dtable, dpositions);
    }
    return CDDPI_STARTED(device, "embedding_grad", error);
}

cddp_status embedding_grad(cddpi_device *device, cddp_type type, const int32_t *tokens,
                           const void *dy, size_t rows, size_t length, size_t columns, size_t vocab,
                           bool add, float *dtable, float *dpositions, void *scratch)
{
    (void)vocab;
    if (columns == 0) {
        return CDDP_OK;
    }
    if (rows > UINT32_MAX) {
        return cuda_fail(device, CDDP_ERR_ARGUMENT, "embedding_grad: %zu rows are too many", rows);
    }
    if (rows == 0) {
        cudaError_t error = add || dpositions == nullptr
                                ? cudaSuccess
                                : cudaMemsetAsync(dpositions, 0,
                                                  length * columns * sizeof *dpositions,
                                                  cddpi_cuda_compute_stream(device));

        return CDDPI_STARTED(device, "embedding_grad", error);
    }
    return CDDPI_BY_TYPE(type, embedding_grad_as, device, tokens, dy, rows, length, columns, add,
                         dtable, dpositions, scratch);
}

size_t embedding_scratch(size_t rows, size_t vocab)
{
    (void)vocab;
    return 2 * rows * sizeof(sort_key);
}
} // namespace

void cddpi_cuda_fill_embedding_grad(struct cddpi_cuda_kernels *out)
{
    out->embedding_grad = embedding_grad;
    out->embedding_scratch = embedding_scratch;
}
