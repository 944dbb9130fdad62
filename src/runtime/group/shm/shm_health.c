/* shm_health.c - finds out why an operation does not advance: peers that died, left, were stopped
 * or are late. */
#include "base/clock.h"
#include "base/error.h"
#include "base/process.h"
#include "group/shm/shm.h"
#include "group/watch/peer.h"

#include <stdio.h>
#include <string.h>

bool cddpi_shm_needs(const struct shm_backend *shm, const struct cddpi_group_op *op, int rank)
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
        if (cddpi_shm_needs(shm, op, r)) {
            return true;
        }
    }
    return false;
}

cddp_status cddpi_shm_check(struct cddpi_backend *backend, const struct cddpi_group_op *op,
                            bool thorough)
{
    struct shm_backend *shm = shm_of(backend);
    cddp_status status = cddpi_shm_broken(&shm->base);
    char name[64];

    /* counters that are read after the failure show whether all ranks had done their part before
     * it */
    if (status != CDDP_OK && !needs_any(shm, op)) {
        return CDDP_OK;
    }
    for (int r = 0; r < shm->size && status == CDDP_OK; r++) {
        struct shm_rank *peer = &shm->block->ranks[r];
        unsigned state;

        if (!cddpi_shm_needs(shm, op, r)) {
            continue;
        }
        /* a counter that is read after the state shows everything that the peer did before it
         * left */
        state = atomic_load_explicit(&peer->state, memory_order_acquire);
        if (state == SHM_LEFT || state == SHM_EXITED) {
            if (cddpi_shm_needs(shm, op, r)) {
                status = cddpi_peer_left(title(shm, op, name), shm_name(shm, r), peer->pid,
                                         state == SHM_LEFT ? CDDPI_PEER_LEFT : CDDPI_PEER_EXITED);
            }
            continue;
        }
        if (thorough && !cddpi_process_is_alive(peer->pid, peer->start_time) &&
            cddpi_shm_needs(shm, op, r)) {
            status = cddpi_peer_died(title(shm, op, name), shm_name(shm, r), peer->pid);
        }
    }
    return status;
}

void cddpi_shm_late(struct cddpi_backend *backend, const struct cddpi_group_op *op,
                    struct cddpi_late *late)
{
    struct shm_backend *shm = shm_of(backend);

    for (int r = 0; r < shm->size; r++) {
        if (cddpi_shm_needs(shm, op, r)) {
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
