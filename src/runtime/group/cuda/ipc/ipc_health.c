/* ipc_health.c - checks whether the peers are alive, use memory at the same places, and have not
 * aborted; and owns this rank's own abort. */
#include "base/hash.h"
#include "group/cuda/ipc/ipc.h"

#include <poll.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

void cddpi_ipc_watch(struct ipc_transport *ipc, const int32_t *pids)
{
    for (int r = 0; r < ipc->size; r++) {
        ipc->alive[r] = -1;
#ifdef SYS_pidfd_open
        if (r != ipc->rank) {
            /* Kernels before 5.3 have no pidfd_open, and containers may hide the process: then only
             * the group's backend detects that a peer died. */
            ipc->alive[r] = (int)syscall(SYS_pidfd_open, pids[r], 0);
        }
#endif
    }
}

static bool died(const struct ipc_transport *ipc, int rank)
{
    struct pollfd watched = {.fd = ipc->alive[rank], .events = POLLIN};

    return watched.fd >= 0 && poll(&watched, 1, 0) == 1 && (watched.revents & POLLIN) != 0;
}

static bool has_left(const struct ipc_transport *ipc, int rank)
{
    return atomic_load_explicit(&ipc->block->ranks[rank].left, memory_order_acquire) != 0;
}

bool cddpi_ipc_gone(const struct ipc_transport *ipc, int rank)
{
    return has_left(ipc, rank) || died(ipc, rank);
}

/* Fail if a needed peer is gone. A rank that has done its part may leave, or even die. */
static cddp_status check_peers(struct ipc_transport *ipc)
{
    uint64_t pieces = atomic_load(&ipc->pieces);

    for (int r = 0; r < ipc->size; r++) {
        bool left;

        /* This rank has no work that waits for rank r, or will. */
        if (r == ipc->rank || cddpi_ipc_read(ipc, r, IPC_DONE) >= pieces) {
            continue;
        }
        left = has_left(ipc, r);
        /* What a rank that is gone has done is final only now. */
        if ((left || died(ipc, r)) && cddpi_ipc_read(ipc, r, IPC_DONE) < pieces) {
            (void)cddpi_fail(CDDP_ERR_PEER, "rank %d has %s", r, left ? "left the group" : "died");
            cddpi_error_blame(r);
            return CDDP_ERR_PEER;
        }
    }
    return CDDP_OK;
}

void cddpi_ipc_note_place(struct ipc_transport *ipc, const struct ipc_segment *in_block,
                          const void *in, const struct ipc_segment *out_block, const void *out)
{
    uint64_t number = ++ipc->operations;
    uint64_t hash = cddpi_hash_start;

    if (in_block != NULL) {
        hash = cddpi_hash_add(hash, in_block->id);
        hash = cddpi_hash_add(hash, (uint64_t)((const char *)in - in_block->at[ipc->rank]));
    }
    if (out_block != NULL) {
        hash = cddpi_hash_add(hash, out_block->id);
        hash = cddpi_hash_add(hash, (uint64_t)((const char *)out - out_block->at[ipc->rank]));
    }
    atomic_store_explicit(&ipc->block->ranks[ipc->rank].places[number % IPC_PLACES],
                          (number << 32) | (uint32_t)(hash ^ hash >> 32), memory_order_release);
}

static uint64_t place(const struct ipc_transport *ipc, int rank, uint64_t number)
{
    return atomic_load_explicit(&ipc->block->ranks[rank].places[number % IPC_PLACES],
                                memory_order_acquire);
}

/* Whether @p entry is older than operation @p number. */
static bool before(uint64_t entry, uint64_t number)
{
    return (int32_t)((uint32_t)(entry >> 32) - (uint32_t)number) < 0;
}

/* Compare the places of the operations that all ranks have called by now. A rank computes addresses
 * in the peers' memory from its own, which is correct only if all ranks pass the same places. */
static cddp_status check_places(struct ipc_transport *ipc)
{
    for (;; ipc->compared++) {
        uint64_t number = ipc->compared + 1;
        uint64_t mine = place(ipc, ipc->rank, number);

        if (before(mine, number)) {
            return CDDP_OK; /* not there yet */
        }
        for (int r = 0; r < ipc->size; r++) {
            uint64_t theirs = place(ipc, r, number);

            if (before(theirs, number)) {
                return CDDP_OK;
            }
            if (theirs >> 32 == mine >> 32 && theirs != mine) {
                return cddpi_fail(CDDP_ERR_MISMATCH,
                                  "device collective #%llu: rank %d and rank %d pass different "
                                  "places of memory from cddp_group_alloc(), or one of them other "
                                  "memory: on GPUs, all ranks pass the same place",
                                  (unsigned long long)number, ipc->rank, r);
            }
        }
    }
}

cddp_status cddpi_ipc_ended(struct ipc_transport *ipc)
{
    if (ipc->block != NULL &&
        atomic_load_explicit(&ipc->block->abort_state, memory_order_acquire) == 2) {
        /* once more, since a stream may have overwritten an upper half */
        cddpi_ipc_release(ipc);
        if (ipc->block->abort_rank != ipc->rank) {
            return cddpi_fail_rank(CDDP_ERR_PEER, ipc->block->abort_rank, "%s",
                                   ipc->block->abort_text);
        }
    }
    if (atomic_load_explicit(&ipc->aborted, memory_order_acquire) == 2) {
        return cddpi_fail_rank(CDDP_ERR_BROKEN, ipc->rank, "%s", ipc->reason);
    }
    return CDDP_OK;
}

cddp_status cddpi_ipc_poll(struct cddpi_device_transport *base)
{
    struct ipc_transport *ipc = ipc_of(base);

    CDDPI_TRY(cddpi_ipc_ended(ipc));
    if (ipc->block == NULL) {
        return CDDP_OK;
    }
    CDDPI_TRY(check_peers(ipc));
    CDDPI_TRY(check_places(ipc));
    return cddpi_p2p_advance(ipc->p2p);
}

void cddpi_ipc_abort(struct cddpi_device_transport *base, const char *reason)
{
    struct ipc_transport *ipc = ipc_of(base);
    uint32_t none = 0;

    if (atomic_compare_exchange_strong(&ipc->aborted, &none, 1)) {
        snprintf(ipc->reason, sizeof ipc->reason, "%s", reason);
        atomic_store_explicit(&ipc->aborted, 2, memory_order_release);
    }
    if (ipc->block == NULL) {
        return;
    }
    none = 0;
    if (atomic_compare_exchange_strong(&ipc->block->abort_state, &none, 1)) {
        ipc->block->abort_rank = ipc->rank;
        snprintf(ipc->block->abort_text, sizeof ipc->block->abort_text, "%s", reason);
        atomic_store_explicit(&ipc->block->abort_state, 2, memory_order_release);
    }
    cddpi_ipc_release(ipc);
    cddpi_p2p_release(ipc->p2p);
}
