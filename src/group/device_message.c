/* device_message.c - send and recv of a device's memory: told to the peer in shared memory, put
 * under way by the plane, and looked after until they are done, in whatever order that is. */
#include "group/device.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

enum { PAUSE_NS = 100000, THOROUGH_NS = 100000000 };

static bool sends(const struct cddpi_group_op *op)
{
    return op->kind == CDDPI_SEND;
}

/* What rank @p rank tells of its messages to, or from, @p peer. */
static struct cddpi_post *post_of(const struct cddpi_group_device *side, int rank, int peer,
                                  bool sends)
{
    size_t lane = (size_t)rank * (size_t)side->group->world_size + (size_t)peer;

    return &side->posts[2 * lane + (sends ? 0 : 1)];
}

static struct cddpi_post *own_post(const struct cddpi_group_device *side,
                                   const struct cddpi_group_op *op)
{
    return post_of(side, side->group->rank, op->root, sends(op));
}

static struct cddpi_post *peer_post(const struct cddpi_group_device *side,
                                    const struct cddpi_group_op *op)
{
    return post_of(side, op->root, side->group->rank, !sends(op));
}

static void nap(void)
{
    struct timespec pause = {0, PAUSE_NS};

    nanosleep(&pause, NULL);
}

/* --- calls --- */

/* Waits only for a receiver that is CDDPI_POSTS messages behind. */
static cddp_status await_room(struct cddpi_group_device *side, struct cddpi_flight *flight)
{
    const struct cddpi_post *theirs = peer_post(side, &flight->op);
    char title[200];

    while (sends(&flight->op) &&
           atomic_load_explicit(&theirs->compared, memory_order_acquire) + CDDPI_POSTS <
               flight->op.number) {
        cddp_status status = cddpi_watch_status(side);

        if (status != CDDP_OK) {
            return status;
        }
        if (cddpi_now_ns() > flight->op.deadline_ns) {
            cddpi_watch_title(flight, title, sizeof title);
            return cddpi_watch_fail(side, cddpi_fail(CDDP_ERR_TIMEOUT,
                                                     "%s: rank %d is %d messages behind", title,
                                                     flight->op.root, CDDPI_POSTS));
        }
        nap();
    }
    return CDDP_OK;
}

/* The peer may see it, and the watchdog looks after it. */
static void tell(struct cddpi_group_device *side, struct cddpi_flight *flight)
{
    struct cddpi_post *own = own_post(side, &flight->op);
    struct cddpi_flight **end = &side->messages;

    own->calls[flight->op.number % CDDPI_POSTS] = (struct cddpi_posted){flight->op.count,
                                                                        (uint32_t)flight->op.type};
    atomic_store_explicit(&own->called, flight->op.number, memory_order_release);
    pthread_mutex_lock(&side->mutex);
    flight->serial = ++side->serial;
    flight->compared = false;
    flight->next = NULL;
    flight->status = atomic_load_explicit(&side->failed, memory_order_relaxed) ? side->failure
                                                                               : CDDP_OK;
    flight->under_way = flight->status == CDDP_OK;
    while (*end != NULL) {
        end = &(*end)->next;
    }
    if (flight->under_way) {
        *end = flight;
    }
    if (side->idle) {
        pthread_cond_signal(&side->wake);
    }
    pthread_mutex_unlock(&side->mutex);
}

static cddp_status put(struct cddpi_group_device *side, struct cddpi_flight *flight)
{
    const struct cddpi_device_ops *device = side->device->ops;
    struct cddpi_plane_message message = {.op = &flight->op, .done = flight->done};
    cddp_status status = CDDP_OK;

    flight->op.number = own_post(side, &flight->op)->called + 1;
    atomic_store_explicit(&flight->begun, false, memory_order_relaxed);
    message.begun = &flight->begun;
    if (flight->ready == NULL) {
        status = device->event_create(side->device, false, &flight->ready);
    }
    message.ready = flight->ready;
    if (status == CDDP_OK) {
        status = device->record(side->device, flight->ready, CDDPI_STREAM_COMPUTE);
    }
    if (status != CDDP_OK) { /* nobody knows of it yet */
        return status;
    }
    status = await_room(side, flight);
    if (status != CDDP_OK) {
        return status;
    }
    status = side->ops->message(side->plane, &message);
    if (status == CDDP_OK) {
        tell(side, flight);
    } else if (status != CDDP_ERR_UNAVAILABLE) {
        status = cddpi_flight_fail(side, flight, status);
    }
    return status;
}

