/* calls.c - owns what ranks publish in shared memory about their calls on devices: compares the
 * calls, and checks whether the ranks are alive. */
#include "group/device/group_device.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/process.h"
#include "group/watch/peer.h"

#include <stdio.h>
#include <time.h>

enum { PAUSE_NS = 500000 };

/* Whether all ranks have read the older call that call @p number overwrites. */
static bool has_room(const struct cddpi_group_device *dev, uint64_t number)
{
    for (int r = 0; r < dev->group->world_size; r++) {
        if (cddpi_device_is_here(dev, r) &&
            atomic_load_explicit(&dev->calls[r].compared, memory_order_acquire) + CDDPI_CALLS <
                number) {
            return false;
        }
    }
    return true;
}

cddp_status cddpi_calls_publish(struct cddpi_group_device *dev, struct cddpi_pending *pending)
{
    struct cddpi_calls *own = cddpi_own_calls(dev);
    uint64_t number = ++dev->number;
    struct timespec pause = {0, PAUSE_NS};
    char title[200];

    pending->op.number = number;
    while (!has_room(dev, number)) {
        if (atomic_load_explicit(&dev->failed, memory_order_acquire)) {
            return cddpi_group_device_status(dev);
        }
        if (cddpi_now_ns() > pending->op.deadline_ns) {
            cddpi_pending_title(pending, title, sizeof title);
            return cddpi_group_device_fail_call(
                dev, cddpi_fail(CDDP_ERR_TIMEOUT, "%s: another rank is %d operations behind", title,
                                CDDPI_CALLS));
        }
        nanosleep(&pause, NULL);
    }
    own->calls[number % CDDPI_CALLS] = cddpi_call_of(&pending->op);
    atomic_store_explicit(&own->called, number, memory_order_release);
    return cddpi_remote_call(dev, pending);
}

struct calls_call_row {
    const struct cddpi_calls *calls;
    uint64_t number;
};

static const struct cddpi_call *call_in_row(const void *context, int rank)
{
    const struct calls_call_row *row = context;

    return &row->calls[rank].calls[row->number % CDDPI_CALLS];
}

static uint64_t called_by_all(const struct cddpi_group_device *dev)
{
    uint64_t least = UINT64_MAX;

    for (int r = 0; r < dev->group->world_size; r++) {
        uint64_t called = atomic_load_explicit(&dev->calls[r].called, memory_order_acquire);

        least = called < least ? called : least;
    }
    return least;
}

cddp_status cddpi_calls_compare(struct cddpi_group_device *dev)
{
    int size = dev->group->world_size;
    uint64_t all = called_by_all(dev);
    struct calls_call_row row = {dev->calls, 0};
    char text[CDDPI_FAILURE_BYTES - 200];

    if (dev->remote != NULL) {
        return CDDP_OK; /* the remote compares, for all hosts */
    }
    for (row.number = cddpi_own_calls(dev)->compared + 1; row.number <= all; row.number++) {
        for (int r = 1; r < size; r++) {
            if (!cddpi_call_same(call_in_row(&row, 0), call_in_row(&row, r))) {
                cddpi_call_describe_all(call_in_row, &row, NULL, size, text, sizeof text);
                return cddpi_fail(CDDP_ERR_MISMATCH,
                                  "ranks disagree at operation #%llu on their devices: %s",
                                  (unsigned long long)row.number, text);
            }
        }
        atomic_store_explicit(&cddpi_own_calls(dev)->compared, row.number, memory_order_release);
    }
    return CDDP_OK;
}

void cddpi_calls_exit(struct cddpi_group_device *dev)
{
    if (dev->calls != NULL) {
        atomic_store_explicit(&cddpi_own_calls(dev)->end, CDDPI_PEER_EXITED, memory_order_release);
    }
    if (dev->transport != NULL && dev->transport->ops->exits != NULL) {
        dev->transport->ops->exits(dev->transport);
    }
}

cddp_status cddpi_calls_check_peer(const struct cddpi_group_device *dev, int rank, bool thorough,
                                   const char *title)
{
    const struct cddpi_calls *peer = &dev->calls[rank];

    uint32_t end = atomic_load_explicit(&peer->end, memory_order_acquire);

    if (end != CDDPI_PEER_HERE) {
        return cddpi_peer_left(title, rank, peer->pid, (enum cddpi_peer_end)end);
    }
    return thorough && !cddpi_process_is_alive(peer->pid, peer->start_time)
               ? cddpi_peer_died(title, rank, peer->pid)
               : CDDP_OK;
}
