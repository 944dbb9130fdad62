/* common.c - owns what the transports of the CUDA module share. */
#include "group/cuda/common.h"

#include "base/log.h"

#include <time.h>

const char *cddpi_transport_reason(const struct cddpi_device *device)
{
    const struct cddpi_failure *failure = cddpi_last_failure();

    return failure->rank == device->rank ? failure->text + failure->unnamed : failure->text;
}

cddp_status cddpi_transport_refuse(const struct cddpi_group_op *op)
{
    const char *name = op->kind == CDDPI_BARRIER ? "barrier"
                       : op->kind == CDDPI_SEND  ? "send"
                       : op->kind == CDDPI_RECV  ? "recv"
                                                 : "alloc";

    return cddpi_fail(CDDP_ERR_UNAVAILABLE, "%s of device memory", name);
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
    cddpi_log(CDDPI_LOG_WARN, "rank %d: %s", device->rank, text);
}

cddp_status cddpi_transport_agree(const struct cddpi_device_open_params *params, cddp_status own)
{
    return params->agree(params->context, own);
}

cddp_status cddpi_transport_opened(cddp_status status, void *transport,
                                   struct cddpi_device_transport **out)
{
    struct cddpi_device_transport *base = transport;
    struct cddpi_failure failure;

    if (status == CDDP_OK) {
        *out = base;
        return CDDP_OK;
    }
    failure = *cddpi_last_failure();
    if (base != NULL) {
        base->ops->close(base);
    }
    return cddpi_fail_again(status, &failure);
}
