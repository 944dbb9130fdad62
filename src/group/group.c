/* group.c - a group's life: building and leaving; its device and its memory. */
#include "group/group.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "group/device/device.h"
#include "group/transports.h"

#include <stdio.h>
#include <string.h>

cddp_status cddpi_group_build(const struct cddpi_open_params *params,
                              const struct cddpi_transport *transport,
                              struct cddpi_backend *backend, cddp_group **out)
{
    cddp_group *group = cddpi_zalloc(sizeof *group);
    int cores = 1;
    int own_cores = 1;
    cddp_status status;

    if (group == NULL) {
        transport->cpu.ops->close(backend);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "group: no memory for %zu bytes", sizeof *group);
    }
    group->rank = group->local_rank = params->rank;
    group->world_size = group->local_world_size = params->world_size;
    group->timeout_ms = params->timeout_ms;
    group->transport = transport;
    group->ops = transport->cpu.ops;
    group->backend = backend;
    if (transport->cpu.cores != NULL) {
        transport->cpu.cores(backend, &cores, &own_cores);
    }
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
    cddpi_user_store_destroy(group->user_store);
    if (cddpi_group_has_device(group)) {
        cddpi_group_device_close(group);
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
    cddpi_free(group->ranks_of_job);
    cddpi_free(group);
}

const char *cddp_group_backend(const cddp_group *group)
{
    return cddpi_group_has_device(group) ? cddpi_group_device_transport_name(group)
                                         : group->transport->name;
}

int cddp_group_device(const cddp_group *group)
{
    return cddpi_group_has_device(group) ? cddpi_group_on_device(group)->index : -1;
}

void *cddp_group_stream(const cddp_group *group)
{
    struct cddpi_device *device = cddpi_group_on_device(group);

    return device->ops->compute_stream(device);
}

cddp_status cddp_group_set_stream(cddp_group *group, void *stream)
{
    struct cddpi_device *device;

    if (group == NULL || stream == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "set_stream: %s is NULL%s",
                          group == NULL ? "the group" : "the stream",
                          group == NULL ? "" : " (the default stream is cudaStreamLegacy)");
    }
    if (!cddpi_group_has_device(group)) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "set_stream: rank %d's group is on the processor, which has no streams: "
                          "ask for options.device = \"cuda\"",
                          group->rank);
    }
    device = cddpi_group_on_device(group);
    return device->ops->adopt(device, stream);
}

cddp_status cddp_group_alloc(cddp_group *group, size_t bytes, void **out)
{
    if (group != NULL && out != NULL && bytes <= SIZE_MAX / 4 && cddpi_group_has_device(group)) {
        return cddpi_group_device_alloc(group, bytes, out);
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
    if (memory != NULL &&
        !(cddpi_group_has_device(group) && cddpi_group_device_free(group, memory))) {
        group->ops->free_memory(group->backend, memory);
    }
}
