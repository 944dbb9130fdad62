/* group_device_p2p.c - owns send and recv of device memory: publishes them to the peer in shared
 * memory, starts them through the transport, and monitors them until they are done, in any
 * order. */
#include "group/device/group_device.h"
#include "group/watch/peer.h"

#include "base/clock.h"
#include "base/error.h"
#include "group/engine/handles.h"

#include <stdio.h>
#include <time.h>

enum { PAUSE_NS = 100000, THOROUGH_NS = 100000000 };

static bool sends(const struct cddpi_group_op *op)
{
    return op->kind == CDDPI_SEND;
}

/* What @p rank publishes about its messages to, or from, @p peer. */
static struct cddpi_p2p_calls *p2p_calls_of(const struct cddpi_group_device *dev, int rank,
                                            int peer, bool sends)
{
    size_t channel = (size_t)rank * (size_t)dev->group->world_size + (size_t)peer;

    return &dev->p2p_calls[2 * channel + (sends ? 0 : 1)];
}

static struct cddpi_p2p_calls *own_p2p_calls(const struct cddpi_group_device *dev,
                                             const struct cddpi_group_op *op)
{
    return p2p_calls_of(dev, dev->group->rank, op->root, sends(op));
}

static struct cddpi_p2p_calls *peer_p2p_calls(const struct cddpi_group_device *dev,
                                              const struct cddpi_group_op *op)
{
    return p2p_calls_of(dev, op->root, dev->group->rank, !sends(op));
}

static void backoff(void)
{
    struct timespec pause = {0, PAUSE_NS};

    nanosleep(&pause, NULL);
}

/* --- calls --- */

/* Waits only for a receiver that is CDDPI_P2P_CALLS messages behind. */
static cddp_status await_room(struct cddpi_group_device *dev, struct cddpi_pending *pending)
{
    const struct cddpi_p2p_calls *theirs = peer_p2p_calls(dev, &pending->op);
    char title[200];

    while (sends(&pending->op) &&
           atomic_load_explicit(&theirs->compared, memory_order_acquire) + CDDPI_P2P_CALLS <
               pending->op.number) {
        CDDPI_TRY(cddpi_group_device_status(dev));
        if (cddpi_now_ns() > pending->op.deadline_ns) {
            cddpi_pending_title(pending, title, sizeof title);
            return cddpi_group_device_fail_call(
                dev, cddpi_fail(CDDP_ERR_TIMEOUT, "%s: rank %d is %d messages behind", title,
                                pending->op.root, CDDPI_P2P_CALLS));
        }
        backoff();
    }
    return CDDP_OK;
}

/* Publish the message to the peer, and give it to the watchdog. */
static void announce_message(struct cddpi_group_device *dev, struct cddpi_pending *pending)
{
    struct cddpi_p2p_calls *own = own_p2p_calls(dev, &pending->op);
    struct cddpi_pending **end = &dev->messages;

    own->calls[pending->op.number % CDDPI_P2P_CALLS] = (struct cddpi_p2p_call){
        pending->op.count, (uint32_t)pending->op.type};
    atomic_store_explicit(&own->called, pending->op.number, memory_order_release);
    cddpi_recorder_begin(&dev->group->recorder, &pending->op, true);
    pthread_mutex_lock(&dev->mutex);
    pending->serial = ++dev->serial;
    pending->compared = false;
    pending->next = NULL;
    pending->status = atomic_load_explicit(&dev->failed, memory_order_relaxed)
                          ? (cddp_status)dev->failure.status
                          : CDDP_OK;
    pending->under_way = pending->status == CDDP_OK;
    while (*end != NULL) {
        end = &(*end)->next;
    }
    if (pending->under_way) {
        *end = pending;
    }
    if (dev->idle) {
        pthread_cond_signal(&dev->wake);
    }
    pthread_mutex_unlock(&dev->mutex);
}

static cddp_status start_message(struct cddpi_group_device *dev, struct cddpi_pending *pending)
{
    const struct cddpi_device_ops *device = dev->device->ops;
    struct cddpi_p2p_message message = {.op = &pending->op, .done = pending->done};
    cddp_status status;

    pending->op.number = own_p2p_calls(dev, &pending->op)->called + 1;
    atomic_store_explicit(&pending->begun, false, memory_order_relaxed);
    message.begun = &pending->begun;
    /* a failure here concerns only this rank: nothing was published to the peer yet */
    if (pending->ready == NULL) {
        CDDPI_TRY(device->event_create(dev->device, false, &pending->ready));
    }
    message.ready = pending->ready;
    CDDPI_TRY(device->record(dev->device, pending->ready, CDDPI_STREAM_COMPUTE));
    CDDPI_TRY(await_room(dev, pending));
    status = dev->transport->ops->message(dev->transport, &message);
    if (status == CDDP_OK) {
        announce_message(dev, pending);
    } else if (status != CDDP_ERR_UNAVAILABLE) {
        status = cddpi_pending_fail(dev, pending, status);
    }
    return status;
}

