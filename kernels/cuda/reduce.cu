/* reduce.cu - owns reductions of the ranks' arrays to one: the binary tree over ranks of
 * kernels/cpu/per_isa/reduce_loops.c, with the same bits.
 *
 * Limited by memory: (ranks + 1) times the array, read over NVLink or PCIe if it is in another
 * device's memory. A thread loads 16 bytes of each rank before it adds. Up to 8 ranks have a kernel
 * for each number of ranks, so that all these loads are in flight at once; up to 64 ranks have
 * kernels for 16, 32 and 64, of which the last ones may be missing, and in which 16 ranks' loads
 * are in flight. More ranks and rare types use a slower kernel. An input may be the output, element
 * for element, so nothing here may assume that they differ. */
#include "kernels/cuda/reduce.cuh"

namespace
{

enum { MOST = CDDPI_CUDA_REDUCE_RANKS, MOST_EXACT = 8, LEVELS = 10 };

/* y if it is a NaN or wins; x if it is a NaN, since every comparison with a NaN is false. Integers
 * wrap around. */
template <class T> struct arithmetic {
    static __device__ inline T sum(T x, T y)
    {
        return x + y;
    }
    static __device__ inline T product(T x, T y)
    {
        return x * y;
    }
};
#define WRAPPING(T, U)                                                                             \
    template <> struct arithmetic<T> {                                                             \
        static __device__ inline T sum(T x, T y)                                                   \
        {                                                                                          \
            return (T)((U)x + (U)y);                                                               \
        }                                                                                          \
        static __device__ inline T product(T x, T y)                                               \
        {                                                                                          \
            return (T)((U)x * (U)y);                                                               \
        }                                                                                          \
    };
WRAPPING(int32_t, uint32_t)
WRAPPING(int64_t, uint64_t)
WRAPPING(uint8_t, uint32_t)

template <class T> __device__ static inline T combine(cddp_op op, T x, T y)
{
    switch (op) {
    case CDDP_OP_MIN:
        return y < x || y != y ? y : x;
    case CDDP_OP_MAX:
        return y > x || y != y ? y : x;
    case CDDP_OP_PROD:
        return arithmetic<T>::product(x, y);
    default:
        return arithmetic<T>::sum(x, y);
    }
}

/* Sums and means of RANKS ranks, or of fewer if RANKS is more than MOST_EXACT. */
template <class T, int RANKS>
__global__ void __launch_bounds__(THREADS)
    sum_ranks(reduce_sources<RANKS> sources, int given, const double *weights, bool mean,
              size_t count, bool packed, T *out)
{
    typedef typename number<T>::inner real;
    enum { COUNT = pack<T>::COUNT };
    __shared__ reduce_factors<T, RANKS> factors;
    const int ranks = RANKS <= MOST_EXACT ? RANKS : given;
    size_t first = ((size_t)blockIdx.x * THREADS + threadIdx.x) * COUNT;
    reduce_place place = {first, first < count ? count - first : 0, packed};
    reduce_sum<T> sum;
    pack<T> result;

    if (weights != nullptr) {
        share_factors<T, RANKS>(weights, ranks, factors);
        mean = factors.equal;
    }
    if (place.left == 0) {
        return;
    }
    sum_subtree<T, RANKS, 0, RANKS>(sources, ranks, weights != nullptr ? &factors : nullptr, place,
                                    sum);
    CDDPI_UNROLL
    for (int k = 0; k < COUNT; k++) {
        result.at[k] = number<T>::store(mean ? sum.at[k] * (real)(1.0 / ranks) : sum.at[k]);
    }
    if (packed && place.left >= COUNT) {
        *(pack<T> *)(out + first) = result;
        return;
    }
    CDDPI_UNROLL
    for (int k = 0; k < COUNT; k++) {
        if ((size_t)k < place.left) {
            out[first + k] = result.at[k];
        }
    }
}

/* The type in which a sum or mean of T is accumulated: means of integers in 64 bits, then
 * truncated. */
template <class T> struct reduce_wide {
    typedef typename number<T>::inner mean;
    static __device__ inline T divide(mean sum, int ranks)
    {
        return number<T>::store(sum * (mean)(1.0 / ranks));
    }
};
#define WIDE(T)                                                                                    \
    template <> struct reduce_wide<T> {                                                            \
        typedef int64_t mean;                                                                      \
        static __device__ inline T divide(int64_t sum, int ranks)                                  \
        {                                                                                          \
            return (T)(sum / ranks);                                                               \
        }                                                                                          \
    };
WIDE(int32_t)
WIDE(int64_t)
WIDE(uint8_t)

/* A stack of partial results: two with the same number of leaves are combined at once, the others
 * at the end. */
template <class A> struct stack {
    A value[LEVELS];
    int leaves[LEVELS];
    bool there[LEVELS];
    int depth;
};

template <class A> __device__ static void combine_top(stack<A> &stack, cddp_op op)
{
    int top = --stack.depth;
    int below = top - 1;

    if (!stack.there[below]) {
        stack.value[below] = stack.value[top];
    } else if (stack.there[top]) {
        stack.value[below] = combine(op, stack.value[below], stack.value[top]);
    }
    stack.there[below] = stack.there[below] || stack.there[top];
    stack.leaves[below] += stack.leaves[top];
}

/* Any operation, any number of ranks, accumulated in A, one element for each thread. Factors may be
 * NULL. */
template <class T, class A>
__device__ A reduce_one(const reduce_sources<MOST> &sources, int ranks, cddp_op op,
                        const shares &shares, const double *weights, size_t i)
{
    stack<A> stack;

    stack.depth = 0;
    for (int r = 0; r < ranks; r++) {
        int top = stack.depth++;
        double factor = shares.equal ? 1.0 : factor_of(shares, weights[r]);

        stack.there[top] = factor != 0;
        stack.leaves[top] = 1;
        stack.value[top] = A();
        if (stack.there[top]) {
            A value = (A)number<T>::load(((const T *)sources.at[r])[i]);

            stack.value[top] = shares.equal ? value : value * (A)factor;
        }
        while (stack.depth > 1 && stack.leaves[stack.depth - 1] == stack.leaves[stack.depth - 2]) {
            combine_top(stack, op);
        }
    }
    while (stack.depth > 1) {
        combine_top(stack, op);
    }
    return stack.value[0];
}

template <class T>
__global__ void __launch_bounds__(THREADS)
    reduce_any(reduce_sources<MOST> sources, int ranks, cddp_op op, const double *weights,
               size_t count, T *out)
{
    typedef typename number<T>::inner inner;
    typedef typename reduce_wide<T>::mean mean;
    size_t i = (size_t)blockIdx.x * THREADS + threadIdx.x;
    shares shares = {true, 0};

    if (i >= count) {
        return;
    }
    if (weights != nullptr) {
        shares = shares_of(weights, ranks);
        op = shares.equal ? CDDP_OP_MEAN : CDDP_OP_SUM;
    }
    if (op == CDDP_OP_MEAN) {
        out[i] = reduce_wide<T>::divide(
            reduce_one<T, mean>(sources, ranks, CDDP_OP_SUM, shares, weights, i), ranks);
    } else {
        out[i] = number<T>::store(reduce_one<T, inner>(sources, ranks, op, shares, weights, i));
    }
}

/* The arguments of one reduction. */
struct job {
    reduce_sources<MOST> inputs;
    int ranks;
    cddp_op op;
    const double *weights;
    size_t count;
    void *out;
    cudaStream_t stream;
};

template <class T> static cudaError_t launch_any(const job &job)
{
    return CDDPI_LAUNCH(reduce_any<T>, blocks_for(job.count, THREADS, 1), THREADS, 0, job.stream,
                        job.inputs, job.ranks, job.op, job.weights, job.count, (T *)job.out);
}

template <class T, int RANKS> static cudaError_t launch_sum(const job &job)
{
    bool packed = packs((T *)job.out);
    reduce_sources<RANKS> sources = {};

    for (int r = 0; r < job.ranks; r++) {
        sources.at[r] = job.inputs.at[r];
        packed = packed && packs((const T *)sources.at[r]);
    }
    return CDDPI_LAUNCH((sum_ranks<T, RANKS>), blocks_for(job.count, THREADS, pack<T>::COUNT),
                        THREADS, 0, job.stream, sources, job.ranks, job.weights,
                        job.op == CDDP_OP_MEAN, job.count, packed, (T *)job.out);
}

template <class T> static cudaError_t launch_real(const job &job)
{
    typedef cudaError_t (*launch_fn)(const struct job &);
    static const launch_fn sums[MOST_EXACT] = {launch_sum<T, 1>, launch_sum<T, 2>, launch_sum<T, 3>,
                                               launch_sum<T, 4>, launch_sum<T, 5>, launch_sum<T, 6>,
                                               launch_sum<T, 7>, launch_sum<T, 8>};
    bool sum = job.weights != nullptr || job.op == CDDP_OP_SUM || job.op == CDDP_OP_MEAN;

    if (!sum || job.ranks > 64) {
        return launch_any<T>(job);
    }
    return job.ranks <= MOST_EXACT ? sums[job.ranks - 1](job)
           : job.ranks <= 16       ? launch_sum<T, 16>(job)
           : job.ranks <= 32       ? launch_sum<T, 32>(job)
                                   : launch_sum<T, 64>(job);
}

cudaError_t launch(cddp_type type, const job &job)
{
    switch (type) {
    case CDDP_F32:
        return launch_real<float>(job);
    case CDDP_BF16:
        return launch_real<__nv_bfloat16>(job);
    case CDDP_F16:
        return launch_real<__half>(job);
    case CDDP_F64:
        return launch_any<double>(job);
    case CDDP_I32:
        return launch_any<int32_t>(job);
    case CDDP_I64:
        return launch_any<int64_t>(job);
    case CDDP_U8:
        return launch_any<uint8_t>(job);
    case CDDP_I8: /* groups handle these types themselves */
    case CDDP_BOOL:
    case CDDP_TYPE_MAX_ENUM_:
        break;
    }
    return cudaErrorInvalidValue;
}

cddp_status reduce(struct cddpi_device *device, cddp_type type, cddp_op op,
                   const void *const *inputs, const double *weights, int ranks, size_t count,
                   void *out)
{
    struct job job = {{}, ranks, op, weights, count, out, cddpi_cuda_comm_stream(device)};
    bool real = type == CDDP_F32 || type == CDDP_BF16 || type == CDDP_F16 || type == CDDP_F64;

    if (ranks < 1 || ranks > MOST || (weights != nullptr && !real)) {
        return cuda_fail(device, CDDP_ERR_ARGUMENT, "reduce: %s of type %d over %d ranks",
                         weights != nullptr ? "weighted mean" : "operation", (int)type, ranks);
    }
    if (count == 0) {
        return CDDP_OK;
    }
    for (int r = 0; r < ranks; r++) {
        job.inputs.at[r] = inputs[r];
    }
    return cddpi_cuda_status(device, launch(type, job), "reduce", __FILE__, __LINE__);
}

template <class T> __global__ void find_share(const double *weights, int ranks, int rank, T *out)
{
    shares shares = shares_of(weights, ranks);

    *out = (T)(shares.equal ? 1.0 / ranks : factor_of(shares, weights[rank]));
}

cddp_status share(struct cddpi_device *device, cddp_type type, const double *weights, int ranks,
                  int rank, void *out)
{
    cudaStream_t stream = cddpi_cuda_comm_stream(device);
    cudaError_t error = type == CDDP_F64 ? CDDPI_LAUNCH(find_share<double>, 1, 1, 0, stream,
                                                        weights, ranks, rank, (double *)out)
                                         : CDDPI_LAUNCH(find_share<float>, 1, 1, 0, stream, weights,
                                                        ranks, rank, (float *)out);

    return cddpi_cuda_status(device, error, "share", __FILE__, __LINE__);
}

} // namespace

void cddpi_cuda_fill_reduce(struct cddpi_cuda_kernels *out)
{
    out->reduce = reduce;
    out->share = share;
}