/* The handle, or the call itself, lets go of it. */
static void let_go(struct cddpi_group_device *side, struct cddpi_flight *flight)
{
    pthread_mutex_lock(&side->mutex);
    flight->held = false;
    if (!flight->under_way) { /* else who takes it off the row puts it there */
        flight->next = side->free;
        side->free = flight;
    }
    pthread_mutex_unlock(&side->mutex);
}

static cddp_status check(const struct cddpi_group_device *side, const struct cddpi_group_op *op)
{
    if (side->ops->message == NULL) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE,
                          "rank %d: %s of memory of device %s %d (copy it to the processor's)",
                          side->group->rank, cddpi_kind_name(op->kind), side->device->ops->name,
                          side->device->index);
    }
    if (side->recording) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE,
                          "rank %d: %s of the device's memory cannot be part of a recording",
                          side->group->rank, cddpi_kind_name(op->kind));
    }
    return CDDP_OK;
}

cddp_status cddpi_message_start(struct cddpi_group_device *side, const struct cddpi_group_op *op,
                                cddp_work **out)
{
    struct cddp_work start = {.op = *op, .group = side->group};
    struct cddp_work *work = NULL;
    cddp_status status = check(side, op);

    if (status != CDDP_OK) {
        return status;
    }
    start.flight = cddpi_flight_take(side, op);
    if (start.flight == NULL) {
        return CDDP_ERR_NO_MEMORY;
    }
    start.flight->held = true;
    if (out != NULL) {
        work = cddpi_work_take(side->group, &start);
        status = work != NULL ? CDDP_OK : CDDP_ERR_NO_MEMORY;
    }
    if (status == CDDP_OK) {
        status = put(side, start.flight);
    }
    if (status == CDDP_OK && out == NULL) {
        status = cddpi_flight_follow(side, start.flight);
    }
    if (status == CDDP_OK && out != NULL) {
        *out = work;
        return CDDP_OK;
    }
    let_go(side, start.flight);
    if (work != NULL) {
        work->flight = NULL;
        atomic_store_explicit(&work->done, 1, memory_order_relaxed);
        cddp_work_destroy(work);
    }
    return status;
}

cddp_status cddpi_message_await(struct cddpi_group_device *side, const struct cddpi_flight *flight,
                                uint32_t timeout_ms)
{
    int64_t until = timeout_ms != 0 ? cddpi_deadline_ns(timeout_ms) : INT64_MAX;

    while (!atomic_load_explicit(&flight->begun, memory_order_acquire)) {
        cddp_status status;

        cddpi_watch_look(side); /* which moves it on */
        status = cddpi_watch_status(side);
        if (status != CDDP_OK) {
            return status;
        }
        if (cddpi_now_ns() >= until) {
            return cddpi_fail(CDDP_ERR_TIMEOUT, "rank %d: the work was not done within %u ms",
                              side->group->rank, timeout_ms);
        }
        nap();
    }
    return CDDP_OK;
}

void cddpi_message_settle(struct cddpi_group_device *side)
{
    bool busy = true;

    while (busy) {
        pthread_mutex_lock(&side->mutex);
        busy = side->messages != NULL; /* each has its deadline, and a failure ends them all */
        pthread_mutex_unlock(&side->mutex);
        if (busy) {
            nap();
        }
    }
}

/* --- the watchdog --- */

/* A message that is under way; only who looks, or a failure, takes it off the row. */
struct look {
    struct cddpi_flight *flight;
    struct cddpi_group_op op;
    uint64_t serial;
    bool compared;
    char title[200];
};

/* The one behind that with @p serial. */
static bool next_message(struct cddpi_group_device *side, uint64_t serial, struct look *out)
{
    struct cddpi_flight *flight;

    pthread_mutex_lock(&side->mutex);
    flight = side->messages;
    while (flight != NULL && flight->serial <= serial) {
        flight = flight->next;
    }
    if (flight != NULL) {
        out->flight = flight;
        out->op = flight->op;
        out->serial = flight->serial;
        out->compared = flight->compared;
        cddpi_watch_title(flight, out->title, sizeof out->title);
    }
    pthread_mutex_unlock(&side->mutex);
    return flight != NULL;
}

static void retire(struct cddpi_group_device *side, const struct look *look)
{
    struct cddpi_flight **link = &side->messages;

    pthread_mutex_lock(&side->mutex);
    while (*link != NULL && (*link)->serial != look->serial) {
        link = &(*link)->next;
    }
    if (*link != NULL) { /* else a failure was quicker */
        struct cddpi_flight *flight = *link;

        *link = flight->next;
        flight->under_way = false;
        if (!flight->held) {
            flight->next = side->free;
            side->free = flight;
        }
        atomic_store_explicit(&own_post(side, &look->op)->ended, look->op.number,
                              memory_order_release);
    }
    pthread_mutex_unlock(&side->mutex);
}

