/* loader.h - the inside of a loader: a ring of batches that threads fill sample by sample.
 *
 * Batch n lies in slot n % slot_count. Threads take the samples in order, (batch, sample) by
 * (batch, sample), as long as the batch's slot is free; the caller takes whole batches. */
#ifndef CDDPI_LOADER_LOADER_H
#define CDDPI_LOADER_LOADER_H

#include "base/error.h"
#include "base/handle.h"
#include "device/device.h"

#include <cddp/loader.h>

#include <pthread.h>

struct cddpi_loader_slot {
    unsigned char *data;
    uint64_t *indices;
    cddp_share share;   /* positions of the epoch; of the batch that is in it */
    uint64_t missing;   /* samples that are not made yet */
    uint64_t failed_at; /* the lowest sample that failed, in the share; UINT64_MAX: none */
    struct cddpi_failure failure;
};

struct cddp_loader {
    struct cddpi_handle handle;
    cddp_loader_options options;
    cddp_group *group; /* kept until the end; NULL: none */
    struct cddpi_device *device;
    int rank;
    int world_size;
    cddp_sampler *sampler;
    uint64_t epoch;
    uint64_t batches;  /* of an epoch */
    uint64_t capacity; /* samples in a slot */
    struct cddpi_loader_slot *slots;
    uint64_t slot_count;
    pthread_t *threads;
    int thread_count; /* that run */

    pthread_mutex_t mutex; /* guards what follows, and the slots but for their samples */
    pthread_cond_t work;   /* to the threads: there is something to make, or stop */
    pthread_cond_t made;   /* to the caller: a batch is whole, or nobody is making samples */
    bool begun;
    bool stop;
    int busy;             /* threads that make a sample */
    int alive;            /* threads that have not been ended by a sample's function */
    uint64_t next_batch;  /* to be made */
    uint64_t next_sample; /* of it */
    uint64_t taken;       /* batches that the caller has had: the last of them is in use */
    uint64_t first;       /* where the epoch was begun */
};

/** The batch that is @p number in the epoch: its positions, and this rank's share of them. */
cddp_share cddpi_loader_positions(const cddp_loader *loader, uint64_t number);
cddp_share cddpi_loader_share(const cddp_loader *loader, uint64_t number);

/* make.c */
/** Whether this thread makes samples of @p loader: then it is in the caller's function. */
bool cddpi_loader_is_maker(const cddp_loader *loader);
/** A thread of the loader @p argument. */
void *cddpi_loader_main(void *argument);
/** With the mutex: begin to make batch next_batch, if its slot is free. */
void cddpi_loader_open_batch(cddp_loader *loader);

#endif
