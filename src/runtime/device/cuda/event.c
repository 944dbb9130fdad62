/* event.c - owns events, the points in streams, inside and outside captured graphs. */
#include "device/cuda/cuda_internal.h"

#include "base/clock.h"

void cuda_event_destroy(struct cddpi_device *device, struct cddpi_event *base)
{
    struct cuda_event *event = cuda_event_of(base);

    if (event == NULL) {
        return;
    }
    (void)cuda_enter(device); /* a new thread would use device 0 and create a context there */
    if (event->event != NULL) {
        (void)cudaEventDestroy(event->event);
    }
    if (event->clock != NULL) {
        (void)cudaEventDestroy(event->clock);
    }
    cddpi_free(event);
}

cddp_status cuda_event_create(struct cddpi_device *device, bool timed, struct cddpi_event **out)
{
    struct cuda_event *event = cddpi_zalloc(sizeof *event);
    cddp_status status = cuda_enter(device);

    if (event == NULL) {
        return cuda_fail(device, CDDP_ERR_NO_MEMORY, "event: no memory for %zu bytes",
                         sizeof *event);
    }
    if (status == CDDP_OK) {
        status = CUDA_CHECK(device,
                            cudaEventCreateWithFlags(&event->event, cudaEventDisableTiming));
    }
    if (status == CDDP_OK && timed) {
        status = CUDA_CHECK(device, cudaEventCreateWithFlags(&event->clock, cudaEventDefault));
    }
    if (status != CDDP_OK) {
        cuda_event_destroy(device, &event->base);
        return status;
    }
    event->base.timed = timed;
    *out = &event->base;
    return CDDP_OK;
}

/* Fail if the caller is capturing its own stream: the caller's graph would get only half of an
 * operation. */
static cddp_status check_capture(struct cddpi_device *device, cudaStream_t stream)
{
    enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;

    CDDPI_TRY(CUDA_CHECK(device, cudaStreamIsCapturing(stream, &capture)));
    if (capture != cudaStreamCaptureStatusNone) {
        return cuda_fail(device, CDDP_ERR_STATE,
                         "the compute stream is being captured by the caller: a graph of the "
                         "caller's cannot hold operations of cddp");
    }
    return CDDP_OK;
}

cddp_status cuda_event_record(struct cddpi_device *device, struct cddpi_event *base,
                              enum cddpi_stream stream)
{
    struct cuda_event *event = cuda_event_of(base);
    struct cuda_device *self = cuda_device_of(device);
    cudaStream_t in = cuda_device_stream(device, stream);
    uint64_t capture = cuda_is_capturing(self, in) ? self->capture : 0;
    /* External: each replay records the event. CUDA refuses this flag outside a capture. */
    unsigned flags = capture != 0 ? cudaEventRecordExternal : cudaEventRecordDefault;

    if (self->adopted && self->capture == 0 && stream == CDDPI_STREAM_COMPUTE) {
        CDDPI_TRY(check_capture(device, in));
    }
    /* the clock before `event`, so that the time is known when the event is done */
    if (event->clock != NULL) {
        CDDPI_TRY(CUDA_CHECK(device, cudaEventRecordWithFlags(event->clock, in, flags)));
    }
    CDDPI_TRY(CUDA_CHECK(device, cudaEventRecord(event->event, in)));
    event->recorded = true;
    event->capture = capture;
    return CDDP_OK;
}

cddp_status cuda_event_order(struct cddpi_device *device, enum cddpi_stream stream,
                             struct cddpi_event *base)
{
    struct cuda_event *event = cuda_event_of(base);
    struct cuda_device *self = cuda_device_of(device);
    cudaStream_t in = cuda_device_stream(device, stream);
    unsigned flags = cudaEventWaitDefault;

    if (!event->recorded) {
        return CDDP_OK;
    }
    if (event->capture != 0 && event->capture != self->capture) {
        return cuda_fail(device, CDDP_ERR_STATE,
                         "an event that is part of a capture cannot be waited for outside: "
                         "record another behind the replay");
    }
    if (event->capture == 0 && cuda_is_capturing(self, in)) {
        flags = cudaEventWaitExternal; /* recorded outside the capture: each replay waits for it */
    }
    return CUDA_CHECK(device, cudaStreamWaitEvent(in, event->event, flags));
}

cddp_status cuda_event_record_in(struct cddpi_device *device, struct cddpi_event *base,
                                 cudaStream_t stream)
{
    struct cuda_event *event = cuda_event_of(base);

    CDDPI_TRY(CUDA_CHECK(device, cudaEventRecord(event->event, stream)));
    event->capture = 0;
    event->recorded = true;
    return CDDP_OK;
}

cddp_status cuda_event_order_in(struct cddpi_device *device, cudaStream_t stream,
                                struct cddpi_event *base)
{
    struct cuda_event *event = cuda_event_of(base);

    return event->recorded ? CUDA_CHECK(device, cudaStreamWaitEvent(stream, event->event, 0))
                           : CDDP_OK;
}

/* The CUDA event to query. If it was recorded in a capture, replays record only the clock. */
static cudaEvent_t observable(const struct cuda_event *event)
{
    return event->capture != 0 && event->clock != NULL ? event->clock : event->event;
}

static cudaError_t event_ready(void *event)
{
    return cudaEventQuery((cudaEvent_t)event);
}

cddp_status cuda_event_query(struct cddpi_device *device, struct cddpi_event *base, bool *out_done)
{
    struct cuda_event *event = cuda_event_of(base);
    cudaError_t error;

    CDDPI_TRY(cuda_enter(device)); /* a new thread would use device 0 */
    error = event->recorded ? cuda_asked(cudaEventQuery(observable(event))) : cudaSuccess;
    if (error == cudaErrorNotReady) {
        *out_done = false;
        return CDDP_OK;
    }
    CDDPI_TRY(cddpi_cuda_status(device, error, "cudaEventQuery", __FILE__, __LINE__));
    *out_done = true;
    return CDDP_OK;
}

cddp_status cuda_event_wait(struct cddpi_device *device, struct cddpi_event *base,
                            uint32_t timeout_ms)
{
    struct cuda_event *event = cuda_event_of(base);
    cudaError_t error;

    CDDPI_TRY(cuda_enter(device));
    if (!event->recorded) {
        return CDDP_OK;
    }
    error = cuda_poll(event_ready, observable(event), timeout_ms);
    if (error == cudaErrorNotReady) {
        return cuda_fail(device, CDDP_ERR_TIMEOUT, "an event was not reached within %u ms",
                         timeout_ms);
    }
    return cddpi_cuda_status(device, error, "cudaEventQuery", __FILE__, __LINE__);
}

cddp_status cuda_event_elapsed(struct cddpi_device *device, struct cddpi_event *from_base,
                               struct cddpi_event *to_base, float *out_ms)
{
    struct cuda_event *from = cuda_event_of(from_base);
    struct cuda_event *to = cuda_event_of(to_base);

    if (!from->base.timed || !to->base.timed) {
        return cuda_fail(device, CDDP_ERR_ARGUMENT, "the time of an event that is not timed");
    }
    CDDPI_TRY(cuda_enter(device));
    return CUDA_CHECK(device, cudaEventElapsedTime(out_ms, from->clock, to->clock));
}
