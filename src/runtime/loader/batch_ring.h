/* batch_ring.h - owns a ring of batches: threads prefetch them, and the caller takes them in order.
 *
 * Batch n is in slot n % slot_count of memory that belongs to the ring's owner. A batch is made in
 * pieces. A thread takes the next piece of the first incomplete batch, as soon as that batch's slot
 * is free. All functions except cddpi_batch_ring_is_maker() are for one thread at a time. */
#ifndef CDDPI_LOADER_BATCH_RING_H
#define CDDPI_LOADER_BATCH_RING_H

#include "base/error.h"

#include <pthread.h>

/* What a ring calls in its owner. */
struct cddpi_batch_ring_ops {
    /* Returns how many pieces batch @p number has; 0: there is nothing to make. @p slot is the
     * batch's slot. Called with the ring's mutex. It may be called again for the same batch while
     * none of its pieces has begun. */
    uint64_t (*open)(void *owner, uint64_t number, uint64_t slot);
    /* Make one piece of the batch. Called without the mutex, by any thread, for several pieces at a
     * time. */
    cddp_status (*make)(void *owner, uint64_t number, uint64_t slot, uint64_t piece);
};

/* The state of the batch in a slot. */
struct cddpi_batch_ring_slot {
    uint64_t pieces;
    uint64_t missing;   /* pieces that are not complete yet */
    uint64_t failed_at; /* the first piece that failed; UINT64_MAX: no piece failed */
    struct cddpi_failure failure;
};

struct cddpi_batch_ring {
    const struct cddpi_batch_ring_ops *ops;
    void *owner;
    struct cddpi_batch_ring_slot *slots;
    uint64_t slot_count;
    uint32_t timeout_ms; /* how long the caller waits for a batch; 0: without a limit */
    pthread_t *threads;
    int thread_count; /* threads that were started */

    bool ready;            /* the mutex and the two conditions are initialised */
    pthread_mutex_t mutex; /* guards the members down to `kept`, and the slots */
    pthread_cond_t work;   /* wakes threads: there is a piece to make, or `stop` is set */
    pthread_cond_t made;   /* wakes the caller: a batch is complete, all are idle, a thread ended */
    bool stop;
    int busy;            /* threads that make a piece now */
    int alive;           /* threads that the owner's function has not ended */
    uint64_t end;        /* the batch after the last one to make; 0: cancelled */
    uint64_t next_batch; /* the batch whose pieces are handed out next */
    uint64_t next_slot;  /* the slot of next_batch, after open() */
    uint64_t next_piece; /* the piece of next_batch that is handed out next */
    uint64_t kept;       /* the first batch whose slot is not free: in use, or not taken yet */

    uint64_t taken; /* the batch that the caller takes next; only the owner increments it */
};

/** Initialise @p ring, which is zeroed, for @p slot_count batches. Release with
 *  cddpi_batch_ring_fini(), also after a failure. @p what begins error texts. */
CDDP_CHECKED cddp_status cddpi_batch_ring_init(struct cddpi_batch_ring *ring, const char *what,
                                               const struct cddpi_batch_ring_ops *ops, void *owner,
                                               uint64_t slot_count, int threads,
                                               uint32_t timeout_ms);

/** Start @p count threads, the same number as in cddpi_batch_ring_init(). With 0 threads the caller
 *  makes its batches itself, in cddpi_batch_ring_await(). Returns 0, or an errno; then
 *  ring->thread_count threads were started. */
int cddpi_batch_ring_start(struct cddpi_batch_ring *ring, int count);

/** End the threads, each after its current piece, and release memory. Accepts a zeroed ring. */
void cddpi_batch_ring_fini(struct cddpi_batch_ring *ring);

/** Begin no further piece, and wait until the current ones are complete. */
void cddpi_batch_ring_cancel(struct cddpi_batch_ring *ring);

/** After cddpi_batch_ring_cancel(): make the batches @p first to @p end - 1. */
void cddpi_batch_ring_begin(struct cddpi_batch_ring *ring, uint64_t first, uint64_t end);

/** Free the slot of the previous batch, and wait until batch ring->taken is complete. Do not call
 *  at the end of the batches.
 *  @return CDDP_OK; CDDP_ERR_TIMEOUT; the failure of a piece; CDDP_ERR_BROKEN if all threads have
 *          ended. After the last two, no further piece begins until cddpi_batch_ring_begin(). */
CDDP_CHECKED cddp_status cddpi_batch_ring_await(struct cddpi_batch_ring *ring);

/** CDDP_ERR_BROKEN if the owner's function has ended all threads (by pthread_exit()). */
CDDP_CHECKED cddp_status cddpi_batch_ring_check(struct cddpi_batch_ring *ring);

/** Whether the caller is a thread of @p ring. If so, the owner's function made the call. */
bool cddpi_batch_ring_is_maker(const struct cddpi_batch_ring *ring);

#endif
