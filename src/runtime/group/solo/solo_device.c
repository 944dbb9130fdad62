/* solo_device.c - owns the transport of device memory for a group of one rank: copies within the
 * device. */
#include "base/alloc.h"
#include "base/error.h"
#include "group/transports.h"

struct solo_transport {
    struct cddpi_device_transport base; /* first: see solo_of() */
    struct cddpi_device *device;
};

static inline struct solo_transport *solo_of(struct cddpi_device_transport *base)
{
    return (struct solo_transport *)(void *)base;
}

static void close_solo(struct cddpi_device_transport *base)
{
    struct solo_transport *transport = solo_of(base);

    cddpi_free(transport);
}

static cddp_status enqueue(struct cddpi_device_transport *base, const struct cddpi_group_op *op)
{
    struct solo_transport *transport = solo_of(base);
    const struct cddpi_device_ops *ops = transport->device->ops;
    size_t bytes = op->count * cddp_type_bytes(op->type);

    if (op->weighted && op->weight == 0) {
        return ops->clear(transport->device, CDDPI_STREAM_COMM, op->out, bytes);
    }
    if (op->out == op->in) {
        return CDDP_OK;
    }
    return ops->copy(transport->device, CDDPI_STREAM_COMM, op->out, op->in, bytes);
}

static cddp_status poll_solo(struct cddpi_device_transport *base)
{
    (void)base;
    return CDDP_OK; /* the device's own calls find its failures */
}

static void abort_solo(struct cddpi_device_transport *base, const char *reason)
{
    (void)base; /* no operation here waits for a rank */
    (void)reason;
}

static cddp_status alloc(struct cddpi_device_transport *base, size_t bytes, void **out)
{
    struct solo_transport *transport = solo_of(base);

    return transport->device->ops->alloc(transport->device, bytes, "group_alloc", out);
}

static void free_memory(struct cddpi_device_transport *base, void *memory)
{
    struct solo_transport *transport = solo_of(base);

    transport->device->ops->release(transport->device, memory);
}

static bool can_capture(const struct cddpi_device_transport *base)
{
    (void)base;
    return true;
}

static const struct cddpi_device_transport_ops ops = {.close = close_solo,
                                                      .enqueue = enqueue,
                                                      .poll = poll_solo,
                                                      .abort = abort_solo,
                                                      .alloc = alloc,
                                                      .free_memory = free_memory,
                                                      .can_capture = can_capture};

static cddp_status open_solo(const struct cddpi_device_open_params *params,
                             struct cddpi_device_transport **out)
{
    struct solo_transport *transport = cddpi_zalloc(sizeof *transport);

    if (transport == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "solo: no memory for a group");
    }
    transport->device = params->device;
    transport->base.ops = &ops;
    *out = &transport->base;
    return CDDP_OK;
}

static cddp_status probe(const struct cddpi_device_open_params *params)
{
    if (params->world_size != 1) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "backend solo is for one rank, not %d",
                          params->world_size);
    }
    return CDDP_OK;
}

const struct cddpi_transport cddpi_solo_device_transport = {
    .name = "solo",
    .carries = CDDPI_MEMORY_DEVICE,
    .device = {.probe = probe, .open = open_solo, .ranks = 1, .for_host = true}};
