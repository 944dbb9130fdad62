/* reduce.cuh - sums of the arrays of up to 64 ranks, as the binary tree over ranks. */
#ifndef CDDPI_CUDA_REDUCE_CUH
#define CDDPI_CUDA_REDUCE_CUH

#include "kernels/cuda/kernels_module.h"
#include "kernels/cuda/pack.cuh"

namespace
{

/* GROUP: so many ranks' loads are in flight at once. */
enum { THREADS = 256, GROUP = 16 };

template <int RANKS> struct reduce_sources {
    const void *at[RANKS];
};

/* As in cddpi_reduce_weighted(): equal weights give a plain mean. */
struct shares {
    bool equal;
    double total;
};

__device__ inline shares shares_of(const double *weights, int ranks)
{
    shares shares = {true, 0};

    for (int r = 0; r < ranks; r++) {
        shares.equal = shares.equal && weights[r] == weights[0] && weights[r] > 0;
        shares.total += weights[r];
    }
    return shares;
}

__device__ inline double factor_of(const shares &shares, double weight)
{
    return shares.total > 0 ? weight / shares.total : 0;
}

/* Each rank's factor in a weighted mean, and whether the rank is read at all. */
template <class T, int RANKS> struct reduce_factors {
    typename number<T>::inner of[RANKS];
    bool there[RANKS];
    bool equal;
};

/* The threads of a block compute all factors once. All of the block's threads call it. */
template <class T, int RANKS>
__device__ static void share_factors(const double *weights, int ranks,
                                     reduce_factors<T, RANKS> &out)
{
    int r = (int)threadIdx.x;

    if (r < RANKS) {
        shares shares = shares_of(weights, ranks);
        double factor = r >= ranks ? 0 : shares.equal ? 1 : factor_of(shares, weights[r]);

        out.of[r] = (typename number<T>::inner)factor;
        out.there[r] = factor != 0;
        out.equal = shares.equal;
    }
    __syncthreads();
}

/* Which elements a thread reduces. */
struct reduce_place {
    size_t first, left;
    bool packed;
};

/* Load the elements of all present ranks from `first` on. All loads are issued before one is used,
 * so no load may depend on the values. */
template <class T, int RANKS>
__device__ __forceinline__ void fetch_ranks(const void *const *sources, const bool (&there)[RANKS],
                                            const reduce_place &place, pack<T> (&out)[RANKS])
{
    enum { COUNT = pack<T>::COUNT };

    if (place.packed && place.left >= COUNT) {
        CDDPI_UNROLL
        for (int r = 0; r < RANKS; r++) {
            if (there[r]) {
                out[r] = *(const pack<T> *)((const T *)sources[r] + place.first);
            }
        }
        return;
    }
    CDDPI_UNROLL
    for (int r = 0; r < RANKS; r++) {
        CDDPI_UNROLL
        for (int k = 0; k < COUNT; k++) {
            if (there[r] && (size_t)k < place.left) {
                out[r].at[k] = ((const T *)sources[r])[place.first + k];
            }
        }
    }
}

/* The sum over some ranks of a pack of elements. */
template <class T> struct reduce_sum {
    typename number<T>::inner at[pack<T>::COUNT];
    bool there; /* false: it has no rank */
};

template <class T>
__device__ __forceinline__ void add_right(reduce_sum<T> &left, const reduce_sum<T> &right)
{
    CDDPI_UNROLL
    for (int k = 0; k < pack<T>::COUNT; k++) {
        typename number<T>::inner both = left.at[k] + right.at[k];

        left.at[k] = !left.there ? right.at[k] : right.there ? both : left.at[k];
    }
    left.there = left.there || right.there;
}

/* Sum the ranks [FIRST, FIRST + COUNT), of which those from @p ranks on are missing: neighbours
 * first; an odd last one moves up alone. @p factors: NULL or, if they are equal, not used. */
template <class T, int RANKS, int FIRST, int COUNT>
__device__ __forceinline__ void sum_subtree(const reduce_sources<RANKS> &sources, int ranks,
                                            const reduce_factors<T, RANKS> *factors,
                                            const reduce_place &place, reduce_sum<T> &out)
{
    if constexpr (COUNT > GROUP) {
        reduce_sum<T> right;

        sum_subtree<T, RANKS, FIRST, COUNT / 2>(sources, ranks, factors, place, out);
        sum_subtree<T, RANKS, FIRST + COUNT / 2, COUNT / 2>(sources, ranks, factors, place, right);
        add_right(out, right);
    } else {
        bool there[COUNT];
        pack<T> read[COUNT] = {};
        reduce_sum<T> sums[COUNT];

        CDDPI_UNROLL
        for (int r = 0; r < COUNT; r++) {
            there[r] = FIRST + r < ranks && (factors == nullptr || factors->there[FIRST + r]);
        }
        fetch_ranks<T, COUNT>(sources.at + FIRST, there, place, read);
        CDDPI_UNROLL
        for (int r = 0; r < COUNT; r++) {
            sums[r].there = there[r];
            CDDPI_UNROLL
            for (int k = 0; k < pack<T>::COUNT; k++) {
                typename number<T>::inner x = number<T>::load(read[r].at[k]);

                sums[r].at[k] = factors == nullptr || factors->equal ? x
                                                                     : x * factors->of[FIRST + r];
            }
        }
        CDDPI_UNROLL
        for (int stride = 1; stride < COUNT; stride *= 2) {
            CDDPI_UNROLL
            for (int r = 0; r + stride < COUNT; r += 2 * stride) {
                add_right(sums[r], sums[r + stride]);
            }
        }
        out = sums[0];
    }
}

} // namespace

#endif
