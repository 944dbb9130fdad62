/* fake_calls.c - the runtime's calls for streams and events. */
#include "fake_cuda/fake.h"

#include <stdlib.h>
#include <time.h>

cudaError_t cudaStreamCreateWithPriority(cudaStream_t *out, unsigned int flags, int priority)
{
    cudaError_t error = fake_enter_context();
    struct CUstream_st *stream;

    (void)priority; /* does not affect the order */
    if (error != cudaSuccess) {
        return error;
    }
    stream = fake_zalloc(sizeof *stream);
    stream->device = fake_device;
    stream->number = ++fake.stream_count;
    stream->flags = flags;
    stream->next = fake.streams;
    fake.streams = stream;
    *out = stream;
    return fake_leave(cudaSuccess);
}

cudaError_t cudaStreamCreateWithFlags(cudaStream_t *out, unsigned int flags)
{
    return cudaStreamCreateWithPriority(out, flags, 0);
}

cudaError_t cudaStreamCreate(cudaStream_t *out)
{
    return cudaStreamCreateWithPriority(out, cudaStreamDefault, 0);
}

cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return cudaSuccess;
}

cudaError_t cudaStreamDestroy(cudaStream_t stream)
{
    cudaError_t error = fake_enter_context();

    if (error != cudaSuccess) {
        return error;
    }
    stream->destroyed = true; /* queued work still runs */
    if (stream->first == NULL) {
        fake_stream_bury(stream);
    }
    return fake_leave(cudaSuccess);
}

/* Check that @p stream may be queried or waited for. If not, the capture ends with an error. */
static cudaError_t check_outside(cudaStream_t stream)
{
    return stream->capture != NULL ? fake_capture_refuse(stream) : fake_capture_forbids();
}

/* Check that @p event may be queried or waited for. A thread that captures may not query or wait at
 * all. */
static cudaError_t check_event(const struct CUevent_st *event)
{
    if (event->capture != 0) {
        return cudaErrorCapturedEvent;
    }
    return fake_capturing_here() ? fake_capture_refuse(fake.capture->origin) : cudaSuccess;
}

cudaError_t cudaStreamSynchronize(cudaStream_t stream)
{
    cudaError_t error = fake_enter_context();

    if (error != cudaSuccess) {
        return error;
    }
    stream = fake_stream_of(stream);
    error = check_outside(stream);
    return fake_leave(error == cudaSuccess ? fake_sync_stream(stream) : error);
}

cudaError_t cudaStreamQuery(cudaStream_t stream)
{
    cudaError_t error = fake_enter_context();

    if (error != cudaSuccess) {
        return error;
    }
    stream = fake_stream_of(stream);
    error = check_outside(stream);
    if (error == cudaSuccess && stream->first != NULL) {
        fake.pressure += 1 + fake_random() % 4;
        fake_start_runner();
        error = cudaErrorNotReady;
    }
    return fake_leave(error);
}

cudaError_t cudaDeviceSynchronize(void)
{
    cudaError_t error = fake_enter_context();

    if (error != cudaSuccess) {
        return error;
    }
    error = fake_capture_forbids();
    return fake_leave(error == cudaSuccess ? fake_sync_all() : error);
}

cudaError_t cudaEventCreateWithFlags(cudaEvent_t *out, unsigned int flags)
{
    cudaError_t error = fake_enter_context();

    if (error != cudaSuccess) {
        return error;
    }
    *out = fake_zalloc(sizeof **out);
    (*out)->device = fake_device;
    (*out)->timed = (flags & cudaEventDisableTiming) == 0;
    return fake_leave(cudaSuccess);
}

cudaError_t cudaEventCreate(cudaEvent_t *out)
{
    return cudaEventCreateWithFlags(out, cudaEventDefault);
}

cudaError_t cudaEventDestroy(cudaEvent_t event)
{
    cudaError_t error = fake_enter_context();

    if (error != cudaSuccess) {
        return error;
    }
    fake_point_drop(event->point);
    fake_tips_clear(&event->tips);
    free(event);
    return fake_leave(cudaSuccess);
}

/* Record an event in a capture: as a position among the nodes or, if external, as a node. */
static cudaError_t record_captured(cudaEvent_t event, cudaStream_t stream, unsigned int flags)
{
    if ((flags & cudaEventRecordExternal) != 0) {
        struct fake_work work = {.kind = FAKE_RECORD, .event = event};

        event->capture = 0;
        return fake_put(stream, &work);
    }
    event->capture = stream->capture->id;
    fake_tips_copy(&event->tips, &stream->tips);
    return cudaSuccess;
}

