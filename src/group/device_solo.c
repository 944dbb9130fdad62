/* device_solo.c - the plane of a group of one rank: copies within its device. */
#include "base/alloc.h"
#include "base/error.h"
#include "group/device.h"

struct cddpi_plane {
    struct cddpi_device *device;
};

static cddp_status open_solo(const struct cddpi_plane_seat *seat, struct cddpi_plane **out)
{
    struct cddpi_plane *plane = cddpi_zalloc(sizeof *plane);

    if (plane == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "solo: no memory for a group");
    }
    plane->device = seat->device;
    *out = plane;
    return CDDP_OK;
}

static void close_solo(struct cddpi_plane *plane)
{
    cddpi_free(plane);
}

static cddp_status enqueue(struct cddpi_plane *plane, const struct cddpi_group_op *op)
{
    const struct cddpi_device_ops *ops = plane->device->ops;
    size_t bytes = op->count * cddp_type_bytes(op->type);

    if (op->weighted && op->weight == 0) {
        return ops->clear(plane->device, CDDPI_STREAM_COMM, op->out, bytes);
    }
    if (op->out == op->in) {
        return CDDP_OK;
    }
    return ops->copy(plane->device, CDDPI_STREAM_COMM, op->out, op->in, bytes);
}

static cddp_status poll_solo(struct cddpi_plane *plane)
{
    (void)plane;
    return CDDP_OK; /* the device says by itself what is wrong with it */
}

static void abort_solo(struct cddpi_plane *plane, const char *reason)
{
    (void)plane; /* nothing here waits for anybody */
    (void)reason;
}

static cddp_status alloc(struct cddpi_plane *plane, size_t bytes, void **out)
{
    return plane->device->ops->alloc(plane->device, bytes, "group_alloc", out);
}

static void free_memory(struct cddpi_plane *plane, void *memory)
{
    plane->device->ops->release(plane->device, memory);
}

static bool records(const struct cddpi_plane *plane)
{
    (void)plane;
    return true;
}

const struct cddpi_plane_ops cddpi_plane_solo_ops = {.name = "solo",
                                                     .open = open_solo,
                                                     .close = close_solo,
                                                     .enqueue = enqueue,
                                                     .poll = poll_solo,
                                                     .abort = abort_solo,
                                                     .alloc = alloc,
                                                     .free_memory = free_memory,
                                                     .records = records};
