/* device.c - operations of a group on its device: which memory goes there, the order between
 * streams, work handles, memory. */
#include "group/device.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "group/agree.h"

#include <stdio.h>
#include <string.h>

struct cddpi_device *cddpi_group_on_device(const cddp_group *group)
{
    return group->device != NULL ? group->device->device : NULL;
}

void cddpi_group_label(cddp_group *group, const char *label)
{
    if (group->device != NULL) {
        snprintf(group->device->label, sizeof group->device->label, "%s",
                 label != NULL ? label : "");
    }
}

cddp_status cddpi_group_healthy(cddp_group *group)
{
    return cddpi_watch_status(group->device);
}

cddp_status cddpi_group_verify(cddp_group *group)
{
    cddpi_watch_look(group->device);
    return cddpi_watch_status(group->device);
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

/* Where the memory of @p op is. Without elements it is nowhere, which is the same on all ranks. */
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
        return cddpi_fail(CDDP_ERR_ARGUMENT, "rank %d: %s: %s is memory of device %s %d, %s is not",
                          group->rank, cddpi_kind_name(op->kind), in_there ? "in" : "out",
                          device->ops->name, device->index, in_there ? "out" : "in");
    }
    *out_on_device = in_there || out_there;
    return CDDP_OK;
}

struct cddpi_flight *cddpi_flight_take(struct cddpi_group_device *side,
                                       const struct cddpi_group_op *op)
{
    struct cddpi_flight *flight;

    pthread_mutex_lock(&side->mutex);
    flight = side->free;
    if (flight != NULL) {
        side->free = flight->next;
    }
    pthread_mutex_unlock(&side->mutex);
    if (flight == NULL) {
        flight = cddpi_zalloc(sizeof *flight);
        if (flight == NULL) {
            (void)cddpi_fail(CDDP_ERR_NO_MEMORY, "rank %d: no memory for an operation",
                             side->group->rank);
            return NULL;
        }
        if (side->device->ops->event_create(side->device, false, &flight->done) != CDDP_OK) {
            cddpi_free(flight);
            return NULL;
        }
    }
    flight->op = *op;
    flight->op.start_ns = cddpi_now_ns();
    flight->op.deadline_ns = flight->op.start_ns +
                             (int64_t)side->group->timeout_ms * (int64_t)1000000;
    memcpy(flight->label, side->label, sizeof flight->label);
    flight->recorded = side->recording;
    atomic_store_explicit(&flight->begun, true, memory_order_relaxed);
    flight->under_way = false;
    flight->held = false;
    flight->status = CDDP_OK;
    return flight;
}

void cddpi_flight_put(struct cddpi_group_device *side, struct cddpi_flight *flight)
{
    pthread_mutex_lock(&side->mutex);
    flight->next = side->free;
    side->free = flight;
    pthread_mutex_unlock(&side->mutex);
}

/* Behind what the compute stream holds now. */
static cddp_status enqueue(struct cddpi_group_device *side, struct cddpi_flight *flight)
{
    struct cddpi_device *device = side->device;
    cddp_status status = device->ops->record(device, side->ready, CDDPI_STREAM_COMPUTE);

    if (status == CDDP_OK) {
        status = device->ops->order(device, CDDPI_STREAM_COMM, side->ready);
    }
    if (status == CDDP_OK) {
        status = side->ops->enqueue(side->plane, &flight->op);
    }
    if (status == CDDP_OK) {
        status = device->ops->record(device, flight->done, CDDPI_STREAM_COMM);
    }
    return status;
}

static bool is_message(const struct cddpi_group_op *op)
{
    return op->kind == CDDPI_SEND || op->kind == CDDPI_RECV;
}

cddp_status cddpi_flight_follow(struct cddpi_group_device *side, struct cddpi_flight *flight)
{
    cddp_status status = cddpi_message_await(side, flight, 0);

    if (status == CDDP_OK) {
        status = side->device->ops->order(side->device, CDDPI_STREAM_COMPUTE, flight->done);
        status = status == CDDP_OK ? CDDP_OK : cddpi_flight_fail(side, flight, status);
    }
    return status;
}

/* Whoever only records has nobody wait. */
static cddp_status fail(struct cddpi_group_device *side, cddp_status status)
{
    return side->recording ? status : cddpi_watch_fail(side, status);
}

