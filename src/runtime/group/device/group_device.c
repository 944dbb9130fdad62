/* group_device.c - owns a group's operations on its device: which memory is on it, the order
 * between streams, work handles. */
#include "group/device/group_device.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "group/engine/handles.h"
#include "group/join/group_agree.h"

#include <stdio.h>
#include <string.h>

struct cddpi_device *cddpi_group_on_device(const cddp_group *group)
{
    return cddpi_group_has_device(group) ? group->device->device : cddpi_device_cpu();
}

void cddpi_group_label(cddp_group *group, const char *label)
{
    if (cddpi_group_has_device(group)) {
        snprintf(group->device->label, sizeof group->device->label, "%s",
                 label != NULL ? label : "");
    }
}

cddp_status cddpi_group_healthy(cddp_group *group)
{
    return cddpi_group_device_status(group->device);
}

cddp_status cddpi_group_verify(cddp_group *group)
{
    cddpi_watchdog_check(group->device);
    return cddpi_group_device_status(group->device);
}

static bool uses_in(const cddp_group *group, const struct cddpi_group_op *op)
{
    return op->kind != CDDPI_RECV && (op->kind != CDDPI_SCATTER || op->root == group->rank);
}

static bool uses_out(const cddp_group *group, const struct cddpi_group_op *op)
{
    return op->kind != CDDPI_SEND &&
           ((op->kind != CDDPI_REDUCE && op->kind != CDDPI_GATHER) || op->root == group->rank);
}

/* Find out whether the memory of @p op is on the device. Without elements it does not matter; the
 * count is the same on all ranks. */
static cddp_status find_memory(const cddp_group *group, const struct cddpi_group_op *op,
                               bool *out_on_device)
{
    const struct cddpi_device *device = group->device->device;
    bool in_there;
    bool out_there;

    if (op->count == 0 || op->kind == CDDPI_BARRIER) {
        *out_on_device = false;
        return CDDP_OK;
    }
    in_there = uses_in(group, op) && device->ops->owns(device, op->in);
    out_there = op->out == op->in ? in_there
                                  : uses_out(group, op) && device->ops->owns(device, op->out);
    if (uses_in(group, op) && uses_out(group, op) && in_there != out_there) {
        return cddpi_fail_rank(CDDP_ERR_ARGUMENT, group->rank,
                               "%s: %s is memory of device %s %d, %s is not",
                               cddpi_kind_name(op->kind), in_there ? "in" : "out",
                               device->ops->name, device->index, in_there ? "out" : "in");
    }
    *out_on_device = in_there || out_there;
    return CDDP_OK;
}

/* Enqueue the operation into the communication stream, after the work that is now in the compute
 * stream. */
static cddp_status enqueue_pending(struct cddpi_group_device *dev, struct cddpi_pending *pending)
{
    struct cddpi_device *device = dev->device;

    CDDPI_TRY(device->ops->record(device, dev->ready, CDDPI_STREAM_COMPUTE));
    CDDPI_TRY(device->ops->order(device, CDDPI_STREAM_COMM, dev->ready));
    CDDPI_TRY(dev->transport->ops->enqueue(dev->transport, &pending->op));
    return device->ops->record(device, pending->done, CDDPI_STREAM_COMM);
}

static bool is_reduction(const struct cddpi_group_op *op)
{
    return op->kind == CDDPI_ALL_REDUCE || op->kind == CDDPI_REDUCE ||
           op->kind == CDDPI_REDUCE_SCATTER;
}

static bool is_message(const struct cddpi_group_op *op)
{
    return op->kind == CDDPI_SEND || op->kind == CDDPI_RECV;
}

/* A failure ends the group, except during a capture: no rank waits for work that is only
 * captured. */
static cddp_status fail(struct cddpi_group_device *dev, cddp_status status)
{
    return dev->capturing ? status : cddpi_group_device_fail_call(dev, status);
}

/* Publish the call to the other ranks. Captured operations are published at each replay. */
static cddp_status call(struct cddpi_group_device *dev, struct cddpi_pending *pending)
{
    if (pending->captured) {
        cddpi_group_device_add_captured(dev, &pending->op);
        return CDDP_OK;
    }
    return cddpi_calls_publish(dev, pending);
}

