/** @file
 *  sampler.h - which sample comes when: index arithmetic only, no I/O, no threads.
 *
 * A sampler gives the global order of an epoch as a function of (seed, epoch, position). Ranks take
 * positions of it; nothing depends on how many ranks there are, so a run can go on with another
 * number of ranks without repeating or losing a sample. The exception is CDDP_ORDER_TORCH with
 * padding, which is PyTorch's DistributedSampler to the index. */
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
    /** Native: a keyed permutation, each position computed alone. */
    CDDP_ORDER_RANDOM = 1,
    /** Torch.randperm(n) of a generator seeded with seed + epoch. */
    CDDP_ORDER_TORCH = 2

} cddp_order;

/** The order of one data set. */
typedef struct cddp_sampler cddp_sampler;

/** Make the order of a data set.
 *  @param count  Samples in the data set, > 0.
 *  @param out    Release with cddp_sampler_destroy(), which accepts NULL. CDDP_ORDER_TORCH keeps
 *                the permutation of one epoch in memory (8 bytes a sample), the others nothing.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT, CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddp_sampler_create(cddp_order order, uint64_t count, uint64_t seed,
                                             cddp_sampler **out);
/** Release the sampler; NULL is accepted. */
CDDP_API void cddp_sampler_destroy(cddp_sampler *sampler);

/** Choose the epoch (0 after creation). For CDDP_ORDER_TORCH this takes time: it draws the whole
 *  order. No other thread may use the sampler meanwhile. CDDP_ERR_ARGUMENT for NULL, else
 *  CDDP_OK. */
CDDP_CHECKED cddp_status cddp_sampler_set_epoch(cddp_sampler *sampler, uint64_t epoch);

/** The sample at @p position of the epoch, in [0, count). @p position < count, else 0 with a text
 * in cddp_last_error(). Any number of threads at a time. */
CDDP_API uint64_t cddp_sampler_at(const cddp_sampler *sampler, uint64_t position);

/** Samples in the data set. Any thread. */
CDDP_API uint64_t cddp_sampler_count(const cddp_sampler *sampler);

/** A global batch is a run of positions; rank r takes a contiguous share of it. */
typedef struct cddp_share {
    /** Position of this rank's first sample. */
    uint64_t first;
    /** Shares of two ranks differ by at most one. */
    uint64_t count;

} cddp_share;

/** Rank @p rank's share of the positions [first, first + count). The shares of all ranks are
 * disjoint and make up the whole; also right when count < world_size (some are empty).
 *  @param rank  In [0, world_size), else the share is empty. Any thread. */
CDDP_API cddp_share cddp_share_of(uint64_t first, uint64_t count, int rank, int world_size);

/* PyTorch's DistributedSampler: index sequences of one rank, with its padding and drop_last. */

/** How many indices each rank gets: count / world_size rounded up, or down with @p drop_last.
 *  @param world_size  > 0, else 0 is returned. Any thread. */
CDDP_API uint64_t cddp_torch_shard_count(uint64_t count, int world_size, bool drop_last);

/** Write this rank's cddp_torch_shard_count() indices of the sampler's epoch to @p out. Any order;
 *  CDDP_ORDER_TORCH is shuffle=True, CDDP_ORDER_SEQUENTIAL is shuffle=False.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT. */
CDDP_CHECKED cddp_status cddp_torch_shard(const cddp_sampler *sampler, int rank, int world_size,
                                          bool drop_last, uint64_t *out);

#ifdef __cplusplus
}
#endif
#endif
