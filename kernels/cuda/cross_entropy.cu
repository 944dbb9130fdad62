/* cross_entropy.cu - owns softmax cross-entropy in place of the logits, with one block for each
 * row.
 *
 * With gradients, a row moves through memory once in each direction: 2 x 3.07 GiB for 32768 x 50304
 * of bf16, 1.37 ms at 4.8 TB/s. Therefore the row stays on the chip between reading and writing: 8
 * vectors in the registers of each of 512 threads (64 KiB), the rest in up to 40 KiB of shared
 * memory; a row of 50304 of bf16 is 98 KiB. Longer rows (float32; 128 k tokens) read the remainder
 * a second time, from L2 where it fits (132 x 2 rows are processed at once). Each SM has two
 * blocks: one fetches its row while the other computes or writes. The maximum and the sum of
 * exponentials are computed in one pass while vectors arrive, so that special functions (2 for each
 * element: 3.6 us for each row and SM, where the row's bytes take 5.5 us) overlap with loads and
 * stores.
 *
 * Rows need not be aligned: up to N - 1 elements before the first whole vector and after the last
 * one are kept by one thread each. */
#include "kernels/cuda/vector.cuh"

namespace
{
/* Threads of a block, and vectors in each thread's registers. */
struct long_rows {
    static constexpr int threads = 512, held = 8;
};
struct short_rows {
    static constexpr int threads = 128, held = 4;
};
const size_t SHORT_COLUMNS = 2048;
const size_t HELD_SHARED = 40 * 1024 / 16;

/* The initial maximum, not above any finite number. It is finite, so that differences are not NaN.
 */
const float LEAST = -3.402823466e38f;

template <class T> __device__ __forceinline__ float power(float x)
{
    return sizeof(T) == 4 ? expf(x) : __expf(x);
}

/* The maximum of some elements, and the sum of exp(x - maximum). */
struct running {
    float most, sum;
};

template <class T> __device__ __forceinline__ void join(running &a, const running &b)
{
    float most = fmaxf(a.most, b.most);

    a.sum = a.sum * power<T>(a.most - most) + b.sum * power<T>(b.most - most);
    a.most = most;
}

template <class T, int W>
__device__ __forceinline__ void add_elements(running &row, const float (&x)[W])
{
    float most = x[0];

    CDDPI_UNROLL
    for (int j = 1; j < W; j++) {
        most = fmaxf(most, x[j]);
    }
    if (most > row.most) {
        row.sum *= power<T>(row.most - most);
        row.most = most;
    }
    CDDPI_UNROLL
    for (int j = 0; j < W; j++) {
        row.sum += power<T>(x[j] - row.most);
    }
}

/* The result for the whole block, for each thread, in the order of lanes and warps. */
template <class T, class S>
__device__ __forceinline__ running join_block(running mine, running *shared)
{
    running row = {LEAST, 0};

    CDDPI_UNROLL
    for (int distance = CDDPI_WARP / 2; distance > 0; distance /= 2) {
        running other;

        other.most = __shfl_down_sync(CDDPI_ALL_LANES, mine.most, distance);
        other.sum = __shfl_down_sync(CDDPI_ALL_LANES, mine.sum, distance);
        join<T>(mine, other);
    }
    if (threadIdx.x % CDDPI_WARP == 0) {
        shared[threadIdx.x / CDDPI_WARP] = mine;
    }
    __syncthreads();
    for (int i = 0; i < S::threads / CDDPI_WARP; i++) {
        join<T>(row, shared[i]);
    }
    return row;
}

/* The layout of a row from the point of view of this thread. Vector v belongs to thread v %
 * S::threads. A thread keeps its first S::held vectors in registers and the next ones in shared
 * memory. */
template <class T> struct row_layout {
    static constexpr int N = packed<T>::N;
    T *vector;   /* the first whole vector */
    int before;  /* elements before that vector */
    int vectors, /* number of whole vectors */
        single;  /* the element before or after the vectors that belongs to this thread; -1: none */

    __device__ row_layout(T *row, int columns)
    {
        int behind;

        before = (int)((16 - (uintptr_t)row % 16) % 16 / sizeof(T));
        before = before < columns ? before : columns;
        vectors = (columns - before) / N;
        behind = columns - before - vectors * N;
        vector = row + before;
        single = (int)threadIdx.x < before ? (int)threadIdx.x : -1;
        if ((int)threadIdx.x >= N && (int)threadIdx.x < N + behind) {
            single = columns - behind + (int)threadIdx.x - N;
        }
    }
};

template <class T> struct entropy_arguments {
    T *logits;
    const int32_t *labels;
    int columns;
    size_t stride; /* elements between rows */
    float scale;
    const float *device_scale;
    struct row_result *results;
    int held_shared; /* number of vectors that fit in shared memory */
};

/* The part of a row that a thread keeps. */
template <class S> struct held_row {
    uint4 words[S::held];
    float single;
};

/* Load S::held vectors from the thread's place in @p base on; all loads are issued before one is
 * used. */
template <class T, class S>
__device__ __forceinline__ void fetch_batch(const row_layout<T> &row, int base,
                                            uint4 (&words)[S::held])
{
    CDDPI_UNROLL
    for (int k = 0; k < S::held; k++) {
        int v = base + (int)threadIdx.x + k * S::threads;

        if (v < row.vectors) {
            words[k] = load_words(row.vector + (size_t)v * packed<T>::N);
        }
    }
}

template <class T, class S>
__device__ __forceinline__ void add_batch(const row_layout<T> &row, int base,
                                          const uint4 (&words)[S::held], running &mine)
{
    CDDPI_UNROLL
    for (int k = 0; k < S::held; k++) {
        if (base + (int)threadIdx.x + k * S::threads < row.vectors) {
            float x[packed<T>::N];

            packed<T>::unpack(words[k], x);
            add_elements<T>(mine, x);
        }
    }
}

/* Start with the end of the row, which needs no registers. */
template <class T, class S>
__device__ __forceinline__ running read_row(const row_layout<T> &row, T *start, held_row<S> &held,
                                            uint4 *shared, int held_shared)
{
    running mine = {LEAST, 0};
    int batch = S::held * S::threads;

    held.single = row.single >= 0 ? to_float(start[row.single]) : 0;
    for (int base = batch; base < row.vectors; base += batch) {
        fetch_batch<T, S>(row, base, held.words);
        CDDPI_UNROLL
        for (int k = 0; k < S::held; k++) {
            int slot = base - batch + (int)threadIdx.x + k * S::threads;

            if (slot < held_shared && slot + batch < row.vectors) {
                shared[slot] = held.words[k]; /* only this thread reads it */
            }
        }
        add_batch<T, S>(row, base, held.words, mine);
    }
    fetch_batch<T, S>(row, 0, held.words);
    add_batch<T, S>(row, 0, held.words, mine);
    if (row.single >= 0) {
        const float one[1] = {held.single};

        add_elements<T>(mine, one);
    }
    return mine;
}

/* Get a vector that is not in registers, from shared memory or global memory. */
template <class T, class S>
__device__ __forceinline__ uint4 again(const row_layout<T> &row, const uint4 *shared,
                                       int held_shared, int v)
{
    int slot = v - S::held * S::threads;

    return slot < held_shared ? shared[slot] : load_words(row.vector + (size_t)v * packed<T>::N);
}

template <int W>
__device__ __forceinline__ bool equals_before(const float (&x)[W], int first, int label, float most)
{
    bool found = false;

    CDDPI_UNROLL
    for (int j = 0; j < W; j++) {
        found = found || (x[j] == most && first + j < label);
    }
    return found;
}

/* Whether this thread has an element before the label's that equals the maximum. */
template <class T, class S>
__device__ __forceinline__ bool has_earlier(const row_layout<T> &row, const held_row<S> &held,
                                            const uint4 *shared, int held_shared, int label,
                                            float most)
{
    constexpr int N = packed<T>::N;
    bool found = row.single >= 0 && row.single < label && held.single == most;
    float x[N];

    CDDPI_UNROLL
    for (int k = 0; k < S::held; k++) {
        int v = (int)threadIdx.x + k * S::threads;

        if (v < row.vectors) {
            packed<T>::unpack(held.words[k], x);
            found = found || equals_before(x, row.before + v * N, label, most);
        }
    }
    for (int v = (int)(threadIdx.x + S::held * S::threads); v < row.vectors; v += S::threads) {
        packed<T>::unpack(again<T, S>(row, shared, held_shared, v), x);
        found = found || equals_before(x, row.before + v * N, label, most);
    }
    return found;
}

/* The values from which an element's gradient is computed. */
struct gradient {
    float most, factor, scale; /* factor: scale / sum of exponentials */
    int label;
};

template <class T, int W>
__device__ __forceinline__ void differentiate(const gradient &g, int first, float (&x)[W])
{
    CDDPI_UNROLL
    for (int j = 0; j < W; j++) {
        x[j] = power<T>(x[j] - g.most) * g.factor;
    }
    if (g.label >= first && g.label < first + W) {
        CDDPI_UNROLL
        for (int j = 0; j < W; j++) {
            x[j] -= first + j == g.label ? g.scale : 0;
        }
    }
}

template <class T, class S>
__device__ __forceinline__ void write_batch(const row_layout<T> &row, int base,
                                            const uint4 (&words)[S::held], const gradient &g)
{
    constexpr int N = packed<T>::N;

    CDDPI_UNROLL
    for (int k = 0; k < S::held; k++) {
        int v = base + (int)threadIdx.x + k * S::threads;

        if (v < row.vectors) {
            float x[N];

            packed<T>::unpack(words[k], x);
            differentiate<T>(g, row.before + v * N, x);
            stream_words(row.vector + (size_t)v * N, packed<T>::pack(x));
        }
    }
}

/* Start with the beginning of the row, so that its registers become free for the rest. */
template <class T, class S>
__device__ __forceinline__ void write_row(const row_layout<T> &row, T *start, held_row<S> &held,
                                          const uint4 *shared, int held_shared, const gradient &g)
{
    int batch = S::held * S::threads;

    write_batch<T, S>(row, 0, held.words, g);
    for (int base = batch; base < row.vectors; base += batch) {
        CDDPI_UNROLL
        for (int k = 0; k < S::held; k++) {
            int v = base + (int)threadIdx.x + k * S::threads;

            if (v < row.vectors) {
                held.words[k] = again<T, S>(row, shared, held_shared, v);
            }
        }
        write_batch<T, S>(row, base, held.words, g);
    }
    if (row.single >= 0) {
        float one[1] = {held.single};

        differentiate<T>(g, row.single, one);
        start[row.single] = from_float<T>(one[0]);
    }
}

template <class T, class S, bool GRADS>
__global__ void __launch_bounds__(S::threads, 1024 / S::threads)
    entropy_rows(const entropy_arguments<T> a)
{
    __shared__ running warps[S::threads / CDDPI_WARP];
    __shared__ int earlier;
    CDDPI_DYNAMIC_SHARED(uint4, shared);
    T *start = a.logits + (size_t)blockIdx.x * a.stride;
    const row_layout<T> row(start, a.columns);
    int label = a.labels[blockIdx.x];
    /* read before threads synchronise, after which they write */
    float labelled = to_float(start[label]);
    held_row<S> held;
    running all;

    if (threadIdx.x == 0) {
        earlier = 0;
    }
    all = join_block<T, S>(read_row<T, S>(row, start, held, shared, a.held_shared), warps);
    if (labelled == all.most) {
        if (has_earlier<T, S>(row, held, shared, a.held_shared, label, all.most)) {
            atomicOr(&earlier, 1);
        }
        __syncthreads();
    }
    if (threadIdx.x == 0) {
        /* a NaN would show in the sum */
        bool correct = labelled == all.most && earlier == 0 && all.sum >= 1;

        a.results[blockIdx.x] = {log((double)all.sum) - ((double)labelled - (double)all.most),
                                 correct ? 1.0 : 0.0};
    }
    if (GRADS) {
        float scale = a.device_scale != nullptr ? a.scale * *a.device_scale : a.scale;
        /* If only the label's logit is -Inf, the loss is infinite but its gradient would be finite,
         * and other ranks would never notice. So make it NaN. */
        float factor = labelled > -INFINITY ? scale / all.sum : NAN;
        const gradient g = {all.most, factor, scale, label};

        write_row<T, S>(row, start, held, shared, a.held_shared, g);
    }
}

template <class T, class S>
cudaError_t start(cudaStream_t stream, const entropy_arguments<T> &arguments, size_t rows,
                  bool grads)
{
    entropy_arguments<T> a = arguments;
    size_t vectors = (size_t)a.columns / packed<T>::N;
    size_t in_registers = (size_t)S::held * S::threads;
    size_t beyond = vectors > in_registers ? vectors - in_registers : 0;
    size_t shared_bytes;

    a.held_shared = (int)(beyond < HELD_SHARED ? beyond : HELD_SHARED);
    shared_bytes = (size_t)a.held_shared * sizeof(uint4);
    return grads ? CDDPI_LAUNCH((entropy_rows<T, S, true>), (unsigned)rows, S::threads,
                                shared_bytes, stream, a)
                 : CDDPI_LAUNCH((entropy_rows<T, S, false>), (unsigned)rows, S::threads,
                                shared_bytes, stream, a);
}

template <class T>
cddp_status cross_entropy_as(cddpi_device *device, void *logits, const int32_t *labels, size_t rows,
                             size_t columns, size_t stride, bool grads, float scale,
                             const float *device_scale, struct cddpi_loss_totals *out,
                             struct row_result *results)
{
    cudaStream_t stream = cddpi_cuda_compute_stream(device);
    const entropy_arguments<T> a = {
        static_cast<T *>(logits), labels, (int)columns, stride, scale, device_scale, results, 0};
    cudaError_t error = columns <= SHORT_COLUMNS ? start<T, short_rows>(stream, a, rows, grads)
                                                 : start<T, long_rows>(stream, a, rows, grads);

