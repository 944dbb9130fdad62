/* device_calls.c - what the ranks called on their devices: told to each other in shared memory, and
 * compared; and whether they are still there. */
#include "group/device.h"

#include "base/clock.h"
#include "base/error.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { PAUSE_NS = 500000 };

static void describe(const struct cddpi_group_op *op, struct host_descriptor *out)
{
    memset(out, 0, sizeof *out);
    out->kind = (uint8_t)op->kind;
    out->type = (uint8_t)op->type;
    out->op = (uint8_t)op->op;
    out->weighted = op->weighted;
    out->root = op->root;
    out->count = op->count;
}

void cddpi_watch_title(const struct cddpi_flight *flight, char *out, size_t bytes)
{
    struct host_descriptor what;
    char call[128];

    if (flight->op.kind == CDDPI_SEND || flight->op.kind == CDDPI_RECV) {
        snprintf(out, bytes, "%s %s x %zu %s rank %d, message #%llu on the device%s%s",
                 cddpi_kind_name(flight->op.kind), cddp_type_name(flight->op.type),
                 flight->op.count, flight->op.kind == CDDPI_SEND ? "to" : "from", flight->op.root,
                 (unsigned long long)flight->op.number, flight->label[0] != '\0' ? ", " : "",
                 flight->label);
        return;
    }
    describe(&flight->op, &what);
    cddpi_host_describe(&what, call, sizeof call);
    snprintf(out, bytes, "%s, #%llu on the device%s%s", call, (unsigned long long)flight->op.number,
             flight->label[0] != '\0' ? ", " : "", flight->label);
}

/* Nobody still wants to read what stands where call @p number would be written. */
static bool has_room(const struct cddpi_group_device *side, uint64_t number)
{
    for (int r = 0; r < side->group->world_size; r++) {
        if (atomic_load_explicit(&side->calls[r].compared, memory_order_acquire) + CDDPI_CALLS <
            number) {
            return false;
        }
    }
    return true;
}

cddp_status cddpi_watch_call(struct cddpi_group_device *side, struct cddpi_flight *flight)
{
    struct cddpi_calls *own = cddpi_own_calls(side);
    uint64_t number = ++side->number;
    struct timespec pause = {0, PAUSE_NS};
    char title[200];

    flight->op.number = number;
    while (!has_room(side, number)) {
        if (atomic_load_explicit(&side->failed, memory_order_acquire)) {
            return cddpi_watch_status(side);
        }
        if (cddpi_now_ns() > flight->op.deadline_ns) {
            cddpi_watch_title(flight, title, sizeof title);
            return cddpi_watch_fail(side, cddpi_fail(CDDP_ERR_TIMEOUT,
                                                     "%s: another rank is %d operations behind",
                                                     title, CDDPI_CALLS));
        }
        nanosleep(&pause, NULL);
    }
    describe(&flight->op, &own->calls[number % CDDPI_CALLS]);
    atomic_store_explicit(&own->called, number, memory_order_release);
    return CDDP_OK;
}

struct call_row {
    const struct cddpi_calls *calls;
    uint64_t number;
};

static const struct host_descriptor *call_in_row(const void *context, int rank)
{
    const struct call_row *row = context;

    return &row->calls[rank].calls[row->number % CDDPI_CALLS];
}

static uint64_t called_by_all(const struct cddpi_group_device *side)
{
    uint64_t least = UINT64_MAX;

    for (int r = 0; r < side->group->world_size; r++) {
        uint64_t called = atomic_load_explicit(&side->calls[r].called, memory_order_acquire);

        least = called < least ? called : least;
    }
    return least;
}

cddp_status cddpi_watch_compare(struct cddpi_group_device *side)
{
    int size = side->group->world_size;
    uint64_t all = called_by_all(side);
    struct call_row row = {side->calls, 0};
    char text[CDDPI_FAILURE_BYTES - 200];

    for (row.number = cddpi_own_calls(side)->compared + 1; row.number <= all; row.number++) {
        for (int r = 1; r < size; r++) {
            if (!cddpi_host_same_call(call_in_row(&row, 0), call_in_row(&row, r))) {
                cddpi_host_word_calls(call_in_row, &row, size, text, sizeof text);
                return cddpi_fail(CDDP_ERR_MISMATCH,
                                  "ranks disagree at operation #%llu on their devices: %s",
                                  (unsigned long long)row.number, text);
            }
        }
        atomic_store_explicit(&cddpi_own_calls(side)->compared, row.number, memory_order_release);
    }
    return CDDP_OK;
}

cddp_status cddpi_watch_peer(const struct cddpi_group_device *side, int rank, bool thorough,
                             const char *title)
{
    const struct cddpi_calls *peer = &side->calls[rank];
    uint64_t start_time = 0;
    char state = '?';

    if (atomic_load_explicit(&peer->left, memory_order_acquire) != 0) {
        return cddpi_fail(CDDP_ERR_PEER, "%s: rank %d has left the group", title, rank);
    }
    if (thorough && (!cddpi_host_process(peer->pid, &state, &start_time) ||
                     start_time != peer->start_time || state == 'Z' || state == 'X')) {
        return cddpi_fail(CDDP_ERR_PEER, "%s: rank %d (pid %d) died before it was done", title,
                          rank, peer->pid);
    }
    return CDDP_OK;
}
