/* batch_ring.h - a ring of batches: threads make them ahead, the caller takes them in order.
 *
 * Batch n is in slot n % slot_count of memory that the ring's owner has. A batch is made in pieces:
 * a thread takes the next piece of the first batch that is not complete, as soon as the batch's
 * slot is free. All functions but cddpi_batch_ring_is_maker() are for one thread at a time. */
#ifndef CDDPI_LOADER_BATCH_RING_H
#define CDDPI_LOADER_BATCH_RING_H

#include "base/error.h"

#include <pthread.h>

/* What a ring asks of its owner. */
struct cddpi_batch_ring_ops {
    /* How many pieces batch @p number has, whose slot is @p slot; 0: there is nothing to make. With
     * the ring's mutex. A batch may be opened again as long as none of its pieces was begun. */
    uint64_t (*open)(void *owner, uint64_t number, uint64_t slot);
    /* Make a piece of it. Any thread, several at a time, without the mutex. */
    cddp_status (*make)(void *owner, uint64_t number, uint64_t slot, uint64_t piece);
};

/* What the ring knows of the batch in a slot. */
struct cddpi_batch_ring_slot {
    uint64_t pieces;
    uint64_t missing;   /* pieces that are not made yet */
    uint64_t failed_at; /* the first piece that failed; UINT64_MAX: none */
    struct cddpi_failure failure;
};

struct cddpi_batch_ring {
    const struct cddpi_batch_ring_ops *ops;
    void *owner;
    struct cddpi_batch_ring_slot *slots;
    uint64_t slot_count;
    uint32_t timeout_ms; /* that the caller waits for a batch; 0: for ever */
    pthread_t *threads;
    int thread_count; /* that were started */

    bool ready;            /* the three below are initialised */
    pthread_mutex_t mutex; /* guards what follows, and the slots */
    pthread_cond_t work;   /* to the threads: there is something to make, or stop */
    pthread_cond_t made;   /* to the caller: a batch is complete, all are idle, a thread ended */
    bool stop;
    int busy;            /* threads that make a piece */
    int alive;           /* threads that have not been ended by the owner's function */
    uint64_t end;        /* the batch after the last one to make */
    uint64_t next_batch; /* to be made */
    uint64_t next_slot;  /* of it, once it is open */
    uint64_t next_piece; /* of it */
    uint64_t kept;       /* the first batch that keeps its slot: it is in use, or not taken yet */

    uint64_t taken; /* the batch that the caller takes next: the owner's, who counts it up */
};

/** Prepare @p ring, of zero bytes, for @p slot_count batches. Release with cddpi_batch_ring_fini(),
 *  also after a failure. @p what begins texts of failures. */
CDDP_CHECKED cddp_status cddpi_batch_ring_init(struct cddpi_batch_ring *ring, const char *what,
                                               const struct cddpi_batch_ring_ops *ops, void *owner,
                                               uint64_t slot_count, int threads,
                                               uint32_t timeout_ms);

/** Start @p count threads, the number that init() got; with 0 the caller makes its batches
 *  itself, in cddpi_batch_ring_await(). Returns 0, or an errno: ring->thread_count were started. */
int cddpi_batch_ring_start(struct cddpi_batch_ring *ring, int count);

/** End the threads, each after the piece that it makes. Accepts zero bytes. */
void cddpi_batch_ring_fini(struct cddpi_batch_ring *ring);

/** Begin no further piece, and wait for those that are being made. */
void cddpi_batch_ring_cancel(struct cddpi_batch_ring *ring);

/** After cddpi_batch_ring_cancel(): make the batches @p first to @p end - 1. */
void cddpi_batch_ring_begin(struct cddpi_batch_ring *ring, uint64_t first, uint64_t end);

/** Give the batch before back, and wait until batch ring->taken, which is not the end, is complete.
 *  @return CDDP_OK, CDDP_ERR_TIMEOUT; or the failure of a piece, or of threads that are gone: then
 *          no further piece is begun, and the ring has to begin again. */
CDDP_CHECKED cddp_status cddpi_batch_ring_await(struct cddpi_batch_ring *ring);

/** CDDP_ERR_STATE if the owner's function has ended all threads. */
CDDP_CHECKED cddp_status cddpi_batch_ring_check(struct cddpi_batch_ring *ring);

/** Whether this is a thread of @p ring: then it is in the owner's function. */
bool cddpi_batch_ring_is_maker(const struct cddpi_batch_ring *ring);

#endif