    if (error == cudaSuccess) {
        error = cddpi_cuda_add_results(stream, results, rows, out);
    }
    return CDDPI_STARTED(device, "cross_entropy", error);
}

cddp_status cross_entropy_strided(cddpi_device *device, cddp_type type, void *logits,
                                  const int32_t *labels, size_t rows, size_t columns, size_t stride,
                                  bool grads, float scale, const float *device_scale,
                                  struct cddpi_loss_totals *out, void *scratch)
{
    if (rows == 0 || columns == 0) {
        return CDDP_OK;
    }
    return CDDPI_BY_TYPE(type, cross_entropy_as, device, logits, labels, rows, columns, stride,
                         grads, scale, device_scale, out,
                         static_cast<struct row_result *>(scratch));
}

cddp_status cross_entropy(cddpi_device *device, cddp_type type, void *logits, const int32_t *labels,
                          size_t rows, size_t columns, bool grads, float scale,
                          const float *device_scale, struct cddpi_loss_totals *out, void *scratch)
{
    return cross_entropy_strided(device, type, logits, labels, rows, columns, columns, grads, scale,
                                 device_scale, out, scratch);
}
} // namespace

void cddpi_cuda_fill_cross_entropy(struct cddpi_cuda_kernels *out)
{
    out->cross_entropy = cross_entropy;
    out->cross_entropy_strided = cross_entropy_strided;
}