/* What the peer sends must be what is received here. */
static cddp_status compare(struct cddpi_group_device *side, struct look *look)
{
    const struct cddpi_group_op *op = &look->op;
    const struct cddpi_post *theirs = peer_post(side, op);
    struct cddpi_posted sent;

    if (look->compared || sends(op) ||
        atomic_load_explicit(&theirs->called, memory_order_acquire) < op->number) {
        return CDDP_OK;
    }
    sent = theirs->calls[op->number % CDDPI_POSTS];
    if (sent.count != op->count || sent.type != (uint32_t)op->type) {
        return cddpi_fail(CDDP_ERR_MISMATCH,
                          "message #%llu on the devices from rank %d to rank %d: rank %d sends %s "
                          "x %llu, rank %d receives %s x %zu",
                          (unsigned long long)op->number, op->root, side->group->rank, op->root,
                          cddp_type_name((cddp_type)sent.type), (unsigned long long)sent.count,
                          side->group->rank, cddp_type_name(op->type), op->count);
    }
    pthread_mutex_lock(&side->mutex);
    look->flight->compared = look->compared = true;
    pthread_mutex_unlock(&side->mutex);
    atomic_store_explicit(&own_post(side, op)->compared, op->number, memory_order_release);
    return CDDP_OK;
}

static cddp_status check_peer(struct cddpi_group_device *side, const struct look *look,
                              bool thorough)
{
    const struct cddpi_post *theirs = peer_post(side, &look->op);
    /* first: once it has left, what it did is known */
    cddp_status status = cddpi_watch_peer(side, look->op.root, thorough, look->title);

    return atomic_load_explicit(&theirs->ended, memory_order_acquire) >= look->op.number ? CDDP_OK
                                                                                         : status;
}

static cddp_status expired(const struct cddpi_group_device *side, const struct look *look)
{
    int peer = look->op.root;
    const char *counterpart = sends(&look->op) ? "recv" : "send";
    bool called = atomic_load_explicit(&peer_post(side, &look->op)->called, memory_order_acquire) >=
                  look->op.number;
    uint64_t start_time = 0;
    char state = '?';

    (void)cddpi_host_process(side->calls[peer].pid, &state, &start_time);
    return cddpi_fail(CDDP_ERR_TIMEOUT,
                      "%s: waited %lld ms for rank %d (pid %d%s), which has %s%s%s", look->title,
                      (long long)((cddpi_now_ns() - look->op.start_ns) / 1000000), peer,
                      side->calls[peer].pid, state == 'T' || state == 't' ? ", stopped" : "",
                      called ? "called its " : "not called its ", counterpart,
                      called ? ", behind work that does not end (ranks that send to each other do "
                               "it with handles)"
                             : "");
}

static cddp_status look_at(struct cddpi_group_device *side, struct look *look, bool ask_device,
                           bool thorough)
{
    bool done = false;
    cddp_status status = CDDP_OK;

    if (ask_device) {
        status = compare(side, look);
        if (status != CDDP_OK) {
            return status;
        }
        if (atomic_load_explicit(&look->flight->begun, memory_order_acquire)) {
            status = cddpi_watch_ask(side, look->flight->done, &done);
        }
        if (status != CDDP_OK) {
            return cddpi_fail_prefix(status, "%s", look->title);
        }
        if (done && (sends(&look->op) || look->compared)) {
            retire(side, look);
            return CDDP_OK;
        }
    }
    status = check_peer(side, look, thorough);
    if (status == CDDP_OK && cddpi_now_ns() >= look->op.deadline_ns) {
        status = expired(side, look);
    }
    return status;
}

cddp_status cddpi_message_look(struct cddpi_group_device *side, bool ask_device)
{
    int64_t now = cddpi_now_ns();
    bool thorough = now - side->messages_looked_ns > THOROUGH_NS;
    struct look look = {.serial = 0};
    bool any = false;
    cddp_status status = CDDP_OK;

    while (status == CDDP_OK && next_message(side, look.serial, &look)) {
        status = look_at(side, &look, ask_device, thorough && now - look.op.start_ns > THOROUGH_NS);
        any = true;
    }
    if (any && thorough) {
        side->messages_looked_ns = now;
    }
    return status;
}
