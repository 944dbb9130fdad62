/* health.c - whether the peers still live, do the same, and have not given up; and giving up. */
#include "group/ipc/ipc.h"

#include <poll.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <unistd.h>

void cddpi_ipc_watch(struct cddpi_plane *plane, const int *pids)
{
    for (int r = 0; r < plane->size; r++) {
        plane->alive[r] = -1;
#ifdef SYS_pidfd_open
        if (r != plane->rank) {
            /* Kernels before 5.3 have none, and containers may hide the process: then only the
             * group's backend sees that a peer dies. */
            plane->alive[r] = (int)syscall(SYS_pidfd_open, pids[r], 0);
        }
#endif
    }
}

static bool died(const struct cddpi_plane *plane, int rank)
{
    struct pollfd watched = {.fd = plane->alive[rank], .events = POLLIN};

    return watched.fd >= 0 && poll(&watched, 1, 0) == 1 && (watched.revents & POLLIN) != 0;
}

static bool has_left(const struct cddpi_plane *plane, int rank)
{
    return atomic_load_explicit(&plane->block->ranks[rank].left, memory_order_acquire) != 0;
}

bool cddpi_ipc_gone(const struct cddpi_plane *plane, int rank)
{
    return has_left(plane, rank) || died(plane, rank);
}

/* Whether this rank has work that waits for @p rank, or will. */
static bool needed(const struct cddpi_plane *plane, int rank)
{
    uint64_t pieces = atomic_load(&plane->pieces);

    return cddpi_ipc_read(plane, rank, IPC_DONE) < pieces;
}

/* Who has done its part may leave, or even end without a word. */
static cddp_status check_peers(struct cddpi_plane *plane)
{
    for (int r = 0; r < plane->size; r++) {
        if (r == plane->rank || !needed(plane, r)) {
            continue;
        }
        if (has_left(plane, r)) {
            return cddpi_plane_fail(plane->device, CDDP_ERR_PEER, "rank %d has left the group", r);
        }
        if (died(plane, r)) {
            return cddpi_plane_fail(plane->device, CDDP_ERR_PEER, "rank %d has died", r);
        }
    }
    return CDDP_OK;
}

/* FNV-1a over what tells places apart. */
static uint32_t mix(uint32_t hash, uint64_t value)
{
    for (int i = 0; i < 8; i++) {
        hash = (hash ^ (uint32_t)(value >> 8 * i & 255)) * 16777619u;
    }
    return hash;
}

void cddpi_ipc_note_place(struct cddpi_plane *plane, const struct ipc_segment *in_block,
                          const void *in, const struct ipc_segment *out_block, const void *out)
{
    uint64_t number = ++plane->operations;
    uint32_t hash = 2166136261u;

    if (in_block != NULL) {
        hash = mix(hash, in_block->id);
        hash = mix(hash, (uint64_t)((const char *)in - in_block->at[plane->rank]));
    }
    if (out_block != NULL) {
        hash = mix(hash, out_block->id);
        hash = mix(hash, (uint64_t)((const char *)out - out_block->at[plane->rank]));
    }
    atomic_store_explicit(&plane->block->ranks[plane->rank].places[number % IPC_PLACES],
                          (number << 32) | hash, memory_order_release);
}

static uint64_t place(const struct cddpi_plane *plane, int rank, uint64_t number)
{
    return atomic_load_explicit(&plane->block->ranks[rank].places[number % IPC_PLACES],
                                memory_order_acquire);
}

/* Whether @p entry is older than operation @p number. */
static bool before(uint64_t entry, uint64_t number)
{
    return (int32_t)((uint32_t)(entry >> 32) - (uint32_t)number) < 0;
}

/* Peers compute addresses in each other's memory from their own: that holds if all pass the same
 * places. Compared as far as all ranks have come. */
static cddp_status check_places(struct cddpi_plane *plane)
{
    for (;; plane->compared++) {
        uint64_t number = plane->compared + 1;
        uint64_t mine = place(plane, plane->rank, number);

        if (before(mine, number)) {
            return CDDP_OK; /* not there yet */
        }
        for (int r = 0; r < plane->size; r++) {
            uint64_t theirs = place(plane, r, number);

            if (before(theirs, number)) {
                return CDDP_OK;
            }
            if (theirs >> 32 == mine >> 32 && theirs != mine) {
                return cddpi_plane_fail(
                    plane->device, CDDP_ERR_MISMATCH,
                    "device collective #%llu: rank %d and rank %d pass different "
                    "places of memory from cddp_group_alloc(), or one of them other "
                    "memory: on GPUs, all ranks pass the same place",
                    (unsigned long long)number, plane->rank, r);
            }
        }
    }
}

cddp_status cddpi_ipc_ended(struct cddpi_plane *plane)
{
    if (plane->block != NULL &&
        atomic_load_explicit(&plane->block->abort_state, memory_order_acquire) == 2) {
        cddpi_ipc_release(plane); /* again: a stream may just have written an upper half */
        if (plane->block->abort_rank != plane->rank) {
            return cddpi_plane_fail(plane->device, CDDP_ERR_PEER, "rank %d: %s",
                                    plane->block->abort_rank, plane->block->abort_text);
        }
    }
    if (atomic_load_explicit(&plane->aborted, memory_order_acquire) == 2) {
        return cddpi_plane_fail(plane->device, CDDP_ERR_CLOSED, "rank %d: %s", plane->rank,
                                plane->reason);
    }
    return CDDP_OK;
}

cddp_status cddpi_ipc_poll(struct cddpi_plane *plane)
{
    cddp_status status = cddpi_ipc_ended(plane);

    if (status != CDDP_OK || plane->block == NULL) {
        return status;
    }
    status = check_peers(plane);
    if (status == CDDP_OK) {
        status = check_places(plane);
    }
    return status != CDDP_OK ? status : cddpi_mail_advance(plane->mail);
}

void cddpi_ipc_abort(struct cddpi_plane *plane, const char *reason)
{
    uint32_t none = 0;

    if (atomic_compare_exchange_strong(&plane->aborted, &none, 1)) {
        snprintf(plane->reason, sizeof plane->reason, "%s", reason);
        atomic_store_explicit(&plane->aborted, 2, memory_order_release);
    }
    if (plane->block == NULL) {
        return;
    }
    none = 0;
    if (atomic_compare_exchange_strong(&plane->block->abort_state, &none, 1)) {
        plane->block->abort_rank = plane->rank;
        snprintf(plane->block->abort_text, sizeof plane->block->abort_text, "%s", reason);
        atomic_store_explicit(&plane->block->abort_state, 2, memory_order_release);
    }
    cddpi_ipc_release(plane);
    cddpi_mail_release(plane->mail);
}
