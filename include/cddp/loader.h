/** @file
 *  loader.h - loads batches of the caller's data set ahead of time, in threads.
 *
 *      cddp_loader_create()     the number of samples, and the function that loads one
 *      each epoch:
 *        cddp_loader_begin()    the epoch, and the batch to start from
 *        cddp_loader_next()     this rank's share of the next global batch, until `end`
 *
 *  The samples of a batch and their order depend only on the seed, the epoch and the number of the
 *  batch, not on the number of threads or ranks or on their speed. So a run can continue with
 *  another number of ranks where it stopped. One thread at a time uses a handle. */
#ifndef CDDP_LOADER_H
#define CDDP_LOADER_H

#include <cddp/group.h>
#include <cddp/sampler.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Batches of one data set, on one rank. */
typedef struct cddp_loader cddp_loader;

/** Loads a sample: writes all sample_bytes bytes to @p out, which is not cleared. The loader's
 *  threads call it, several at once. May call: anything except calls on this loader.
 *  @param state  As in the options.
 *  @param index  The sample's index in the data set (not its position in the epoch), in
 *                [0, samples).
 *  @return CDDP_OK. Any other status ends the epoch: cddp_loader_next() returns it when this batch
 *          is due, with the text of the last call of cddp that failed in the thread that ran this
 *          function, if there is one. A number that is no error of cddp counts as
 *          CDDP_ERR_ARGUMENT. */
typedef cddp_status (*cddp_sample_fn)(void *state, uint64_t index, void *out);

/** A data set, and how it is divided into batches; zero means default. */
typedef struct cddp_loader_options {
    /** Set by the initialiser: tells cddp which fields the caller knows. */
    size_t struct_size;
    /** The ranks that share each batch. If the group is on a GPU, batches are in pinned memory,
     *  from which copies to the GPU are fastest. NULL: this process gets the whole batch. */
    cddp_group *group;
    /** How many samples the data set has, > 0. */
    uint64_t samples;
    /** Bytes of each sample, > 0. */
    size_t sample_bytes;
    /** Samples of a global batch, that is of all ranks together, > 0. The shares of two ranks
     *  differ by at most one sample. */
    uint64_t batch_size;
    /** Loads a sample. */
    cddp_sample_fn load;
    /** Passed to load. */
    void *state;
    /** The order of an epoch. */
    cddp_order order;
    /** How many threads load samples; 0: 2. */
    int threads;
    /** How many of this rank's batches (or micro-batches) are loaded ahead; 0: 2. */
    int ahead;
    /** Drop the samples at the end of the epoch that do not fill a batch. false: the last batch is
     *  smaller. */
    bool drop_last;
    /** Seed of the order. */
    uint64_t seed;
    /** M > 0: each global batch is divided into M micro-batches, counted over all ranks, as
     *  cddp_share_of() divides positions. Rank r of N gets those of cddp_share_of(0, M, r, N), one
     *  from each cddp_loader_next(); see cddp_step.micro_batches. 0: each rank gets its share of
     *  the batch at once. */
    uint64_t micro_batches;

} cddp_loader_options;
/** The defaults of cddp_loader_options. */
#define CDDP_LOADER_OPTIONS_INIT                                                                   \
    {                                                                                              \
        sizeof(cddp_loader_options), NULL, 0, 0, 0, NULL, NULL, CDDP_ORDER_SEQUENTIAL, 0, 0,       \
            false, 0, 0                                                                            \
    }
CDDP_NO_TAIL(cddp_loader_options, micro_batches);

/** This rank's share of a global batch, or one of its micro-batches. The loader owns the memory,
 *  which is valid until the next call on the loader. */
typedef struct cddp_batch {
    /** Set by the initialiser: tells cddp which fields the caller knows. */
    size_t struct_size;
    /** `count` samples, one after another, 64-byte aligned. */
    const void *data;
    /** The samples' indices in the data set. */
    const uint64_t *indices;
    /** How many samples; 0 if the global batch has none for this rank or micro-batch. */
    uint64_t count;
    /** How many samples all ranks have together in the global batch. */
    uint64_t total;
    /** The number of the global batch, from 0 in each epoch. */
    uint64_t number;
    /** With options.micro_batches: the index of this micro-batch, counted over all ranks. If it
     *  equals micro_batches, this rank has none of this global batch: call cddp_ddp_follow().
     *  Without options.micro_batches: 0. */
    uint64_t micro_batch;
    /** How many samples this rank has in the global batch, in all its micro-batches together. Pass
     *  it as cddp_step.samples. */
    uint64_t samples;
    /** How long this call waited for samples to be loaded, in nanoseconds. If that is much of a
     *  step, loading is too slow: more `threads` or a larger `ahead` may help. */
    uint64_t wait_ns;
    /** True: the epoch is over, and there are no samples. */
    bool end;
    /** Zero. */
    uint8_t reserved[7];

} cddp_batch;
/** An empty cddp_batch. */
#define CDDP_BATCH_INIT                                                                            \
    {                                                                                              \
        sizeof(cddp_batch), NULL, NULL, 0, 0, 0, 0, 0, 0, false,                                   \
        {                                                                                          \
            0                                                                                      \
        }                                                                                          \
    }
CDDP_NO_TAIL(cddp_batch, reserved);

/** Create a loader and start its threads, which wait for cddp_loader_begin().
 *  Collective: no.
 *  @param out  Release with cddp_loader_destroy(), which accepts NULL.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT, CDDP_ERR_NO_MEMORY (also if a thread does not start),
 *          CDDP_ERR_DEVICE. */
CDDP_CHECKED cddp_status cddp_loader_create(const cddp_loader_options *options, cddp_loader **out);

/** Release the loader; waits for samples that are being loaded. Collective: no. */
CDDP_API void cddp_loader_destroy(cddp_loader *loader);

/** Begin epoch @p epoch at batch @p batch (0: the first), and start loading. The rest of an earlier
 *  epoch is dropped.
 *  Collective: no.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT, CDDP_ERR_STATE (this process is a fork of the one that
 *          created @p loader), CDDP_ERR_BUSY, CDDP_ERR_CLOSED, CDDP_ERR_BROKEN (load has ended all
 *          threads). */
CDDP_CHECKED cddp_status cddp_loader_begin(cddp_loader *loader, uint64_t epoch, uint64_t batch);

/** Wait until this rank's share of the next batch, or its next micro-batch, is loaded. The one
 *  before may be overwritten.
 *  Collective: no.
 *  @param out  Initialised with CDDP_BATCH_INIT.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT, CDDP_ERR_STATE (no epoch was begun), CDDP_ERR_BUSY,
 *          CDDP_ERR_CLOSED, CDDP_ERR_BROKEN, or the status that load returned. */
CDDP_CHECKED cddp_status cddp_loader_next(cddp_loader *loader, cddp_batch *out);

/** How many global batches an epoch has; 0 if @p loader is NULL. Collective: no. */
CDDP_API uint64_t cddp_loader_batch_count(const cddp_loader *loader);

#ifdef __cplusplus
}
#endif
#endif