cudaError_t cudaEventRecordWithFlags(cudaEvent_t event, cudaStream_t stream, unsigned int flags)
{
    cudaError_t error = fake_enter_context();
    struct fake_work work = {.kind = FAKE_RECORD};

    if (error != cudaSuccess) {
        return error;
    }
    stream = fake_stream_of(stream);
    if (event->device != stream->device) {
        return fake_leave(cudaErrorInvalidResourceHandle);
    }
    if (stream->capture != NULL) {
        return fake_leave(record_captured(event, stream, flags));
    }
    if ((flags & cudaEventRecordExternal) != 0) {
        return fake_leave(cudaErrorIllegalState);
    }
    fake_point_drop(event->point);
    event->capture = 0;
    event->point = fake_point_new(stream);
    event->point->refs++;
    work.point = event->point;
    return fake_leave(fake_put(stream, &work));
}

cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream)
{
    return cudaEventRecordWithFlags(event, stream, cudaEventRecordDefault);
}

/* Make @p stream wait for a position in the capture, so that it takes part from now on. */
static cudaError_t wait_captured(cudaStream_t stream, cudaEvent_t event)
{
    if (fake.capture == NULL || fake.capture->id != event->capture) {
        return cudaErrorCapturedEvent; /* the event's capture has ended */
    }
    if (stream->capture == NULL) {
        stream->capture = fake.capture;
        fake_tips_clear(&stream->tips);
    }
    fake_tips_add(&stream->tips, &event->tips);
    return cudaSuccess;
}

cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned int flags)
{
    cudaError_t error = fake_enter_context();
    struct fake_work work = {.kind = FAKE_WAIT};

    if (error != cudaSuccess) {
        return error;
    }
    stream = fake_stream_of(stream);
    if (event->capture != 0) {
        return fake_leave(wait_captured(stream, event));
    }
    if (stream->capture != NULL) {
        if ((flags & cudaEventWaitExternal) == 0) {
            stream->capture->broken = cudaErrorStreamCaptureIsolation;
            return fake_leave(cudaErrorStreamCaptureIsolation);
        }
        work.event = event;
        return fake_leave(fake_put(stream, &work));
    }
    if ((flags & cudaEventWaitExternal) != 0) {
        return fake_leave(cudaErrorIllegalState);
    }
    if (event->point == NULL) {
        return fake_leave(cudaSuccess);
    }
    event->point->refs++;
    work.point = event->point;
    return fake_leave(fake_put(stream, &work));
}

cudaError_t cudaEventQuery(cudaEvent_t event)
{
    cudaError_t error = fake_enter_context();

    if (error != cudaSuccess) {
        return error;
    }
    error = check_event(event);
    if (error != cudaSuccess) {
        return fake_leave(error);
    }
    error = fake_capture_forbids();
    if (error == cudaSuccess && event->point != NULL && !event->point->done) {
        fake.pressure += 1 + fake_random() % 4;
        fake_start_runner();
        error = cudaErrorNotReady;
    }
    return fake_leave(error);
}

cudaError_t cudaEventSynchronize(cudaEvent_t event)
{
    cudaError_t error = fake_enter_context();

    if (error != cudaSuccess) {
        return error;
    }
    error = check_event(event);
    if (error != cudaSuccess) {
        return fake_leave(error);
    }
    error = fake_capture_forbids();
    return fake_leave(error == cudaSuccess && event->point != NULL ? fake_await(event->point)
                                                                   : error);
}

cudaError_t cudaEventElapsedTime(float *ms, cudaEvent_t from, cudaEvent_t to)
{
    cudaError_t error = fake_enter_context();

    if (error != cudaSuccess) {
        return error;
    }
    if (!from->timed || !to->timed || from->point == NULL || to->point == NULL) {
        return fake_leave(cudaErrorInvalidResourceHandle);
    }
    if (!from->point->done || !to->point->done) {
        return fake_leave(cudaErrorNotReady);
    }
    *ms = (float)((double)(to->point->at_ns - from->point->at_ns) / 1e6);
    return fake_leave(cudaSuccess);
}

struct host_call {
    cudaHostFn_t function;
    void *argument;
};

static void run_host_call(void *closure)
{
    struct host_call *call = closure;

    call->function(call->argument);
}

cudaError_t cudaLaunchHostFunc(cudaStream_t stream, cudaHostFn_t function, void *argument)
{
    cudaError_t error = fake_enter_context();
    struct host_call *call;

    if (error != cudaSuccess) {
        return error;
    }
    call = fake_zalloc(sizeof *call);
    *call = (struct host_call){function, argument};
    return fake_leave(fake_put_closure(fake_stream_of(stream), run_host_call, call, free));
}

/* Declared in cuda_profiler_api.h, which not every toolkit's wheels contain. There is no profiler
 * here. */
cudaError_t cudaProfilerStart(void);
cudaError_t cudaProfilerStart(void)
{
    return cudaSuccess;
}

cudaError_t cudaProfilerStop(void);
cudaError_t cudaProfilerStop(void)
{
    return cudaSuccess;
}
