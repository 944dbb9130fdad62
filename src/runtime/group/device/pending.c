/* pending.c - owns the pending operations of a device, which are enqueued and have not ended: their
 * structs, the list of those in progress, and how all are aborted when something fails. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "base/log.h"
#include "group/device/group_device.h"
#include "group/engine/group_state.h"
#include "group/watch/dump.h"

#include <stdio.h>
#include <string.h>

void cddpi_pending_title(const struct cddpi_pending *pending, char *out, size_t bytes)
{
    struct cddpi_call what;
    char call[128];

    if (pending->op.kind == CDDPI_SEND || pending->op.kind == CDDPI_RECV) {
        snprintf(out, bytes, "%s %s x %zu %s rank %d, message #%llu on the device%s%s",
                 cddpi_kind_name(pending->op.kind), cddp_type_name(pending->op.type),
                 pending->op.count, pending->op.kind == CDDPI_SEND ? "to" : "from",
                 pending->op.root, (unsigned long long)pending->op.number,
                 pending->label[0] != '\0' ? ", " : "", pending->label);
        return;
    }
    what = cddpi_call_of(&pending->op);
    cddpi_call_describe(&what, call, sizeof call);
    snprintf(out, bytes, "%s, #%llu on the device%s%s", call,
             (unsigned long long)pending->op.number, pending->label[0] != '\0' ? ", " : "",
             pending->label);
}

struct cddpi_pending *cddpi_pending_take(struct cddpi_group_device *dev,
                                         const struct cddpi_group_op *op)
{
    struct cddpi_pending *pending;

    pthread_mutex_lock(&dev->mutex);
    pending = dev->free;
    if (pending != NULL) {
        dev->free = pending->next;
    }
    pthread_mutex_unlock(&dev->mutex);
    if (pending == NULL) {
        pending = cddpi_zalloc(sizeof *pending);
        if (pending == NULL) {
            (void)cddpi_fail_rank(CDDP_ERR_NO_MEMORY, dev->group->rank,
                                  "no memory for an operation");
            return NULL;
        }
        if (dev->device->ops->event_create(dev->device, false, &pending->done) != CDDP_OK) {
            cddpi_free(pending);
            return NULL;
        }
    }
    pending->op = *op;
    pending->op.start_ns = cddpi_now_ns();
    pending->op.deadline_ns = pending->op.start_ns +
                              (int64_t)dev->group->timeout_ms * (int64_t)1000000;
    memcpy(pending->label, dev->label, sizeof pending->label);
    pending->captured = dev->capturing;
    atomic_store_explicit(&pending->begun, true, memory_order_relaxed);
    pending->under_way = false;
    pending->has_handle = false;
    pending->status = CDDP_OK;
    return pending;
}

void cddpi_pending_release(struct cddpi_group_device *dev, struct cddpi_pending *pending)
{
    pthread_mutex_lock(&dev->mutex);
    pending->has_handle = false;
    if (!pending->under_way) { /* otherwise the watchdog puts it into the free list later */
        pending->next = dev->free;
        dev->free = pending;
    }
    pthread_mutex_unlock(&dev->mutex);
}

void cddpi_pending_begin(struct cddpi_group_device *dev, struct cddpi_pending *pending)
{
    pthread_mutex_lock(&dev->mutex);
    dev->starting = pending;
    if (pending != NULL && dev->idle) {
        pthread_cond_signal(&dev->wake);
    }
    pthread_mutex_unlock(&dev->mutex);
}

void cddpi_pending_add(struct cddpi_group_device *dev, struct cddpi_pending *pending)
{
    cddpi_recorder_begin(&dev->group->recorder, &pending->op, true);
    pthread_mutex_lock(&dev->mutex);
    if (atomic_load_explicit(&dev->failed, memory_order_relaxed)) {
        pending->status = (cddp_status)dev->failure.status; /* the failure came in the meantime */
        cddpi_pending_end(dev, pending);
        pthread_mutex_unlock(&dev->mutex);
        return;
    }
    pending->under_way = true;
    pending->next = NULL;
    if (dev->first == NULL) {
        dev->first = pending;
    } else {
        dev->last->next = pending;
    }
    dev->last = pending;
    if (dev->idle) {
        pthread_cond_signal(&dev->wake);
    }
    pthread_mutex_unlock(&dev->mutex);
}

/* Once `failed` is set, the failure does not change. */
cddp_status cddpi_group_device_failed(const struct cddpi_group_device *dev)
{
    return cddpi_fail_again((cddp_status)dev->failure.status, &dev->failure);
}

/* When something fails, even elsewhere, log what is wrong with this rank's own device: a card that
 * hangs, or lost its link, shows at other ranks first. */
static void tell_faults(const struct cddpi_group_device *dev)
{
    const struct cddpi_device *device = dev->device;
    char faults[800];

    device->ops->faults(device, faults, sizeof faults);
    if (faults[0] != '\0') {
        cddpi_log(CDDPI_LOG_WARN, "rank %d: %s:%d (%s): %s", dev->group->rank, device->ops->name,
                  device->index, device->unique, faults);
    }
}

