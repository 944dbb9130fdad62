/* health.c - why an operation does not get on: peers that died, left, were stopped or are late. */
#include "base/clock.h"
#include "base/error.h"
#include "group/host/host.h"

#include <stdio.h>
#include <string.h>

bool cddpi_host_needs(const struct cddpi_backend *host, const struct cddpi_group_op *op, int rank)
{
    if (rank == host->rank) {
        return false;
    }
    if (op->kind == CDDPI_SEND) {
        struct host_ring *ring = host_ring(host, host->rank, op->root);

        return rank == op->root &&
               atomic_load_explicit(&ring->produced, memory_order_relaxed) -
                       atomic_load_explicit(&ring->consumed, memory_order_acquire) ==
                   HOST_RING_BYTES;
    }
    if (op->kind == CDDPI_RECV) {
        struct host_ring *ring = host_ring(host, op->root, host->rank);

        return rank == op->root && atomic_load_explicit(&ring->produced, memory_order_acquire) ==
                                       atomic_load_explicit(&ring->consumed, memory_order_relaxed);
    }
    return (int32_t)(atomic_load_explicit(&host->block->ranks[rank].counter, memory_order_acquire) -
                     (op->base + op->stage)) < 0;
}

/* "all_reduce #12", "recv #3 from rank 1" */
static const char *title(const struct cddpi_group_op *op, char out[64])
{
    if (op->kind == CDDPI_SEND || op->kind == CDDPI_RECV) {
        snprintf(out, 64, "%s #%llu %s rank %d", cddpi_kind_name(op->kind),
                 (unsigned long long)op->number, op->kind == CDDPI_SEND ? "to" : "from", op->root);
    } else {
        snprintf(out, 64, "%s #%llu", cddpi_kind_name(op->kind), (unsigned long long)op->number);
    }
    return out;
}

static bool needs_any(const struct cddpi_backend *host, const struct cddpi_group_op *op)
{
    for (int r = 0; r < host->size; r++) {
        if (cddpi_host_needs(host, op, r)) {
            return true;
        }
    }
    return false;
}

cddp_status cddpi_host_check(struct cddpi_backend *host, const struct cddpi_group_op *op,
                             bool thorough)
{
    cddp_status status = cddpi_host_broken(host);
    char name[64];

    /* looked at after the failure, the counters show whether others had done their part before */
    if (status != CDDP_OK && !needs_any(host, op)) {
        return CDDP_OK;
    }
    for (int r = 0; r < host->size && status == CDDP_OK; r++) {
        struct host_rank *peer = &host->block->ranks[r];
        uint64_t start_time = 0;
        char state = '?';

        if (!cddpi_host_needs(host, op, r)) {
            continue;
        }
        /* looked at after its state, the counter shows all that it did before it left or died */
        if (atomic_load_explicit(&peer->state, memory_order_acquire) == HOST_LEFT) {
            if (cddpi_host_needs(host, op, r)) {
                status = cddpi_fail(CDDP_ERR_PEER, "%s: rank %d has left the group",
                                    title(op, name), r);
            }
            continue;
        }
        if (thorough &&
            (!cddpi_host_process(peer->pid, &state, &start_time) ||
             start_time != peer->start_time || state == 'Z' || state == 'X') &&
            cddpi_host_needs(host, op, r)) {
            status = cddpi_fail(CDDP_ERR_PEER, "%s: rank %d (pid %d) died before it was done",
                                title(op, name), r, peer->pid);
        }
    }
    return status;
}

cddp_status cddpi_host_expired(struct cddpi_backend *host, const struct cddpi_group_op *op)
{
    char late[512] = "";
    char name[64];
    size_t used = 0;

    for (int r = 0; r < host->size; r++) {
        struct host_rank *peer = &host->block->ranks[r];
        uint64_t start_time = 0;
        char state = '?';

        if (!cddpi_host_needs(host, op, r) || used > sizeof late - 64) {
            continue;
        }
        (void)cddpi_host_process(peer->pid, &state, &start_time);
        used += (size_t)snprintf(late + used, sizeof late - used, "%srank %d (pid %d%s)",
                                 used > 0 ? ", " : "", r, peer->pid,
                                 state == 'T' || state == 't' ? ", stopped" : "");
    }
    return cddpi_fail(CDDP_ERR_TIMEOUT, "%s: waited %lld ms for %s", title(op, name),
                      (long long)((cddpi_now_ns() - op->start_ns) / 1000000),
                      used > 0 ? late : "its turn");
}