cddp_status cddpi_flight_fail(struct cddpi_group_device *side, const struct cddpi_flight *flight,
                              cddp_status status)
{
    char title[200];

    if (side->recording) {
        return status;
    }
    cddpi_watch_title(flight, title, sizeof title);
    side->told = true;
    return cddpi_watch_fail(side, cddpi_fail_prefix(status, "%s", title));
}

/* Tell the others what is called here. What is recorded is told when it is replayed. */
static cddp_status call(struct cddpi_group_device *side, struct cddpi_flight *flight)
{
    if (flight->recorded) {
        cddpi_device_note_recorded(side, &flight->op);
        return CDDP_OK;
    }
    return cddpi_watch_call(side, flight);
}

static cddp_status run(struct cddpi_group_device *side, const struct cddpi_group_op *op,
                       cddp_work **out)
{
    struct cddpi_flight *flight = cddpi_flight_take(side, op);
    struct cddp_work start = {.op = *op, .group = side->group, .flight = flight};
    struct cddp_work *work = NULL;
    cddp_status status;

    if (flight == NULL) {
        return fail(side, CDDP_ERR_NO_MEMORY);
    }
    if (out != NULL) {
        work = cddpi_work_take(side->group, &start);
        if (work == NULL) {
            cddpi_flight_put(side, flight);
            return fail(side, CDDP_ERR_NO_MEMORY);
        }
        flight->held = true;
    }
    status = call(side, flight);
    if (status == CDDP_OK) {
        cddpi_watch_begin(side, flight);
        status = enqueue(side, flight);
        cddpi_watch_begin(side, NULL);
        if (status != CDDP_OK && status != CDDP_ERR_UNAVAILABLE) {
            status = cddpi_flight_fail(side, flight, status);
        }
        if (status == CDDP_OK && out == NULL) {
            status = cddpi_flight_follow(side, flight);
        }
    }
    side->told = side->told ||
                 (status != CDDP_OK && status != CDDP_ERR_UNAVAILABLE && !side->recording);
    if (status == CDDP_OK && !flight->recorded) {
        cddpi_watch_add(side, flight);
    } else if (out == NULL || status != CDDP_OK) {
        flight->held = false;
        cddpi_flight_put(side, flight);
    }
    if (status == CDDP_OK && out != NULL) {
        *out = work;
    } else if (work != NULL) {
        work->flight = NULL;
        atomic_store_explicit(&work->done, 1, memory_order_relaxed);
        cddp_work_destroy(work);
    }
    return status;
}

cddp_status cddpi_device_start(cddp_group *group, const struct cddpi_group_op *op, cddp_work **out)
{
    bool on_device = false;
    cddp_status status = cddpi_watch_status(group->device);

    if (status == CDDP_OK) {
        status = find_memory(group, op, &on_device);
    }
    if (status != CDDP_OK) {
        return status;
    }
    if (!on_device) {
        return cddpi_group_run(group, op, out);
    }
    return is_message(op) ? cddpi_message_start(group->device, op, out)
                          : run(group->device, op, out);
}

/* What is known of it now. */
static cddp_status state_of(const cddp_work *work, bool *out_over)
{
    struct cddpi_group_device *side = work->group->device;
    cddp_status status;

    pthread_mutex_lock(&side->mutex);
    *out_over = !work->flight->under_way;
    status = work->flight->status;
    pthread_mutex_unlock(&side->mutex);
    if (status != CDDP_OK) {
        side->told = true;
        return cddpi_fail(status, "%s", side->failure_text);
    }
    return CDDP_OK;
}

cddp_status cddpi_device_test(cddp_work *work, bool *out_done)
{
    struct cddpi_device *device = work->group->device->device;
    bool over;
    cddp_status status = state_of(work, &over);

    if (over) {
        *out_done = true;
        return status;
    }
    if (!atomic_load_explicit(&work->flight->begun, memory_order_acquire)) {
        cddpi_watch_look(work->group->device); /* which may move it on */
        status = state_of(work, &over);
        *out_done = over;
        return status;
    }
    status = device->ops->query(device, work->flight->done, &over);
    if (status != CDDP_OK) {
        *out_done = true;
        return cddpi_flight_fail(work->group->device, work->flight, status);
    }
    if (over) { /* done, or ended by a failure */
        cddpi_watch_look(work->group->device);
        status = state_of(work, &over);
    }
    *out_done = over;
    return status;
}

