/* shm_wait.c - owns how ranks of one machine wait for each other: counters, wake-ups and the notice
 * of an abort; and why an operation does not advance: peers that died, left, were stopped or are
 * late. */
#include "base/error.h"
#include "base/process.h"
#include "group/shm/shm.h"
#include "group/watch/peer.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* Whether @p op still waits for @p rank. */
static bool needs(const struct shm_backend *shm, const struct cddpi_group_op *op, int rank)
{
    const struct shm_progress *progress = shm_progress_of(op);

    if (rank == shm->rank) {
        return false;
    }
    if (op->kind == CDDPI_SEND) {
        return rank == op->root && cddpi_shm_send_waits(shm, op);
    }
    if (op->kind == CDDPI_RECV) {
        struct shm_ring *ring = shm_ring(shm, op->root, shm->rank);

        return rank == op->root && atomic_load_explicit(&ring->produced, memory_order_acquire) ==
                                       atomic_load_explicit(&ring->consumed, memory_order_relaxed);
    }
    return (int32_t)(atomic_load_explicit(&shm->block->ranks[rank].counter, memory_order_acquire) -
                     (progress->base + progress->stage)) < 0;
}

/* "all_reduce #12", "recv #3 from rank 1" */
static const char *title(const struct shm_backend *shm, const struct cddpi_group_op *op,
                         char out[64])
{
    if (op->whole != NULL) {
        cddpi_op_title(op->whole, out, 64);
        return out;
    }
    if (op->kind == CDDPI_SEND || op->kind == CDDPI_RECV) {
        snprintf(out, 64, "%s #%llu %s rank %d", cddpi_kind_name(op->kind),
                 (unsigned long long)op->call, op->kind == CDDPI_SEND ? "to" : "from",
                 shm_name(shm, op->root));
    } else {
        cddpi_op_title(op, out, 64);
    }
    return out;
}

static bool needs_any(const struct shm_backend *shm, const struct cddpi_group_op *op)
{
    for (int r = 0; r < shm->size; r++) {
        if (needs(shm, op, r)) {
            return true;
        }
    }
    return false;
}

cddp_status cddpi_shm_check(struct cddpi_backend *backend, const struct cddpi_group_op *op,
                            bool thorough)
{
    struct shm_backend *shm = shm_of(backend);
    cddp_status status = CDDP_OK;
    cddp_status told;
    char name[64];

    for (int r = 0; r < shm->size && status == CDDP_OK; r++) {
        struct shm_rank *peer = &shm->block->ranks[r];
        unsigned state;

        if (!needs(shm, op, r)) {
            continue;
        }
        /* a counter that is read after the state shows everything that the peer did before it
         * left */
        state = atomic_load_explicit(&peer->state, memory_order_acquire);
        if (state == SHM_LEFT || state == SHM_EXITED) {
            if (needs(shm, op, r)) {
                status = cddpi_peer_left(title(shm, op, name), shm_name(shm, r), peer->pid,
                                         state == SHM_LEFT ? CDDPI_PEER_LEFT : CDDPI_PEER_EXITED);
            }
            continue;
        }
        if (thorough && !cddpi_process_is_alive(peer->pid, peer->start_time) && needs(shm, op, r)) {
            status = cddpi_peer_died(title(shm, op, name), shm_name(shm, r), peer->pid);
        }
    }
    told = cddpi_shm_broken(&shm->base); /* last: a peer may be gone because of an abort */
    /* counters that are read after the failure show whether all ranks had done their part before
     * it */
    return told != CDDP_OK && needs_any(shm, op) ? told : status;
}

void cddpi_shm_late(struct cddpi_backend *backend, const struct cddpi_group_op *op,
                    struct cddpi_late *late)
{
    struct shm_backend *shm = shm_of(backend);

    for (int r = 0; r < shm->size; r++) {
        if (needs(shm, op, r)) {
            cddpi_late_add(late, shm_name(shm, r), shm->block->ranks[r].pid);
        }
    }
}

cddp_status cddpi_shm_expired(struct cddpi_backend *backend, const struct cddpi_group_op *op)
{
    struct shm_backend *shm = shm_of(backend);
    struct cddpi_late late = {.used = 0};
    char name[64];

    cddpi_shm_late(&shm->base, op, &late);
    return cddpi_late_fail(&late, title(shm, op, name), op->start_ns, "its turn", "");
}

enum { ABORT_TRIES = 1000, ABORT_PAUSE_NS = 200000 }; /* 0.2 s in total */

