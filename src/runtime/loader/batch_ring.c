/* batch_ring.c - owns the threads of a ring: which piece each thread makes, and which slots are
 * free. */
#include "loader/batch_ring.h"

#include "base/alloc.h"
#include "base/clock.h"

#include <errno.h>
#include <signal.h>
#include <stdio.h>

/* Whether there is another batch to make and its slot is free. */
static bool has_room(const struct cddpi_batch_ring *ring)
{
    return ring->next_batch < ring->end && ring->next_batch - ring->kept < ring->slot_count;
}

/* With the mutex: open the next batch that has pieces, if its slot is free, and wake threads. */
static void open_batch(struct cddpi_batch_ring *ring)
{
    while (has_room(ring) && ring->next_piece == 0) {
        struct cddpi_batch_ring_slot *slot;

        ring->next_slot = ring->next_batch % ring->slot_count;
        slot = &ring->slots[ring->next_slot];
        slot->pieces = ring->ops->open(ring->owner, ring->next_batch, ring->next_slot);
        slot->missing = slot->pieces;
        slot->failed_at = UINT64_MAX;
        if (slot->pieces > 0) {
            break;
        }
        ring->next_batch++;
    }
    if (!has_room(ring)) {
        return;
    }
    if (ring->slots[ring->next_slot].pieces == 1) {
        pthread_cond_signal(&ring->work); /* one is enough: begin_piece() opens the next batch */
    } else {
        pthread_cond_broadcast(&ring->work);
    }
}

/* A piece that one thread makes. */
struct batch_ring_piece {
    struct cddpi_batch_ring *ring;
    uint64_t number, slot; /* the batch's */
    uint64_t piece;
};

/* With the mutex: hand out the next piece. False: there is none now. */
static bool begin_piece(struct cddpi_batch_ring *ring, struct batch_ring_piece *out)
{
    if (!has_room(ring)) {
        return false;
    }
    *out = (struct batch_ring_piece){ring, ring->next_batch, ring->next_slot, ring->next_piece++};
    ring->busy++;
    if (ring->next_piece == ring->slots[ring->next_slot].pieces) {
        ring->next_batch++;
        ring->next_piece = 0;
        open_batch(ring);
    }
    return true;
}

/* With the mutex: note that the piece is complete or has failed. */
static void end_piece(const struct batch_ring_piece *made, cddp_status status)
{
    struct cddpi_batch_ring *ring = made->ring;
    struct cddpi_batch_ring_slot *slot = &ring->slots[made->slot];

    ring->busy--;
    if (status != CDDP_OK && made->piece < slot->failed_at) {
        slot->failed_at = made->piece;
        slot->failure = *cddpi_last_failure();
        slot->failure.status = status;
    }
    if (--slot->missing == 0 || (ring->end == 0 && ring->busy == 0)) { /* cancel waits for idle */
        pthread_cond_signal(&ring->made);
    }
}

/* Cleanup handler: the owner's function has called pthread_exit(), or the thread was cancelled. */
static void thread_ends(void *argument)
{
    const struct batch_ring_piece *made = argument;
    cddp_status status = cddpi_fail(CDDP_ERR_STATE,
                                    "loader: the function that makes samples ended its thread by "
                                    "pthread_exit(): it has to return");

    pthread_mutex_lock(&made->ring->mutex);
    made->ring->alive--;
    end_piece(made, status);
    pthread_cond_signal(&made->ring->made);
    pthread_mutex_unlock(&made->ring->mutex);
}

/* Make a piece. Called with the mutex, which is released while the owner's function runs. */
static void make_piece(struct batch_ring_piece *piece)
{
    struct cddpi_batch_ring *ring = piece->ring;
    cddp_status status;

    pthread_mutex_unlock(&ring->mutex);
    pthread_cleanup_push(thread_ends, piece);
    status = ring->ops->make(ring->owner, piece->number, piece->slot, piece->piece);
    pthread_cleanup_pop(0);
    pthread_mutex_lock(&ring->mutex);
    end_piece(piece, status);
}

/* The ring of this thread; NULL in threads that no ring has started. */
static _Thread_local const struct cddpi_batch_ring *made_for;

bool cddpi_batch_ring_is_maker(const struct cddpi_batch_ring *ring)
{
    return made_for == ring;
}

static void *run_thread(void *argument)
{
    struct cddpi_batch_ring *ring = argument;
    struct batch_ring_piece piece;

    made_for = ring;
    pthread_mutex_lock(&ring->mutex);
    while (!ring->stop) {
        if (begin_piece(ring, &piece)) {
            make_piece(&piece);
        } else {
            pthread_cond_wait(&ring->work, &ring->mutex);
        }
    }
    pthread_mutex_unlock(&ring->mutex);
    return NULL;
}

cddp_status cddpi_batch_ring_init(struct cddpi_batch_ring *ring, const char *what,
                                  const struct cddpi_batch_ring_ops *ops, void *owner,
                                  uint64_t slot_count, int threads, uint32_t timeout_ms)
{
    pthread_condattr_t monotonic;
    int error;

    *ring = (struct cddpi_batch_ring){
        .ops = ops, .owner = owner, .slot_count = slot_count, .timeout_ms = timeout_ms};
    ring->slots = cddpi_zalloc_array(slot_count, sizeof *ring->slots);
    CDDPI_TRY_MEMORY(ring->slots != NULL, "%s: no memory for %llu batches", what,
                     (unsigned long long)slot_count);
    for (uint64_t s = 0; s < slot_count; s++) {
        ring->slots[s].failed_at = UINT64_MAX;
    }
    if (threads > 0) {
        ring->threads = cddpi_zalloc_array((size_t)threads, sizeof *ring->threads);
        if (ring->threads == NULL) {
            return cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory for %d threads", what, threads);
        }
    }
    error = pthread_mutex_init(&ring->mutex, NULL);
    if (error != 0) {
        return cddpi_fail_errno(CDDP_ERR_NO_MEMORY, error, "%s: making a mutex", what);
    }
    pthread_condattr_init(&monotonic); /* these calls cannot fail with glibc or musl */
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_cond_init(&ring->work, NULL);
    pthread_cond_init(&ring->made, &monotonic);
    pthread_condattr_destroy(&monotonic);
    ring->ready = true;
    return CDDP_OK;
}