cddp_status cddpi_device_wait(cddp_work *work, uint32_t timeout_ms)
{
    struct cddpi_group_device *side = work->group->device;
    bool over;
    cddp_status status = state_of(work, &over);

    if (status == CDDP_OK && timeout_ms != 0 && !over) {
        status = cddpi_message_await(side, work->flight, timeout_ms);
        if (status != CDDP_OK) {
            return status;
        }
        status = side->device->ops->wait(side->device, work->flight->done, timeout_ms);
        if (status == CDDP_ERR_TIMEOUT) {
            return cddpi_fail(CDDP_ERR_TIMEOUT, "rank %d: the work was not done within %u ms",
                              work->group->rank, timeout_ms);
        }
        if (status != CDDP_OK) {
            return cddpi_flight_fail(side, work->flight, status);
        }
        cddpi_watch_look(side); /* it may have been ended by a failure */
        status = state_of(work, &over);
    }
    if (status != CDDP_OK) {
        return status;
    }
    return cddpi_flight_follow(side, work->flight);
}

void cddpi_device_drop(cddp_work *work)
{
    struct cddpi_group_device *side = work->group->device;
    struct cddpi_flight *flight = work->flight;

    pthread_mutex_lock(&side->mutex);
    flight->held = false;
    if (!flight->under_way) { /* else the watchdog puts it there */
        flight->next = side->free;
        side->free = flight;
    }
    pthread_mutex_unlock(&side->mutex);
    work->flight = NULL;
}

/* All streams are through, and peers with them: an operation ends once nobody needs its memory. */
static cddp_status settle(struct cddpi_group_device *side)
{
    cddpi_message_settle(side);
    return side->device->ops->finish(side->device, side->group->timeout_ms);
}

cddp_status cddpi_device_memory(cddp_group *group, size_t bytes, void **out)
{
    struct cddpi_group_device *side = group->device;
    struct cddpi_device_block *block = cddpi_zalloc(sizeof *block);
    void *all = NULL;
    uint64_t wanted = bytes;
    cddp_status status = cddpi_watch_status(side);

    if (status == CDDP_OK) {
        status = cddpi_share_records(group, &wanted, sizeof wanted, &all);
    }
    for (int r = 0; status == CDDP_OK && r < group->world_size; r++) {
        uint64_t theirs = ((const uint64_t *)all)[r];

        if (theirs != ((const uint64_t *)all)[0]) {
            status = cddpi_fail(CDDP_ERR_MISMATCH,
                                "ranks disagree at group_alloc: rank 0: %llu bytes; rank %d: %llu",
                                (unsigned long long)((const uint64_t *)all)[0], r,
                                (unsigned long long)theirs);
            status = cddpi_watch_fail(side, status);
        }
    }
    cddpi_free(all);
    if (status != CDDP_OK) {
        cddpi_free(block);
        return status;
    }
    if (block == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "group_alloc: no memory");
        cddp_group_abort(group, cddp_last_error()); /* the others are about to call the plane */
        return status;
    }
    status = side->ops->alloc(side->plane, bytes > 0 ? bytes : 1, &block->memory);
    if (status == CDDP_OK) {
        status = side->device->ops->clear(side->device, CDDPI_STREAM_COMPUTE, block->memory, bytes);
    }
    status = cddpi_agree(group, status);
    if (status != CDDP_OK) {
        if (block->memory != NULL) {
            side->ops->free_memory(side->plane, block->memory);
        }
        cddpi_free(block);
        return cddpi_fail_prefix(status, "group_alloc of %zu bytes", bytes);
    }
    block->bytes = bytes;
    block->next = side->blocks;
    side->blocks = block;
    *out = block->memory;
    return CDDP_OK;
}

bool cddpi_device_free(cddp_group *group, void *memory)
{
    struct cddpi_group_device *side = group->device;

    for (struct cddpi_device_block **link = &side->blocks; *link != NULL; link = &(*link)->next) {
        struct cddpi_device_block *block = *link;

        if (block->memory == memory) {
            (void)settle(side); /* if the device is lost, so is its memory */
            *link = block->next;
            side->ops->free_memory(side->plane, memory);
            cddpi_free(block);
            return true;
        }
    }
    return false;
}

void cddpi_device_free_all(struct cddpi_group_device *side)
{
    while (side->blocks != NULL) {
        struct cddpi_device_block *next = side->blocks->next;

        side->ops->free_memory(side->plane, side->blocks->memory);
        cddpi_free(side->blocks);
        side->blocks = next;
    }
}
