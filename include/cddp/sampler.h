/** @file
 *  sampler.h - the order of samples: index arithmetic only, no I/O, no threads.
 *
 *  A sampler computes the global order of an epoch from seed, epoch and position. Each rank takes
 *  its share of the positions. The order does not depend on the number of ranks, so a run can
 *  continue with another number of ranks without repeating or losing a sample. The exception is
 *  cddp_torch_shard(), which gives exactly the indices of PyTorch's DistributedSampler, padding
 *  included. */
#ifndef CDDP_SAMPLER_H
#define CDDP_SAMPLER_H

#include <cddp/status.h>

#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

/** The order of an epoch. */
typedef enum cddp_order {
    /** 0, 1, 2, ... */
    CDDP_ORDER_SEQUENTIAL = 0,
    /** Random: cddp's own keyed permutation, which computes each position separately. */
    CDDP_ORDER_RANDOM = 1,
    /** The order of torch.randperm(count) with a generator seeded with seed + epoch. */
    CDDP_ORDER_TORCH = 2,
    CDDP_ORDER_MAX_ENUM_ = 0x7fffffff
} cddp_order;

/** The order of one data set. */
typedef struct cddp_sampler cddp_sampler;

/** Create a sampler.
 *  Collective: no.
 *  @param count  How many samples the data set has, > 0.
 *  @param out    Release with cddp_sampler_destroy(), which accepts NULL. With CDDP_ORDER_TORCH it
 *                keeps the permutation of one epoch in memory, 8 bytes per sample; the other orders
 *                need no memory.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT, CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddp_sampler_create(cddp_order order, uint64_t count, uint64_t seed,
                                             cddp_sampler **out);
/** Release the sampler; NULL is accepted. Collective: no. */
CDDP_API void cddp_sampler_destroy(cddp_sampler *sampler);

/** Set the epoch, which is 0 at first. Slow for CDDP_ORDER_TORCH, which draws the whole order here.
 *  No other thread may use the sampler meanwhile.
 *  Collective: no.
 *  @return CDDP_OK; CDDP_ERR_ARGUMENT if @p sampler is NULL. */
CDDP_CHECKED cddp_status cddp_sampler_set_epoch(cddp_sampler *sampler, uint64_t epoch);

/** The index of the sample at @p position of the epoch, in [0, count). If @p position >= count, or
 *  @p sampler is NULL, the result is UINT64_MAX, and cddp_last_error() has the reason. Several
 *  threads may call it at once. Collective: no. */
CDDP_API uint64_t cddp_sampler_at(const cddp_sampler *sampler, uint64_t position);

/** How many samples the data set has; 0 if @p sampler is NULL. Any thread. Collective: no. */
CDDP_API uint64_t cddp_sampler_count(const cddp_sampler *sampler);

/** One rank's part of a global batch. A global batch is a contiguous range of positions, and so is
 *  each rank's share. */
typedef struct cddp_share {
    /** Position of this rank's first sample. */
    uint64_t first;
    /** How many samples; the shares of two ranks differ by at most one sample. */
    uint64_t count;

} cddp_share;

/** Rank @p rank's share of the positions [first, first + count). The shares of all ranks are
 *  disjoint and together cover all positions. If count < world_size, some are empty. Any thread.
 *  Collective: no.
 *  @param rank  In [0, world_size); otherwise the share is empty. */
CDDP_API cddp_share cddp_share_of(uint64_t first, uint64_t count, int rank, int world_size);

/* What PyTorch's DistributedSampler gives to one rank: its indices, with padding and drop_last. */

/** How many indices each rank gets: count / world_size, rounded up, or rounded down with
 *  @p drop_last. Any thread.
 *  Collective: no.
 *  @param world_size  If it is not > 0, the result is 0. */
CDDP_API uint64_t cddp_torch_shard_count(uint64_t count, int world_size, bool drop_last);

/** Write the indices of rank @p rank in the sampler's epoch to @p out, which has room for
 *  cddp_torch_shard_count() indices. Any cddp_order works: CDDP_ORDER_TORCH is shuffle=True,
 *  CDDP_ORDER_SEQUENTIAL is shuffle=False.
 *  Collective: no.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT. */
CDDP_CHECKED cddp_status cddp_torch_shard(const cddp_sampler *sampler, int rank, int world_size,
                                          bool drop_last, uint64_t *out);

#ifdef __cplusplus
}
#endif
#endif