static cddp_status run(struct cddpi_group_device *dev, const struct cddpi_group_op *op,
                       cddp_work **out)
{
    struct cddpi_pending *pending = cddpi_pending_take(dev, op);
    struct cddp_work start = {.op = *op, .group = dev->group, .pending = pending};
    struct cddp_work *work = NULL;
    cddp_status status;

    if (pending == NULL) {
        return fail(dev, CDDP_ERR_NO_MEMORY);
    }
    if (out != NULL) {
        work = cddpi_work_take(dev->group, &start);
        if (work == NULL) {
            cddpi_pending_put(dev, pending);
            return fail(dev, CDDP_ERR_NO_MEMORY);
        }
        pending->has_handle = true;
    }
    status = call(dev, pending);
    if (status == CDDP_OK) {
        cddpi_pending_begin(dev, pending);
        status = enqueue_pending(dev, pending);
        cddpi_pending_begin(dev, NULL);
        if (status != CDDP_OK && status != CDDP_ERR_UNAVAILABLE) {
            status = cddpi_pending_fail(dev, pending, status);
        }
        if (status == CDDP_OK && out == NULL) {
            status = cddpi_pending_order(dev, pending);
        }
    }
    if (status != CDDP_OK && status != CDDP_ERR_UNAVAILABLE && !dev->capturing) {
        atomic_store(&dev->reported, true);
    }
    if (status == CDDP_OK && !pending->captured) {
        cddpi_pending_add(dev, pending);
    } else if (out == NULL || status != CDDP_OK) {
        pending->has_handle = false;
        cddpi_pending_put(dev, pending);
    }
    if (status == CDDP_OK && out != NULL) {
        *out = work;
    } else if (work != NULL) {
        cddpi_work_put(work);
    }
    return status;
}

cddp_status cddpi_group_device_start(cddp_group *group, const struct cddpi_group_op *op,
                                     cddp_work **out)
{
    bool on_device = false;

    CDDPI_TRY(cddpi_group_device_status(group->device));
    CDDPI_TRY(find_memory(group, op, &on_device));
    if (!on_device) {
        return cddpi_group_run(group, op, out);
    }
    if (is_reduction(op) &&
        (op->type == CDDP_I8 || op->type == CDDP_BOOL || op->op > CDDP_OP_PROD)) {
        return cddpi_fail_rank(CDDP_ERR_UNAVAILABLE, group->rank,
                               "%s: a device does not reduce %s by %s: let u8 or i32, or memory of "
                               "the processor, hold them",
                               cddpi_kind_name(op->kind), cddp_type_name(op->type),
                               cddp_op_name(op->op));
    }
    return is_message(op) ? cddpi_device_p2p_start(group->device, op, out)
                          : run(group->device, op, out);
}

/* The status of @p work as far as known, and whether it has ended. */
static cddp_status state_of(const cddp_work *work, bool *out_over)
{
    struct cddpi_group_device *dev = work->group->device;
    cddp_status status;

    pthread_mutex_lock(&dev->mutex);
    *out_over = !work->pending->under_way;
    status = work->pending->status;
    pthread_mutex_unlock(&dev->mutex);
    return status == CDDP_OK ? CDDP_OK : cddpi_group_device_tell(dev, status, &dev->failure);
}

cddp_status cddpi_group_device_test(cddp_work *work, bool *out_done)
{
    struct cddpi_device *device = work->group->device->device;
    bool over;
    cddp_status status = state_of(work, &over);

    if (over) {
        *out_done = true;
        return status;
    }
    if (!atomic_load_explicit(&work->pending->begun, memory_order_acquire)) {
        cddpi_watchdog_check(work->group->device); /* it may enqueue more pieces */
        status = state_of(work, &over);
        *out_done = over;
        return status;
    }
    status = device->ops->query(device, work->pending->done, &over);
    if (status != CDDP_OK) {
        *out_done = true;
        return cddpi_pending_fail(work->group->device, work->pending, status);
    }
    if (over) { /* done, or aborted by a failure */
        cddpi_watchdog_check(work->group->device);
        status = state_of(work, &over);
    }
    *out_done = over;
    return status;
}

cddp_status cddpi_group_device_wait(cddp_work *work, uint32_t timeout_ms)
{
    struct cddpi_group_device *dev = work->group->device;
    bool over;
    cddp_status status = state_of(work, &over);

    if (status == CDDP_OK && timeout_ms != 0 && !over) {
        CDDPI_TRY(cddpi_device_p2p_await(dev, work->pending, timeout_ms));
        status = dev->device->ops->wait(dev->device, work->pending->done, timeout_ms);
        if (status == CDDP_ERR_TIMEOUT) {
            return cddpi_fail_rank(CDDP_ERR_TIMEOUT, work->group->rank,
                                   "the work was not done within %u ms", timeout_ms);
        }
        if (status != CDDP_OK) {
            return cddpi_pending_fail(dev, work->pending, status);
        }
        cddpi_watchdog_check(dev); /* a failure may have aborted the work */
        status = state_of(work, &over);
    }
    if (status != CDDP_OK) {
        return status;
    }
    return cddpi_pending_order(dev, work->pending);
}

void cddpi_group_device_drop(cddp_work *work)
{
    struct cddpi_group_device *dev = work->group->device;
    struct cddpi_pending *pending = work->pending;

    pthread_mutex_lock(&dev->mutex);
    pending->has_handle = false;
    if (!pending->under_way) { /* otherwise the watchdog puts it into the free list later */
        pending->next = dev->free;
        dev->free = pending;
    }
    pthread_mutex_unlock(&dev->mutex);
    work->pending = NULL;
}
