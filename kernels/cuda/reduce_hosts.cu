/* reduce_hosts.cu - owns sums over the ranks of several hosts in two halves: each host's ranks,
 * then the hosts. If all hosts have the same power of two of ranks, these are complete subtrees of
 * reduce.cu's tree, so the result has its bits; what is between the halves is float32, not yet
 * divided or rounded. Between hosts goes one array for each host instead of one for each rank.
 *
 * Limited by memory: inputs and the output of each half. */
#include "kernels/cuda/reduce.cuh"

namespace
{

enum { PART_RANKS = CDDPI_CUDA_HOST_RANKS, FEW_HOSTS = 8, MOST_HOSTS = CDDPI_CUDA_HOSTS };

/* Which ranks an input stands for: input i for `each` ranks from first + i x each on. */
struct reduce_leaves {
    const double *weights; /* of all ranks; nullptr: none */
    int ranks, first, each;
    bool mean;
    bool last; /* the result is whole: divide it */
};

/* As share_factors(), but an input of the second half has its factors already; it is there if one
 * of its ranks is. */
template <class In, int RANKS>
__device__ void leaf_factors(const reduce_leaves &leaves, int inputs,
                             reduce_factors<In, RANKS> &out)
{
    int i = (int)threadIdx.x;

    if (i < RANKS) {
        shares shares = shares_of(leaves.weights, leaves.ranks);
        const double *weights = leaves.weights + leaves.first + i * leaves.each;
        double factor = 0;

        for (int r = 0; i < inputs && r < leaves.each; r++) {
            double own = shares.equal ? 1 : factor_of(shares, weights[r]);

            factor = own != 0 ? own : factor;
        }
        out.there[i] = factor != 0;
        out.of[i] = leaves.last ? 1.0f : (float)factor;
        out.equal = shares.equal;
    }
    __syncthreads();
}

template <class T, int COUNT>
struct alignas(sizeof(T) * COUNT < 16 ? sizeof(T) * COUNT : 16) several {
    T at[COUNT];
};

/* Each half: sum @p given inputs, of which the last ones of RANKS may be missing. */
template <class In, class Out, int RANKS>
__global__ void __launch_bounds__(THREADS)
    sum_leaves(reduce_sources<RANKS> sources, int given, reduce_leaves leaves, size_t count,
               bool packed, Out *out)
{
    enum { COUNT = pack<In>::COUNT };
    __shared__ reduce_factors<In, RANKS> shared;
    size_t first = ((size_t)blockIdx.x * THREADS + threadIdx.x) * COUNT;
    reduce_place place = {first, first < count ? count - first : 0, packed};
    const reduce_factors<In, RANKS> *factors = nullptr;
    bool mean = leaves.mean;
    reduce_sum<In> sum;
    several<Out, COUNT> result;

    if (leaves.weights != nullptr) {
        leaf_factors<In, RANKS>(leaves, given, shared);
        factors = &shared;
        mean = shared.equal;
    }
    if (place.left == 0) {
        return;
    }
    sum_subtree<In, RANKS, 0, RANKS>(sources, given, factors, place, sum);
    CDDPI_UNROLL
    for (int k = 0; k < COUNT; k++) {
        float x = mean && leaves.last ? sum.at[k] * (float)(1.0 / leaves.ranks) : sum.at[k];

        result.at[k] = number<Out>::store(x);
    }
    if (packed && place.left >= COUNT) {
        *(several<Out, COUNT> *)(out + first) = result;
        return;
    }
    CDDPI_UNROLL
    for (int k = 0; k < COUNT; k++) {
        if ((size_t)k < place.left) {
            out[first + k] = result.at[k];
        }
    }
}

/* The arguments of one half. */
struct half {
    const void *const *inputs;
    int count_of_inputs;
    reduce_leaves leaves;
    size_t count;
    void *out;
    cudaStream_t stream;
};

template <class In, class Out, int RANKS> cudaError_t start(const half &half)
{
    reduce_sources<RANKS> sources = {};
    bool packed = (uintptr_t)half.out % 16 == 0;

    for (int i = 0; i < half.count_of_inputs; i++) {
        sources.at[i] = half.inputs[i];
        packed = packed && (uintptr_t)half.inputs[i] % 16 == 0;
    }
    return CDDPI_LAUNCH((sum_leaves<In, Out, RANKS>),
                        blocks_for(half.count, THREADS, pack<In>::COUNT), THREADS, 0, half.stream,
                        sources, half.count_of_inputs, half.leaves, half.count, packed,
                        static_cast<Out *>(half.out));
}

template <class T> cudaError_t start_as(const half &half)
{
    if (!half.leaves.last) {
        return start<T, float, PART_RANKS>(half);
    }
    return half.count_of_inputs <= FEW_HOSTS ? start<float, T, FEW_HOSTS>(half)
                                             : start<float, T, MOST_HOSTS>(half);
}

cddp_status run(struct cddpi_device *device, cddp_type type, const half &half)
{
    cudaError_t error = half.count == 0     ? cudaSuccess
                        : type == CDDP_F32  ? start_as<float>(half)
                        : type == CDDP_BF16 ? start_as<__nv_bfloat16>(half)
                        : type == CDDP_F16  ? start_as<__half>(half)
                                            : cudaErrorInvalidValue;

    return cddpi_cuda_status(device, error, "sum over hosts", __FILE__, __LINE__);
}

cddp_status sum_host(struct cddpi_device *device, cddp_type type,
                     const struct cddpi_cuda_hosts *hosts, int host, const void *const *inputs,
                     size_t count, float *out)
{
    const half half = {
        inputs,
        hosts->each,
        {hosts->weights, hosts->hosts * hosts->each, host * hosts->each, 1, hosts->mean, false},
        count,
        out,
        cddpi_cuda_comm_stream(device)};

    return run(device, type, half);
}

cddp_status join_hosts(struct cddpi_device *device, cddp_type type,
                       const struct cddpi_cuda_hosts *hosts, const void *const *parts, size_t count,
                       void *out)
{
    const half half = {
        parts,
        hosts->hosts,
        {hosts->weights, hosts->hosts * hosts->each, 0, hosts->each, hosts->mean, true},
        count,
        out,
        cddpi_cuda_comm_stream(device)};

    return run(device, type, half);
}

} // namespace

void cddpi_cuda_fill_reduce_hosts(struct cddpi_cuda_kernels *out)
{
    out->sum_host = sum_host;
    out->join_hosts = join_hosts;
}
