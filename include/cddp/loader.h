/** @file
 *  loader.h - batches of a data set of the caller's, made ahead of the training by threads.
 *
 *     cddp_loader_create()     how many samples there are, and the function that makes one
 *     each epoch:
 *       cddp_loader_begin()    its order, and where in it to begin
 *       cddp_loader_next()     this rank's share of the next global batch, until `end`
 *
 *  Which samples are in a batch, and in which order, depends on the seed, the epoch and the batch
 *  alone: not on how many threads or ranks there are, nor on which is faster. So a run goes on
 * where it was with another number of ranks. A handle belongs to one thread at a time. */
#ifndef CDDP_LOADER_H
#define CDDP_LOADER_H

#include <cddp/group.h>
#include <cddp/sampler.h>

#ifdef __cplusplus
extern "C" {
#endif

/** Batches of one data set, on one rank. */
typedef struct cddp_loader cddp_loader;

/** Makes a sample: writes sample_bytes bytes to @p out, where whatever an earlier sample left may
 *  be. Called by the loader's threads, by several at once.
 *  @param index  Of the sample, below `samples`: the data set's own number, not the position.
 *  @return CDDP_OK; anything else ends the epoch: cddp_loader_next() gives it when this batch is
 *          due, with the text of the thread's last failed call of cddp if there was one. */
typedef cddp_status (*cddp_sample_fn)(void *state, uint64_t index, void *out);

/** A data set, and how it is cut in batches; zero means default. */
typedef struct cddp_loader_options {
    /** Set by the initialiser: which fields the caller knows. */
    size_t struct_size;
    /** The ranks that share each batch; if it is on a GPU, batches lie in pinned memory, which is
     *  copied there at full speed. NULL: this process has all of it. */
    cddp_group *group;
    /** How many samples the data set has, > 0. */
    uint64_t samples;
    /** Bytes of each, > 0. */
    size_t sample_bytes;
    /** How many samples the batches of all ranks together have, > 0; the shares of two ranks differ
     *  by at most one sample. */
    uint64_t batch_size;
    /** Makes a sample. */
    cddp_sample_fn load;
    /** Given to it. */
    void *state;
    /** The order of an epoch. */
    cddp_order order;
    /** Of the order. */
    uint64_t seed;
    /** 1: leave out the samples at the end that do not fill a batch; else the last one is smaller
     *  (see cddp_ddp_begin_samples() for its gradients). */
    uint64_t drop_last;
    /** How many threads make samples; 0: 2. */
    int threads;
    /** How many batches are made ahead; 0: 2. */
    int ahead;

} cddp_loader_options;
/** A cddp_loader_options of defaults. */
#define CDDP_LOADER_OPTIONS_INIT                                                                   \
    {                                                                                              \
        sizeof(cddp_loader_options), NULL, 0, 0, 0, NULL, NULL, CDDP_ORDER_SEQUENTIAL, 0, 0, 0, 0  \
    }

/** This rank's share of a global batch. All memory is the loader's, until the next call on it. */
typedef struct cddp_batch {
    /** Set by the initialiser: which fields the caller knows. */
    size_t struct_size;
    /** `count` samples one after another, 64-byte aligned. */
    const void *data;
    /** Which samples they are. */
    const uint64_t *indices;
    /** How many; 0 where there are fewer samples left than ranks: then the step has none here. */
    uint64_t count;
    /** How many all ranks have together. */
    uint64_t total;
    /** Counted from 0 in each epoch. */
    uint64_t number;
    /** There is no further batch in the epoch, and this is none. */
    bool end;

} cddp_batch;
/** An empty cddp_batch. */
#define CDDP_BATCH_INIT                                                                            \
    {                                                                                              \
        sizeof(cddp_batch), NULL, NULL, 0, 0, 0, false                                             \
    }

/** Make a loader and start its threads, which wait for cddp_loader_begin(). Not collective.
 *  @param out  Release with cddp_loader_destroy(), which accepts NULL.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT, CDDP_ERR_NO_MEMORY (also for threads), CDDP_ERR_DEVICE. */
CDDP_CHECKED cddp_status cddp_loader_create(const cddp_loader_options *options, cddp_loader **out);

/** Waits for the samples that are being made. */
CDDP_API void cddp_loader_destroy(cddp_loader *loader);

/** Begin epoch @p epoch at batch @p batch (0: its first), and make samples from now on; what was
 *  left of another epoch is dropped.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT, CDDP_ERR_STATE (a fork of the process that made it). */
CDDP_CHECKED cddp_status cddp_loader_begin(cddp_loader *loader, uint64_t epoch, uint64_t batch);

/** Wait until this rank's share of the next batch is there. The one before may be overwritten.
 *  @param out  From CDDP_BATCH_INIT.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT, CDDP_ERR_STATE (no epoch was begun), or what the function
 *          that makes samples gave. */
CDDP_CHECKED cddp_status cddp_loader_next(cddp_loader *loader, cddp_batch *out);

/** How many batches an epoch has; 0: @p loader is NULL. */
CDDP_API uint64_t cddp_loader_batches(const cddp_loader *loader);

#ifdef __cplusplus
}
#endif
#endif