static cddp_status check_op(const struct cddpi_group_device *dev, const struct cddpi_group_op *op)
{
    if (dev->transport->ops->message == NULL) {
        return cddpi_fail_rank(CDDP_ERR_UNAVAILABLE, dev->group->rank,
                               "%s of memory of device %s %d (copy it to CPU memory)",
                               cddpi_kind_name(op->kind), dev->device->ops->name,
                               dev->device->index);
    }
    if (!cddpi_device_is_here(dev, op->root)) {
        return cddpi_fail_rank(
            CDDP_ERR_UNAVAILABLE, dev->group->rank,
            "%s of memory of device %s %d: rank %d is on another host (copy it to CPU memory)",
            cddpi_kind_name(op->kind), dev->device->ops->name, dev->device->index, op->root);
    }
    if (dev->capturing) {
        return cddpi_fail_rank(CDDP_ERR_UNAVAILABLE, dev->group->rank,
                               "%s of the device's memory cannot be part of a capture",
                               cddpi_kind_name(op->kind));
    }
    return CDDP_OK;
}

bool cddpi_group_sends_on_device(const cddp_group *group)
{
    const struct cddpi_group_device *dev = group->device;
    bool sends = cddpi_group_has_device(group) && dev->transport->ops->message != NULL;

    for (int rank = 0; sends && rank < group->world_size; rank++) {
        sends = cddpi_device_is_here(dev, rank);
    }
    return sends;
}

cddp_status cddpi_device_p2p_start(struct cddpi_group_device *dev, const struct cddpi_group_op *op,
                                   cddp_work **out)
{
    struct cddp_work start = {.op = *op, .group = dev->group};
    struct cddp_work *work = NULL;
    cddp_status status = CDDP_OK;

    CDDPI_TRY(check_op(dev, op));
    start.pending = cddpi_pending_take(dev, op);
    if (start.pending == NULL) {
        return CDDP_ERR_NO_MEMORY;
    }
    start.pending->has_handle = true;
    if (out != NULL) {
        work = cddpi_work_take(dev->group, &start);
        status = work != NULL ? CDDP_OK : CDDP_ERR_NO_MEMORY;
    }
    if (status == CDDP_OK) {
        status = start_message(dev, start.pending);
    }
    if (status == CDDP_OK && out == NULL) {
        status = cddpi_pending_order(dev, start.pending);
    }
    if (status == CDDP_OK && out != NULL) {
        *out = work;
        return CDDP_OK;
    }
    cddpi_pending_release(dev, start.pending);
    if (work != NULL) {
        cddpi_work_put(work);
    }
    return status;
}

cddp_status cddpi_device_p2p_await(struct cddpi_group_device *dev,
                                   const struct cddpi_pending *pending, int64_t deadline_ns,
                                   bool *out_begun)
{
    for (;;) {
        *out_begun = atomic_load_explicit(&pending->begun, memory_order_acquire);
        if (*out_begun || (deadline_ns != 0 && cddpi_now_ns() >= deadline_ns)) {
            return CDDP_OK;
        }
        cddpi_watchdog_check(dev); /* enqueues more pieces */
        CDDPI_TRY(cddpi_group_device_status(dev));
        backoff();
    }
}

void cddpi_device_p2p_drain(struct cddpi_group_device *dev)
{
    bool busy = true;

    while (busy) {
        pthread_mutex_lock(&dev->mutex);
        /* the loop ends: each message has a deadline, and a failure ends all of them */
        busy = dev->messages != NULL;
        pthread_mutex_unlock(&dev->mutex);
        if (busy) {
            backoff();
        }
    }
}

/* --- the watchdog --- */

/* A copy of a message in progress. Only the checking thread, or a failure, removes the message from
 * the list. */
struct group_device_p2p_view {
    struct cddpi_pending *pending;
    struct cddpi_group_op op;
    uint64_t serial;
    bool compared;
    char title[200];
};

/* The first message after the one with @p serial. */
static bool next_message(struct cddpi_group_device *dev, uint64_t serial,
                         struct group_device_p2p_view *out)
{
    struct cddpi_pending *pending;

    pthread_mutex_lock(&dev->mutex);
    pending = dev->messages;
    while (pending != NULL && pending->serial <= serial) {
        pending = pending->next;
    }
    if (pending != NULL) {
        out->pending = pending;
        out->op = pending->op;
        out->serial = pending->serial;
        out->compared = pending->compared;
        cddpi_pending_title(pending, out->title, sizeof out->title);
    }
    pthread_mutex_unlock(&dev->mutex);
    return pending != NULL;
}

static void retire(struct cddpi_group_device *dev, const struct group_device_p2p_view *view)
{
    struct cddpi_pending **link = &dev->messages;

    pthread_mutex_lock(&dev->mutex);
    while (*link != NULL && (*link)->serial != view->serial) {
        link = &(*link)->next;
    }
    if (*link != NULL) { /* otherwise a failure has removed it */
        struct cddpi_pending *pending = *link;

        *link = pending->next;
        cddpi_pending_end(dev, pending);
        atomic_store_explicit(&own_p2p_calls(dev, &view->op)->ended, view->op.number,
                              memory_order_release);
    }
    pthread_mutex_unlock(&dev->mutex);
}

