/* signal.c - how ranks of one machine wake each other: counters, bells and the abort record. */
#include "base/error.h"
#include "group/host/host.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { ABORT_TRIES = 1000, ABORT_PAUSE_NS = 200000 }; /* 0.2 s in all */

static void ring(struct host_rank *rank)
{
    atomic_fetch_add_explicit(&rank->bell, 1, memory_order_release);
    syscall(SYS_futex, &rank->bell, FUTEX_WAKE, INT_MAX, NULL, NULL, 0);
}

void cddpi_host_ring(struct cddpi_backend *host)
{
    atomic_thread_fence(memory_order_seq_cst);
    if (atomic_load_explicit(&host->block->sleep_for[host->rank], memory_order_relaxed) != 0) {
        ring(host->me);
    }
}

void cddpi_host_ring_all(struct cddpi_backend *host)
{
    for (int r = 0; r < host->size; r++) {
        ring(&host->block->ranks[r]);
    }
}

/* The sleeper sets sleep_for, then looks at the counters; we have set the counter and then look at
 * sleep_for. Both sides have a full fence in between, so one of the two sees the other. */
void cddpi_host_publish(struct cddpi_backend *host, uint32_t counter)
{
    atomic_store_explicit(&host->me->counter, counter, memory_order_release);
    atomic_thread_fence(memory_order_seq_cst);
    for (int r = 0; r < host->size; r++) {
        uint32_t what = atomic_load_explicit(&host->block->sleep_for[r], memory_order_relaxed);

        if (what != 0 && (what == 1 || what == 2 + (uint32_t)host->rank) && r != host->rank) {
            ring(&host->block->ranks[r]);
        }
    }
}

void cddpi_host_notify(struct cddpi_backend *host, int rank)
{
    uint32_t what;

    atomic_thread_fence(memory_order_seq_cst);
    what = atomic_load_explicit(&host->block->sleep_for[rank], memory_order_relaxed);
    if (what == 1 || what == 2 + (uint32_t)host->rank) {
        ring(&host->block->ranks[rank]);
    }
}

uint32_t cddpi_host_announce(struct cddpi_backend *host, int rank)
{
    uint32_t ticket = atomic_load_explicit(&host->me->bell, memory_order_acquire);

    atomic_store_explicit(&host->block->sleep_for[host->rank], rank < 0 ? 1 : 2 + (uint32_t)rank,
                          memory_order_relaxed);
    atomic_thread_fence(memory_order_seq_cst);
    return ticket;
}

bool cddpi_host_sleep(struct cddpi_backend *host, uint32_t ticket, int64_t ns)
{
    struct timespec limit = {ns / 1000000000, ns % 1000000000};

    return syscall(SYS_futex, &host->me->bell, FUTEX_WAIT, ticket, &limit, NULL, 0) == 0 ||
           errno == EAGAIN;
}

void cddpi_host_awake(struct cddpi_backend *host)
{
    atomic_store_explicit(&host->block->sleep_for[host->rank], 0, memory_order_relaxed);
}

void cddpi_host_abort(struct cddpi_backend *host, cddp_status status, const char *text)
{
    struct host_block *block = host->block;
    uint32_t none = 0;

    if (atomic_compare_exchange_strong(&block->abort_state, &none, 1)) {
        block->abort_rank = host->rank;
        block->abort_status = status;
        snprintf(block->abort_text, sizeof block->abort_text, "%s", text);
        atomic_store_explicit(&block->abort_state, 2, memory_order_release);
    }
    cddpi_host_ring_all(host);
}

cddp_status cddpi_host_broken(struct cddpi_backend *host)
{
    const struct host_block *block = host->block;
    uint32_t state = atomic_load_explicit(&block->abort_state, memory_order_acquire);

    if (state == 0) {
        return CDDP_OK;
    }
    for (int i = 0; state == 1 && i < ABORT_TRIES; i++) { /* its writer is at it, or died there */
        struct timespec pause = {0, ABORT_PAUSE_NS};

        nanosleep(&pause, NULL);
        state = atomic_load_explicit(&block->abort_state, memory_order_acquire);
    }
    if (state == 1) {
        return cddpi_fail(CDDP_ERR_PEER, "rank %d: another rank ended the group", host->rank);
    }
    if (block->abort_status == CDDP_ERR_MISMATCH) {
        return cddpi_fail(CDDP_ERR_MISMATCH, "%.*s", HOST_TEXT_BYTES, block->abort_text);
    }
    return cddpi_fail(block->abort_rank == host->rank ? CDDP_ERR_CLOSED : CDDP_ERR_PEER,
                      "rank %d: %.*s", block->abort_rank, HOST_TEXT_BYTES, block->abort_text);
}
