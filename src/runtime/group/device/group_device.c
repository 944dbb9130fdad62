/* group_device.c - owns a group's operations on its device: which memory is on it, the order
 * between streams, work handles; and captured graphs with operations of the group: how ranks
 * compare them, and their replays, which are operations of the group, too. */
#include "group/device/group_device.h"

#include "base/clock.h"
#include "base/error.h"
#include "base/hash.h"
#include "group/engine/handles.h"
#include "group/join/group_agree.h"
#include "group/transports.h"

#include <stdio.h>

enum { WAIT_SLICE_MS = 50 };

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

/* A failure ends the group, except during a capture: no rank waits for work that is only
 * captured. */
static cddp_status fail(struct cddpi_group_device *dev, cddp_status status)
{
    return dev->capturing ? status : cddpi_group_device_fail_call(dev, status);
}

/* Publish the call to the other ranks. Captured operations are published at each replay. */
static cddp_status publish_call(struct cddpi_group_device *dev, struct cddpi_pending *pending)
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
            cddpi_pending_release(dev, pending);
            return fail(dev, CDDP_ERR_NO_MEMORY);
        }
        pending->has_handle = true;
    }
    status = publish_call(dev, pending);
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
        cddpi_pending_release(dev, pending);
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
    if ((op->kind == CDDPI_ALL_REDUCE || op->kind == CDDPI_REDUCE ||
         op->kind == CDDPI_REDUCE_SCATTER) &&
        (op->type == CDDP_I8 || op->type == CDDP_BOOL || op->op > CDDP_OP_PROD)) {
        return cddpi_fail_rank(CDDP_ERR_UNAVAILABLE, group->rank,
                               "%s: a device does not reduce %s by %s: use u8, i32 or CPU memory",
                               cddpi_kind_name(op->kind), cddp_type_name(op->type),
                               cddp_op_name(op->op));
    }
    return op->kind == CDDPI_SEND || op->kind == CDDPI_RECV
               ? cddpi_device_p2p_start(group->device, op, out)
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
        return state_of(work, out_done);
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

cddp_status cddpi_group_device_order(cddp_work *work)
{
    bool over;

    CDDPI_TRY(state_of(work, &over));
    return cddpi_pending_order(work->group->device, work->pending);
}

cddp_status cddpi_group_device_wait(cddp_work *work, int64_t deadline_ns, bool *out_done)
{
    struct cddpi_group_device *dev = work->group->device;
    bool begun;
    bool over;

    *out_done = true; /* failed work is done, too */
    CDDPI_TRY(cddpi_device_p2p_await(dev, work->pending, deadline_ns, &begun));
    for (;;) {
        cddp_status status = state_of(work, &over);
        int64_t left_ms = deadline_ns != 0 ? cddpi_left_ms(deadline_ns) : WAIT_SLICE_MS;

        if (over || status != CDDP_OK) {
            return status;
        }
        if (!begun || left_ms == 0) {
            *out_done = false;
            return CDDP_OK;
        }
        /* in slices, since the watchdog may end the operation without the device reaching it */
        status = dev->device->ops->wait(
            dev->device, work->pending->done,
            (uint32_t)(left_ms < WAIT_SLICE_MS ? left_ms : WAIT_SLICE_MS));
        if (status == CDDP_OK) {
            cddpi_watchdog_check(dev); /* a failure may have aborted the work */
            return state_of(work, &over);
        }
        if (status != CDDP_ERR_TIMEOUT) {
            return cddpi_pending_fail(dev, work->pending, status);
        }
    }
}

void cddpi_group_device_drop(cddp_work *work)
{
    cddpi_pending_release(work->group->device, work->pending);
    work->pending = NULL;
}

/* --- captures --- */

bool cddpi_group_is_capturing(const cddp_group *group)
{
    return cddpi_group_has_device(group) && group->device->capturing;
}

cddp_status cddpi_group_can_capture(const cddp_group *group)
{
    const struct cddpi_group_device *dev = group->device;

    if (!cddpi_group_has_device(group)) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "the CPU has no CUDA graphs");
    }
    if (!dev->transport->ops->can_capture(dev->transport)) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "operations of backend %s cannot be captured",
                          dev->row->name);
    }
    return CDDP_OK;
}

cddp_status cddpi_group_capture_begin(cddp_group *group)
{
    struct cddpi_group_device *dev = group->device;

    dev->capturing = false;
    CDDPI_TRY(cddpi_group_device_status(dev));
    CDDPI_TRY(cddpi_group_can_capture(group));
    CDDPI_TRY(dev->device->ops->capture_begin(dev->device));
    dev->capturing = true;
    dev->capture_hash = cddpi_hash_start;
    return CDDP_OK;
}

cddp_status cddpi_group_capture_end(cddp_group *group, struct cddpi_group_capture *out)
{
    struct cddpi_group_device *dev = group->device;

    dev->capturing = false;
    out->calls = dev->capture_hash;
    return dev->device->ops->capture_end(dev->device, &out->work);
}

cddp_status cddpi_group_capture_failed(cddp_group *group)
{
    struct cddpi_group_device *dev = group->device;

    CDDPI_TRY(cddpi_group_device_status(dev));
    return dev->transport->ops->recover != NULL
               ? cddpi_agree(group, dev->transport->ops->recover(dev->transport))
               : CDDP_OK;
}

cddp_status cddpi_group_replay(cddp_group *group, const struct cddpi_group_capture *captured)
{
    struct cddpi_group_device *dev = group->device;
    struct cddpi_group_op op = {.kind = CDDPI_REPLAY, .type = CDDP_U8, .count = captured->calls};
    struct cddpi_pending *pending;
    cddp_status status;

    CDDPI_TRY(cddpi_group_device_status(dev));
    pending = cddpi_pending_take(dev, &op);
    if (pending == NULL) {
        return cddpi_group_device_fail_call(dev, CDDP_ERR_NO_MEMORY);
    }
    status = cddpi_calls_publish(dev, pending);
    if (status == CDDP_OK) {
        status = dev->device->ops->replay(dev->device, captured->work);
        if (status == CDDP_OK) {
            status = dev->device->ops->record(dev->device, pending->done, CDDPI_STREAM_COMPUTE);
        }
        if (status != CDDP_OK) {
            status = cddpi_pending_fail(dev, pending, status);
        }
    }
    if (status == CDDP_OK) {
        cddpi_pending_add(dev, pending);
    } else {
        atomic_store(&dev->reported, true);
        cddpi_pending_release(dev, pending);
    }
    return status;
}
