/* common.c - owns the helpers that the transports of the CUDA module share. */
#include "group/cuda/common.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

static const struct cddpi_module_host *host_of(const struct cddpi_device *device)
{
    return ((const struct cuda_device *)(const void *)device)->host;
}

cddp_status cddpi_transport_fail(const struct cddpi_device *device, cddp_status status,
                                 const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    status = host_of(device)->fail(status, format, arguments);
    va_end(arguments);
    return status;
}

cddp_status cddpi_transport_fail_rank(const struct cddpi_device *device, cddp_status status,
                                      int rank, const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    status = host_of(device)->fail(status, format, arguments);
    va_end(arguments);
    return host_of(device)->fail_name(status, rank);
}

const char *cddpi_transport_last_error(const struct cddpi_device *device)
{
    return host_of(device)->last_error();
}

cddp_status cddpi_transport_refuse(const struct cddpi_device *device,
                                   const struct cddpi_group_op *op)
{
    const char *name = op->kind == CDDPI_BARRIER ? "barrier"
                       : op->kind == CDDPI_SEND  ? "send"
                       : op->kind == CDDPI_RECV  ? "recv"
                                                 : "alloc";

    return cddpi_transport_fail(device, CDDP_ERR_UNAVAILABLE, "%s of device memory", name);
}

void cddpi_transport_enter(struct cddpi_device *device)
{
    (void)cuda_device_stream(device, CDDPI_STREAM_COMM);
}

bool cddpi_transport_drain(struct cddpi_device *device, cudaStream_t stream, uint32_t timeout_ms)
{
    struct timespec pause = {0, 1000000};

    cddpi_transport_enter(device);
    for (uint32_t ms = 0; cuda_asked(cudaStreamQuery(stream)) == cudaErrorNotReady; ms++) {
        if (ms >= timeout_ms) {
            return false;
        }
        nanosleep(&pause, NULL);
    }
    return true;
}

void cddpi_transport_warn(const struct cddpi_device *device, const char *text)
{
    char line[CDDPI_TRANSPORT_TEXT_BYTES];

    snprintf(line, sizeof line, "rank %d: %s", device->rank, text);
    host_of(device)->warn(line);
}

void *cddpi_transport_zalloc(const struct cddpi_device *device, size_t bytes)
{
    return host_of(device)->alloc(bytes);
}

void cddpi_transport_free(const struct cddpi_device *device, void *memory)
{
    host_of(device)->free(memory);
}

const char *cddpi_transport_reason(const struct cddpi_device *device)
{
    const struct cddpi_failure *failure = host_of(device)->last_failure();

    return failure->rank == device->rank ? failure->text + failure->unnamed : failure->text;
}

cddp_status cddpi_transport_agree(const struct cddpi_device_open_params *params, cddp_status own)
{
    return params->agree(params->context, own);
}

cddp_status cddpi_transport_give_up(const struct cddpi_device *device, cddp_status status,
                                    struct cddpi_device_transport *transport)
{
    struct cddpi_failure failure = *host_of(device)->last_failure();

    if (transport != NULL) {
        transport->ops->close(transport);
    }
    return host_of(device)->fail_again(status, &failure);
}
