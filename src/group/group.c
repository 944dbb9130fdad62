/* group.c - a group's life: building, leaving, aborting, its memory and its work handles. */
#include "group/group.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "group/device.h"

#include <string.h>

cddp_status cddpi_group_build(const struct cddpi_seat *seat, const struct cddpi_backend_ops *ops,
                              struct cddpi_backend *backend, int cores, int own_cores,
                              cddp_group **out)
{
    cddp_group *group = cddpi_zalloc(sizeof *group);
    cddp_status status;

    if (group == NULL) {
        ops->close(backend);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "group: no memory for %zu bytes", sizeof *group);
    }
    group->rank = group->local_rank = seat->rank;
    group->world_size = group->local_world_size = seat->world_size;
    group->timeout_ms = seat->timeout_ms;
    group->ops = ops;
    group->backend = backend;
    status = cddpi_queue_init(group, cores, own_cores);
    if (status != CDDP_OK) {
        cddp_group_destroy(group);
        return status;
    }
    *out = group;
    return CDDP_OK;
}

void cddp_group_destroy(cddp_group *group)
{
    if (group == NULL) {
        return;
    }
    if (group->device != NULL) {
        cddpi_device_leave(group);
    }
    cddpi_queue_fini(group);
    group->ops->close(group->backend);
    for (struct cddp_work *work = group->newest; work != NULL; work = work->older) {
        work->group = NULL; /* its owner will destroy it */
    }
    while (group->free_works != NULL) {
        struct cddp_work *next = group->free_works->next;

        cddpi_free(group->free_works);
        group->free_works = next;
    }
    cddpi_free(group->messages);
    cddpi_free(group);
}

int cddp_group_rank(const cddp_group *group)
{
    return group->rank;
}

int cddp_group_world_size(const cddp_group *group)
{
    return group->world_size;
}

int cddp_group_local_rank(const cddp_group *group)
{
    return group->local_rank;
}

int cddp_group_local_world_size(const cddp_group *group)
{
    return group->local_world_size;
}

uint32_t cddp_group_generation(const cddp_group *group)
{
    return group->generation;
}

uint32_t cddp_group_timeout_ms(const cddp_group *group)
{
    return group->timeout_ms;
}

const char *cddp_group_backend(const cddp_group *group)
{
    return group->device != NULL ? cddpi_device_plane_name(group) : group->ops->name;
}

int cddp_group_device(const cddp_group *group)
{
    const struct cddpi_device *device = cddpi_group_on_device(group);

    return device != NULL ? device->index : -1;
}

void *cddp_group_stream(const cddp_group *group)
{
    struct cddpi_device *device = cddpi_group_on_device(group);

    return device != NULL && device->ops->compute_stream != NULL
               ? device->ops->compute_stream(device)
               : NULL;
}

cddp_status cddp_group_set_stream(cddp_group *group, void *stream)
{
    struct cddpi_device *device;

    if (group == NULL || stream == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "set_stream: %s is NULL%s",
                          group == NULL ? "the group" : "the stream",
                          group == NULL ? "" : " (the default stream is cudaStreamLegacy)");
    }
    device = cddpi_group_on_device(group);
    if (device == NULL || device->ops->adopt == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "set_stream: rank %d's group is on the processor, which has no streams: "
                          "ask for options.device = \"cuda\"",
                          group->rank);
    }
    return device->ops->adopt(device, stream);
}

void cddp_group_abort(cddp_group *group, const char *reason)
{
    group->ops->abort(group->backend, CDDP_ERR_PEER, reason != NULL ? reason : "aborted");
}

cddp_status cddp_group_alloc(cddp_group *group, size_t bytes, void **out)
{
    if (group != NULL && out != NULL && bytes <= SIZE_MAX / 4 && group->device != NULL) {
        return cddpi_device_memory(group, bytes, out);
    }
    return cddp_group_alloc_host(group, bytes, out);
}

cddp_status cddp_group_alloc_host(cddp_group *group, size_t bytes, void **out)
{
    void *memory = NULL;
    struct cddpi_group_op op = {
        .kind = CDDPI_ALLOC, .type = CDDP_U8, .count = bytes, .out = &memory};
    cddp_status status;

    if (group == NULL || out == NULL || bytes > SIZE_MAX / 4) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "group_alloc: no group, no out, or %zu bytes", bytes);
    }
    status = cddpi_group_run(group, &op, NULL);
    if (status == CDDP_OK) {
        *out = memory;
    }
    return status;
}

bool cddpi_group_has_thread(const cddp_group *group)
{
    return group->queue.threaded;
}

bool cddpi_group_peers(cddp_group *group, const void *memory, size_t bytes, const void **out)
{
    return group->ops->peers != NULL && group->ops->peers(group->backend, memory, bytes, out);
}

void cddp_group_free(cddp_group *group, void *memory)
{
    if (memory != NULL && (group->device == NULL || !cddpi_device_free(group, memory))) {
        group->ops->free_memory(group->backend, memory);
    }
}

static cddp_status result(const struct cddp_work *work)
{
    if (work->status == CDDP_OK) {
        return CDDP_OK;
    }
    if (work->group == NULL) {
        return work->status == CDDP_ERR_CLOSED
                   ? cddpi_fail(work->status, "the group was destroyed before this work was done")
                   : cddpi_fail(work->status, "work of a group that is gone: %s",
                                cddp_status_text(work->status));
    }
    return cddpi_fail(work->status, "%s", work->group->broken_text);
}

cddp_status cddp_work_test(cddp_work *work, bool *out_done)
{
    if (work->flight != NULL) {
        return cddpi_device_test(work, out_done);
    }
    if (work->group != NULL && atomic_load_explicit(&work->done, memory_order_acquire) != 1) {
        cddpi_group_poll(work->group);
    }
    if (atomic_load_explicit(&work->done, memory_order_acquire) != 1) {
        *out_done = false;
        return CDDP_OK;
    }
    *out_done = true;
    return result(work);
}

cddp_status cddp_work_wait(cddp_work *work, uint32_t timeout_ms)
{
    int64_t deadline;

    if (work->flight != NULL) {
        return cddpi_device_wait(work, timeout_ms);
    }
    deadline = timeout_ms != 0 ? cddpi_deadline_ns(timeout_ms) : 0;
    if (work->group != NULL && !cddpi_queue_wait(work->group, work, deadline)) {
        return cddpi_fail(CDDP_ERR_TIMEOUT, "rank %d: the work was not done within %u ms",
                          work->group->rank, timeout_ms);
    }
    return result(work);
}

void cddp_work_destroy(cddp_work *work)
{
    cddp_group *group;

    if (work == NULL) {
        return;
    }
    group = work->group;
    if (group == NULL) {
        cddpi_free(work);
        return;
    }
    if (work->flight != NULL) {
        cddpi_device_drop(work);
    } else {
        (void)cddpi_queue_wait(group, work, 0);
    }
    if (work->newer != NULL) {
        work->newer->older = work->older;
    } else {
        group->newest = work->older;
    }
    if (work->older != NULL) {
        work->older->newer = work->newer;
    }
    work->next = group->free_works;
    group->free_works = work;
}