static void wake(struct shm_rank *rank)
{
    atomic_fetch_add_explicit(&rank->wakeup, 1, memory_order_release);
    syscall(SYS_futex, &rank->wakeup, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void cddpi_shm_wake(struct cddpi_backend *backend)
{
    struct shm_backend *shm = shm_of(backend);

    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&shm->block->sleep_for[shm->rank], memory_order_relaxed) != 0) {
        wake(shm->me);
    }
}

void cddpi_shm_wake_all(struct shm_backend *shm)
{
    for (int r = 0; r < shm->size; r++) {
        wake(&shm->block->ranks[r]);
    }
}

/* The sleeper sets sleep_for, then reads the counters. This rank sets its counter, then reads
 * sleep_for. Both have a full fence in between, so at least one of the two sees the other's
 * write. */
void cddpi_shm_publish(struct shm_backend *shm, uint32_t counter)
{
    atomic_store_explicit(&shm->me->counter, counter, memory_order_release);
    atomic_thread_fence(memory_order_seq_cst);
    for (int r = 0; r < shm->size; r++) {
        uint32_t what = atomic_load_explicit(&shm->block->sleep_for[r], memory_order_relaxed);

        if (what != 0 && (what == 1 || what == 2 + (uint32_t)shm->rank) && r != shm->rank) {
            wake(&shm->block->ranks[r]);
        }
    }
}

void cddpi_shm_notify(struct shm_backend *shm, int rank)
{
    uint32_t what;

    atomic_thread_fence(memory_order_seq_cst);
    what = atomic_load_explicit(&shm->block->sleep_for[rank], memory_order_relaxed);
    if (what == 1 || what == 2 + (uint32_t)shm->rank) {
        wake(&shm->block->ranks[rank]);
    }
}

uint32_t cddpi_shm_prepare_sleep(struct cddpi_backend *backend, const struct cddpi_group_op *op)
{
    struct shm_backend *shm = shm_of(backend);
    uint32_t ticket = atomic_load_explicit(&shm->me->wakeup, memory_order_acquire);

    atomic_store_explicit(&shm->block->sleep_for[shm->rank],
                          op == NULL ? 1 : 2 + (uint32_t)shm_progress_of(op)->straggler,
                          memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
    return ticket;
}

bool cddpi_shm_sleep(struct cddpi_backend *backend, uint32_t ticket, int64_t ns)
{
    struct shm_backend *shm = shm_of(backend);
    struct timespec limit = {ns / 1000000000, ns % 1000000000};

    return syscall(SYS_futex, &shm->me->wakeup, FUTEX_WAIT, ticket, &limit, NULL, 0) == 0 ||
           errno == EAGAIN;
}

void cddpi_shm_end_sleep(struct cddpi_backend *backend)
{
    struct shm_backend *shm = shm_of(backend);

    atomic_store_explicit(&shm->block->sleep_for[shm->rank], 0, memory_order_relaxed);
}

void cddpi_shm_abort(struct cddpi_backend *backend, const struct cddpi_failure *failure)
{
    struct shm_backend *shm = shm_of(backend);
    struct shm_block *block = shm->block;
    uint32_t none = 0;

    if (atomic_compare_exchange_strong(&block->abort_state, &none, 1)) {
        block->abort_rank = shm->rank;
        block->abort_failure = *failure;
        atomic_store_explicit(&block->abort_state, 2, memory_order_release);
    }
    cddpi_shm_wake_all(shm);
}

cddp_status cddpi_shm_broken(struct cddpi_backend *backend)
{
    struct shm_backend *shm = shm_of(backend);
    const struct shm_block *block = shm->block;
    uint32_t state = atomic_load_explicit(&block->abort_state, memory_order_acquire);
    cddp_status status;

    if (state == 0) {
        return CDDP_OK;
    }
    for (int i = 0; state == 1 && i < ABORT_TRIES; i++) {
        /* it is being written, or its writer died */
        struct timespec pause = {0, ABORT_PAUSE_NS};

        nanosleep(&pause, NULL);
        state = atomic_load_explicit(&block->abort_state, memory_order_acquire);
    }
    if (state == 1) {
        return cddpi_fail_rank(CDDP_ERR_PEER, shm_name(shm, shm->rank),
                               "another rank ended the group");
    }
    if (block->abort_failure.status == CDDP_ERR_MISMATCH) {
        return cddpi_fail_again(CDDP_ERR_MISMATCH, &block->abort_failure);
    }
    status = block->abort_rank == shm->rank ? CDDP_ERR_BROKEN : CDDP_ERR_PEER;
    (void)cddpi_fail_again(status, &block->abort_failure);
    return cddpi_fail_name(status, shm_name(shm, block->abort_rank));
}