cddp_status cddpi_group_device_fail(struct cddpi_group_device *dev, cddp_status status)
{
    bool was_first;

    pthread_mutex_lock(&dev->mutex);
    was_first = !atomic_load_explicit(&dev->failed, memory_order_relaxed);
    if (was_first) {
        status = cddpi_group_fail_all(dev->group, status);
        (void)cddpi_fail_again(status, cddpi_last_failure());
        cddpi_error_fatal();
        dev->failure = *cddpi_last_failure();
        while (dev->first != NULL) {
            struct cddpi_pending *pending = dev->first;

            dev->first = pending->next;
            pending->status = status;
            cddpi_pending_end(dev, pending);
            status = CDDP_ERR_BROKEN; /* for all operations except the first */
        }
        while (dev->messages != NULL) {
            struct cddpi_pending *pending = dev->messages;

            dev->messages = pending->next;
            pending->status = (cddp_status)dev->failure.status;
            cddpi_pending_end(dev, pending);
        }
        atomic_store_explicit(&dev->failed, true, memory_order_release);
    }
    pthread_mutex_unlock(&dev->mutex);
    if (was_first) {
        cddpi_dump_failure(dev->group, &dev->failure);
        cddpi_remote_abort(dev, &dev->failure);
        /* without this rank's name, since transports add it */
        dev->transport->ops->abort(dev->transport, dev->failure.rank == dev->group->rank
                                                       ? dev->failure.text + dev->failure.unnamed
                                                       : dev->failure.text);
        tell_faults(dev); /* all others know; an answer may take seconds */
    }
    return cddpi_group_device_failed(dev);
}

/* The backend reports a group that this rank ended as closed. But if the watchdog ended it, the
 * caller has not got the reason yet. */
cddp_status cddpi_group_device_reason(cddp_group *group, cddp_status status)
{
    struct cddpi_group_device *dev = group->device;

    if (!cddpi_group_has_device(group) || status != CDDP_ERR_BROKEN) {
        return status;
    }
    /* the watchdog aborts the backend and sets `failure` under this mutex */
    pthread_mutex_lock(&dev->mutex);
    if (atomic_load_explicit(&dev->failed, memory_order_relaxed)) {
        status = cddpi_group_device_failed(dev);
    }
    pthread_mutex_unlock(&dev->mutex);
    return status;
}

/* It does not matter whether the queue has seen the group end: the handle of its operation may not
 * have been queried yet. */
cddp_status cddpi_group_device_tell(struct cddpi_group_device *dev, cddp_status status,
                                    const struct cddpi_failure *failure)
{
    bool is_news = !atomic_exchange(&dev->reported, true);

    if (is_news && status == CDDP_ERR_BROKEN && failure->status != CDDP_OK) {
        status = (cddp_status)failure->status;
    }
    return cddpi_fail_again(status, failure);
}

cddp_status cddpi_group_device_status(struct cddpi_group_device *dev)
{
    cddp_group *group = dev->group;

    if (!atomic_load_explicit(&dev->failed, memory_order_acquire)) {
        cddp_status status = group->backend->ops->broken(group->backend);

        if (status == CDDP_OK) {
            return CDDP_OK;
        }
        (void)cddpi_group_device_fail(dev, status);
    }
    return cddpi_group_device_tell(dev, CDDP_ERR_BROKEN, &dev->failure);
}

cddp_status cddpi_group_device_fail_call(struct cddpi_group_device *dev, cddp_status status)
{
    atomic_store(&dev->reported, true);
    return cddpi_group_device_fail(dev, status);
}

cddp_status cddpi_fail_titled(cddp_status status, const char *title)
{
    (void)cddpi_fail_prefix(status, "%s", title);
    cddpi_error_during(title);
    return status;
}

cddp_status cddpi_pending_fail(struct cddpi_group_device *dev, const struct cddpi_pending *pending,
                               cddp_status status)
{
    char title[200];

    if (dev->capturing) {
        return status;
    }
    cddpi_pending_title(pending, title, sizeof title);
    return cddpi_group_device_fail_call(dev, cddpi_fail_titled(status, title));
}

void cddpi_group_device_add_captured(struct cddpi_group_device *dev,
                                     const struct cddpi_group_op *op)
{
    dev->capture_hash = cddpi_hash_add(dev->capture_hash, (uint64_t)op->kind);
    dev->capture_hash = cddpi_hash_add(dev->capture_hash,
                                       (uint64_t)op->type * 16 + (uint64_t)op->op);
    dev->capture_hash = cddpi_hash_add(dev->capture_hash, (uint64_t)op->root * 2 + op->weighted);
    dev->capture_hash = cddpi_hash_add(dev->capture_hash, op->count);
}