int cddpi_batch_ring_start(struct cddpi_batch_ring *ring, int count)
{
    sigset_t all, before;
    int error = 0;

    /* Block all signals: they are for the program's own threads. Only SIGBUS stays: a read of a
     * truncated mapped file raises it in the reading thread (base/mapped_file.h). */
    sigfillset(&all);
    sigdelset(&all, SIGBUS);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    ring->alive = count;
    while (ring->thread_count < count) {
        char name[16];

        error = pthread_create(&ring->threads[ring->thread_count], NULL, run_thread, ring);
        if (error != 0) {
            break;
        }
        snprintf(name, sizeof name, "cddp-load-%d", ring->thread_count);
        (void)pthread_setname_np(ring->threads[ring->thread_count], name);
        ring->thread_count++;
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error;
}

void cddpi_batch_ring_fini(struct cddpi_batch_ring *ring)
{
    if (ring->ready) {
        pthread_mutex_lock(&ring->mutex);
        ring->stop = true;
        pthread_cond_broadcast(&ring->work);
        pthread_mutex_unlock(&ring->mutex);
        for (int t = 0; t < ring->thread_count; t++) {
            pthread_join(ring->threads[t], NULL);
        }
        pthread_cond_destroy(&ring->made);
        pthread_cond_destroy(&ring->work);
        pthread_mutex_destroy(&ring->mutex);
    }
    cddpi_free(ring->threads);
    cddpi_free(ring->slots);
}

void cddpi_batch_ring_cancel(struct cddpi_batch_ring *ring)
{
    pthread_mutex_lock(&ring->mutex);
    ring->end = 0;
    while (ring->busy > 0) {
        pthread_cond_wait(&ring->made, &ring->mutex);
    }
    pthread_mutex_unlock(&ring->mutex);
}

void cddpi_batch_ring_begin(struct cddpi_batch_ring *ring, uint64_t first, uint64_t end)
{
    pthread_mutex_lock(&ring->mutex);
    ring->taken = ring->kept = ring->next_batch = first;
    ring->next_piece = 0;
    ring->end = end;
    open_batch(ring);
    pthread_mutex_unlock(&ring->mutex);
}

static bool is_complete(const struct cddpi_batch_ring *ring, uint64_t number)
{
    return ring->next_batch > number && ring->slots[number % ring->slot_count].missing == 0;
}

static cddp_status check_threads(const struct cddpi_batch_ring *ring)
{
    return ring->thread_count == 0 || ring->alive > 0
               ? CDDP_OK
               : cddpi_fail(CDDP_ERR_BROKEN,
                            "loader: the function that makes samples has ended all %d threads by "
                            "pthread_exit(): it has to return",
                            ring->thread_count);
}

cddp_status cddpi_batch_ring_check(struct cddpi_batch_ring *ring)
{
    cddp_status status;

    pthread_mutex_lock(&ring->mutex);
    status = check_threads(ring);
    pthread_mutex_unlock(&ring->mutex);
    return status;
}

/* With the mutex, in the caller's thread: wait until the batch is complete or no thread is left.
 * Without threads, make it here. */
static cddp_status await_batch(struct cddpi_batch_ring *ring, uint64_t number)
{
    struct batch_ring_piece piece;
    int64_t deadline = cddpi_deadline_ns(ring->timeout_ms);
    struct timespec until = {deadline / 1000000000, deadline % 1000000000};

    while (ring->thread_count == 0 && !is_complete(ring, number) && begin_piece(ring, &piece)) {
        make_piece(&piece);
    }
    while (!is_complete(ring, number) && ring->alive > 0) {
        if (ring->timeout_ms == 0) {
            pthread_cond_wait(&ring->made, &ring->mutex);
        } else if (pthread_cond_timedwait(&ring->made, &ring->mutex, &until) == ETIMEDOUT &&
                   !is_complete(ring, number)) {
            return cddpi_fail(CDDP_ERR_TIMEOUT, "loader: batch %llu was not read within %u ms",
                              (unsigned long long)number, ring->timeout_ms);
        }
    }
    return CDDP_OK;
}

cddp_status cddpi_batch_ring_await(struct cddpi_batch_ring *ring)
{
    const struct cddpi_batch_ring_slot *slot = &ring->slots[ring->taken % ring->slot_count];
    cddp_status status;

    pthread_mutex_lock(&ring->mutex);
    ring->kept = ring->taken;
    open_batch(ring);
    status = await_batch(ring, ring->taken);
    if (status == CDDP_OK && slot->failed_at != UINT64_MAX) {
        status = cddpi_fail_again((cddp_status)slot->failure.status, &slot->failure);
        ring->end = 0;
    } else if (status == CDDP_OK && !is_complete(ring, ring->taken)) {
        status = check_threads(ring);
        ring->end = 0;
    }
    pthread_mutex_unlock(&ring->mutex);
    return status;
}