/* Fail if the peer's send does not match this recv. */
static cddp_status compare(struct cddpi_group_device *dev, struct group_device_p2p_view *view)
{
    const struct cddpi_group_op *op = &view->op;
    const struct cddpi_p2p_calls *theirs = peer_p2p_calls(dev, op);
    struct cddpi_p2p_call sent;

    if (view->compared || sends(op) ||
        atomic_load_explicit(&theirs->called, memory_order_acquire) < op->number) {
        return CDDP_OK;
    }
    sent = theirs->calls[op->number % CDDPI_P2P_CALLS];
    if (sent.count != op->count || sent.type != (uint32_t)op->type) {
        return cddpi_fail(CDDP_ERR_MISMATCH,
                          "message #%llu on the devices from rank %d to rank %d: rank %d sends %s "
                          "x %llu, rank %d receives %s x %zu",
                          (unsigned long long)op->number, op->root, dev->group->rank, op->root,
                          cddp_type_name((cddp_type)sent.type), (unsigned long long)sent.count,
                          dev->group->rank, cddp_type_name(op->type), op->count);
    }
    pthread_mutex_lock(&dev->mutex);
    view->pending->compared = view->compared = true;
    pthread_mutex_unlock(&dev->mutex);
    atomic_store_explicit(&own_p2p_calls(dev, op)->compared, op->number, memory_order_release);
    return CDDP_OK;
}

static cddp_status check_peer(struct cddpi_group_device *dev,
                              const struct group_device_p2p_view *view, bool thorough)
{
    const struct cddpi_p2p_calls *theirs = peer_p2p_calls(dev, &view->op);
    /* check before `ended` is read, so that everything a peer did before it left is seen */
    cddp_status status = cddpi_calls_check_peer(dev, view->op.root, thorough, view->title);

    return atomic_load_explicit(&theirs->ended, memory_order_acquire) >= view->op.number ? CDDP_OK
                                                                                         : status;
}

static cddp_status expired(const struct cddpi_group_device *dev,
                           const struct group_device_p2p_view *view)
{
    struct cddpi_late late = {.used = 0};
    char more[160];
    int peer = view->op.root;
    const char *counterpart = sends(&view->op) ? "recv" : "send";
    bool called = atomic_load_explicit(&peer_p2p_calls(dev, &view->op)->called,
                                       memory_order_acquire) >= view->op.number;

    snprintf(more, sizeof more, ", which has %scalled its %s%s", called ? "" : "not ", counterpart,
             called ? ", behind work that does not end (ranks that send to each other do it with "
                      "handles)"
                    : "");
    cddpi_late_add(&late, peer, dev->calls[peer].pid);
    return cddpi_late_fail(&late, view->title, view->op.start_ns, "", more);
}

static cddp_status check_message(struct cddpi_group_device *dev, struct group_device_p2p_view *view,
                                 bool query_device, bool thorough)
{
    bool done = false;
    cddp_status status = CDDP_OK;

    if (query_device) {
        CDDPI_TRY(compare(dev, view));
        if (atomic_load_explicit(&view->pending->begun, memory_order_acquire)) {
            status = cddpi_watchdog_query(dev, view->pending->done, &done);
        }
        if (status != CDDP_OK) {
            return cddpi_fail_titled(status, view->title);
        }
        if (done && (sends(&view->op) || view->compared)) {
            retire(dev, view);
            return CDDP_OK;
        }
    }
    status = check_peer(dev, view, thorough);
    if (status == CDDP_OK && cddpi_now_ns() >= view->op.deadline_ns) {
        status = expired(dev, view);
    }
    if (status != CDDP_OK) {
        cddpi_error_during(view->title);
    }
    return status;
}

cddp_status cddpi_device_p2p_check(struct cddpi_group_device *dev, bool query_device)
{
    int64_t now = cddpi_now_ns();
    bool thorough = now - dev->messages_checked_ns > THOROUGH_NS;
    struct group_device_p2p_view view = {.serial = 0};
    bool any = false;
    cddp_status status = CDDP_OK;

    while (status == CDDP_OK && next_message(dev, view.serial, &view)) {
        status = check_message(dev, &view, query_device,
                               thorough && now - view.op.start_ns > THOROUGH_NS);
        any = true;
    }
    if (any && thorough) {
        dev->messages_checked_ns = now;
    }
    return status;
}

cddp_status cddpi_pending_order(struct cddpi_group_device *dev, struct cddpi_pending *pending)
{
    cddp_status status;
    bool begun;

    CDDPI_TRY(cddpi_device_p2p_await(dev, pending, 0, &begun));
    status = dev->device->ops->order(dev->device, CDDPI_STREAM_COMPUTE, pending->done);
    return status == CDDP_OK ? CDDP_OK : cddpi_pending_fail(dev, pending, status);
}
