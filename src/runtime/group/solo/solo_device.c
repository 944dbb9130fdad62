/* solo_device.c - the transport of a device's memory in a group of one rank: copies within it. */
#include "base/alloc.h"
#include "base/error.h"
#include "group/transports.h"

struct cddpi_device_transport {
    struct cddpi_device *device;
};

static cddp_status open_solo(const struct cddpi_device_open_params *params,
                             struct cddpi_device_transport **out)
{
    struct cddpi_device_transport *transport = cddpi_zalloc(sizeof *transport);

    if (transport == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "solo: no memory for a group");
    }
    transport->device = params->device;
    *out = transport;
    return CDDP_OK;
}

static void close_solo(struct cddpi_device_transport *transport)
{
    cddpi_free(transport);
}

static cddp_status enqueue(struct cddpi_device_transport *transport,
                           const struct cddpi_group_op *op)
{
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

static cddp_status poll_solo(struct cddpi_device_transport *transport)
{
    (void)transport;
    return CDDP_OK; /* a failure of the device is found by its own calls */
}

static void abort_solo(struct cddpi_device_transport *transport, const char *reason)
{
    (void)transport; /* nothing here waits for anybody */
    (void)reason;
}

static cddp_status alloc(struct cddpi_device_transport *transport, size_t bytes, void **out)
{
    return transport->device->ops->alloc(transport->device, bytes, "group_alloc", out);
}

static void free_memory(struct cddpi_device_transport *transport, void *memory)
{
    transport->device->ops->release(transport->device, memory);
}

static bool can_capture(const struct cddpi_device_transport *transport)
{
    (void)transport;
    return true;
}

static cddp_status probe(const struct cddpi_device_open_params *params)
{
    if (params->world_size != 1) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "backend solo is for one rank, not %d",
                          params->world_size);
    }
    return CDDP_OK;
}

static const struct cddpi_device_transport_ops ops = {.close = close_solo,
                                                      .enqueue = enqueue,
                                                      .poll = poll_solo,
                                                      .abort = abort_solo,
                                                      .alloc = alloc,
                                                      .free_memory = free_memory,
                                                      .can_capture = can_capture};

const struct cddpi_transport cddpi_solo_device_transport = {
    .name = "solo",
    .carries = CDDPI_MEMORY_DEVICE,
    .device = {.ops = &ops, .probe = probe, .open = open_solo, .ranks = 1, .for_host = true}};
