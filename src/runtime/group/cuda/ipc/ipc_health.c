/* ipc_health.c - checks whether the peers are alive, use memory at the same places, and have not
 * aborted; and owns this rank's own abort. */
#include "base/error.h"
#include "base/hash.h"
#include "group/cuda/ipc/ipc.h"

#include <poll.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

void cddpi_ipc_watch(struct ipc_transport *transport, const int *pids)
{
    for (int r = 0; r < transport->size; r++) {
        transport->alive[r] = -1;
#ifdef SYS_pidfd_open
        if (r != transport->rank) {
            /* Kernels before 5.3 have no pidfd_open, and containers may hide the process: then only
             * the group's backend detects that a peer died. */
            transport->alive[r] = (int)syscall(SYS_pidfd_open, pids[r], 0);
        }
#endif
    }
}

static bool died(const struct ipc_transport *transport, int rank)
{
    struct pollfd watched = {.fd = transport->alive[rank], .events = POLLIN};

    return watched.fd >= 0 && poll(&watched, 1, 0) == 1 && (watched.revents & POLLIN) != 0;
}

static bool has_left(const struct ipc_transport *transport, int rank)
{
    return atomic_load_explicit(&transport->block->ranks[rank].left, memory_order_acquire) != 0;
}

bool cddpi_ipc_gone(const struct ipc_transport *transport, int rank)
{
    return has_left(transport, rank) || died(transport, rank);
}

/* Whether this rank has work that waits for @p rank, or will. */
static bool needed(const struct ipc_transport *transport, int rank)
{
    uint64_t pieces = atomic_load(&transport->pieces);

    return cddpi_ipc_read(transport, rank, IPC_DONE) < pieces;
}

/* Fail if a needed peer is gone. A rank that has done its part may leave, or even die. */
static cddp_status check_peers(struct ipc_transport *transport)
{
    for (int r = 0; r < transport->size; r++) {
        if (r == transport->rank || !needed(transport, r)) {
            continue;
        }
        if (has_left(transport, r)) {
            (void)cddpi_transport_fail(transport->device, CDDP_ERR_PEER,
                                       "rank %d has left the group", r);
            cddpi_error_blame(r);
            return CDDP_ERR_PEER;
        }
        if (died(transport, r)) {
            (void)cddpi_transport_fail(transport->device, CDDP_ERR_PEER, "rank %d has died", r);
            cddpi_error_blame(r);
            return CDDP_ERR_PEER;
        }
    }
    return CDDP_OK;
}

void cddpi_ipc_note_place(struct ipc_transport *transport, const struct ipc_segment *in_block,
                          const void *in, const struct ipc_segment *out_block, const void *out)
{
    uint64_t number = ++transport->operations;
    uint64_t hash = cddpi_hash_start;

    if (in_block != NULL) {
        hash = cddpi_hash_add(hash, in_block->id);
        hash = cddpi_hash_add(hash, (uint64_t)((const char *)in - in_block->at[transport->rank]));
    }
    if (out_block != NULL) {
        hash = cddpi_hash_add(hash, out_block->id);
        hash = cddpi_hash_add(hash, (uint64_t)((const char *)out - out_block->at[transport->rank]));
    }
    atomic_store_explicit(&transport->block->ranks[transport->rank].places[number % IPC_PLACES],
                          (number << 32) | (uint32_t)(hash ^ hash >> 32), memory_order_release);
}

static uint64_t place(const struct ipc_transport *transport, int rank, uint64_t number)
{
    return atomic_load_explicit(&transport->block->ranks[rank].places[number % IPC_PLACES],
                                memory_order_acquire);
}

/* Whether @p entry is older than operation @p number. */
static bool before(uint64_t entry, uint64_t number)
{
    return (int32_t)((uint32_t)(entry >> 32) - (uint32_t)number) < 0;
}

/* Compare the places of the operations that all ranks have called by now. A rank computes addresses
 * in the peers' memory from its own, which is correct only if all ranks pass the same places. */
static cddp_status check_places(struct ipc_transport *transport)
{
    for (;; transport->compared++) {
        uint64_t number = transport->compared + 1;
        uint64_t mine = place(transport, transport->rank, number);

        if (before(mine, number)) {
            return CDDP_OK; /* not there yet */
        }
        for (int r = 0; r < transport->size; r++) {
            uint64_t theirs = place(transport, r, number);

            if (before(theirs, number)) {
                return CDDP_OK;
            }
            if (theirs >> 32 == mine >> 32 && theirs != mine) {
                return cddpi_transport_fail(
                    transport->device, CDDP_ERR_MISMATCH,
                    "device collective #%llu: rank %d and rank %d pass different "
                    "places of memory from cddp_group_alloc(), or one of them other "
                    "memory: on GPUs, all ranks pass the same place",
                    (unsigned long long)number, transport->rank, r);
            }
        }
    }
}

cddp_status cddpi_ipc_ended(struct ipc_transport *transport)
{
    if (transport->block != NULL &&
        atomic_load_explicit(&transport->block->abort_state, memory_order_acquire) == 2) {
        /* once more, since a stream may have overwritten an upper half */
        cddpi_ipc_release(transport);
        if (transport->block->abort_rank != transport->rank) {
            return cddpi_transport_fail_rank(transport->device, CDDP_ERR_PEER,
                                             transport->block->abort_rank, "%s",
                                             transport->block->abort_text);
        }
    }
    if (atomic_load_explicit(&transport->aborted, memory_order_acquire) == 2) {
        return cddpi_transport_fail_rank(transport->device, CDDP_ERR_CLOSED, transport->rank, "%s",
                                         transport->reason);
    }
    return CDDP_OK;
}

cddp_status cddpi_ipc_poll(struct cddpi_device_transport *base)
{
    struct ipc_transport *transport = ipc_of(base);
    cddp_status status = cddpi_ipc_ended(transport);

    if (status != CDDP_OK || transport->block == NULL) {
        return status;
    }
    status = check_peers(transport);
    if (status == CDDP_OK) {
        status = check_places(transport);
    }
    return status != CDDP_OK ? status : cddpi_p2p_advance(transport->p2p);
}

void cddpi_ipc_abort(struct cddpi_device_transport *base, const char *reason)
{
    struct ipc_transport *transport = ipc_of(base);
    uint32_t none = 0;

    if (atomic_compare_exchange_strong(&transport->aborted, &none, 1)) {
        snprintf(transport->reason, sizeof transport->reason, "%s", reason);
        atomic_store_explicit(&transport->aborted, 2, memory_order_release);
    }
    if (transport->block == NULL) {
        return;
    }
    none = 0;
    if (atomic_compare_exchange_strong(&transport->block->abort_state, &none, 1)) {
        transport->block->abort_rank = transport->rank;
        snprintf(transport->block->abort_text, sizeof transport->block->abort_text, "%s", reason);
        atomic_store_explicit(&transport->block->abort_state, 2, memory_order_release);
    }
    cddpi_ipc_release(transport);
    cddpi_p2p_release(transport->p2p);
}
