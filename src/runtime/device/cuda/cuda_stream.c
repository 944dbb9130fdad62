/* cuda_stream.c - owns the device's three streams: copies, waits with a time limit, and ranges for
 * profilers. */
#include "device/cuda/cuda_internal.h"

#include "base/clock.h"

#include <nvtx3/nvToolsExt.h>

/* How long to wait for work that may never end. */
enum { DOUBTFUL_MS = 10000 };

static const char *const stream_names[CDDPI_STREAM_COUNT] = {[CDDPI_STREAM_COMPUTE] = "compute",
                                                             [CDDPI_STREAM_COMM] = "communication",
                                                             [CDDPI_STREAM_COPY] = "copy"};

cddp_status cuda_enter(struct cddpi_device *device)
{
    return CUDA_CHECK(device, cudaSetDevice(device->index));
}

cddp_status cuda_streams_open(struct cuda_device *device)
{
    struct cddpi_device *base = &device->base;
    int lowest;
    int highest; /* a smaller number is a higher priority */

    CDDPI_TRY(CUDA_CHECK(base, cudaDeviceGetStreamPriorityRange(&lowest, &highest)));
    for (int i = 0; i < CDDPI_STREAM_COUNT; i++) {
        /* Collectives go first, since other ranks wait for them. Non-blocking: the streams do not
         * synchronise with the default stream, which other libraries in the process may use. */
        int priority = i == CDDPI_STREAM_COMM ? highest : lowest;

        CDDPI_TRY(CUDA_CHECK(base, cudaStreamCreateWithPriority(&device->streams[i],
                                                                cudaStreamNonBlocking, priority)));
    }
    return CDDP_OK;
}

/* Check that @p stream can be the compute stream. Before CUDA 12.8, only recording an event tells
 * which device a stream belongs to. */
static cddp_status check_stream(struct cddpi_device *device, cudaStream_t stream, cudaEvent_t event)
{
    enum cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
    cudaError_t error = cudaStreamIsCapturing(stream, &capture);

    if (error == cudaSuccess && capture != cudaStreamCaptureStatusNone) {
        return cuda_fail(device, CDDP_ERR_STATE,
                         "the stream that was given is being captured: give it before or after");
    }
    if (error == cudaSuccess) {
        error = cudaEventRecord(event, stream);
    }
    if (error == cudaErrorInvalidResourceHandle) {
        (void)cudaGetLastError();
        return cuda_fail(device, CDDP_ERR_ARGUMENT,
                         "the stream that was given does not belong to this device: make it after "
                         "cudaSetDevice(%d)",
                         device->index);
    }
    return CUDA_CHECK(device, error);
}

cddp_status cuda_adopt(struct cddpi_device *device, void *stream)
{
    struct cuda_device *self = cuda_device_of(device);
    cudaStream_t before = self->streams[CDDPI_STREAM_COMPUTE];
    cudaEvent_t event = NULL;
    cddp_status status;

    CDDPI_TRY(cuda_enter(device));
    if (self->capture != 0) {
        return cuda_fail(device, CDDP_ERR_STATE,
                         "the compute stream cannot change while work is captured");
    }
    CDDPI_TRY(CUDA_CHECK(device, cudaEventCreateWithFlags(&event, cudaEventDisableTiming)));
    status = check_stream(device, stream, event);
    if (status == CDDP_OK) {
        status = CUDA_CHECK(device, cudaEventRecord(event, before));
    }
    if (status == CDDP_OK) {
        status = CUDA_CHECK(device, cudaStreamWaitEvent(stream, event, 0));
    }
    (void)cudaEventDestroy(event); /* streams that already wait for it are not affected */
    CDDPI_TRY(status);
    /* another thread may ask for it */
    __atomic_store_n(&self->streams[CDDPI_STREAM_COMPUTE], (cudaStream_t)stream, __ATOMIC_RELEASE);
    status = self->adopted ? CDDP_OK : CUDA_CHECK(device, cudaStreamDestroy(before));
    self->adopted = true;
    return status;
}

void *cuda_compute_stream(struct cddpi_device *device)
{
    return __atomic_load_n(&cuda_device_of(device)->streams[CDDPI_STREAM_COMPUTE],
                           __ATOMIC_ACQUIRE);
}

void cuda_streams_close(struct cuda_device *device)
{
    for (int i = 0; i < CDDPI_STREAM_COUNT; i++) {
        if (device->streams[i] != NULL && !(i == CDDPI_STREAM_COMPUTE && device->adopted)) {
            (void)cudaStreamDestroy(device->streams[i]);
        }
    }
}

/* Whether @p memory is host memory that CUDA has not pinned. */
static bool is_pageable(const void *memory)
{
    struct cudaPointerAttributes attributes;

    if (cudaPointerGetAttributes(&attributes, memory) != cudaSuccess) {
        (void)cudaGetLastError();
        return false;
    }
    return attributes.type == cudaMemoryTypeUnregistered;
}

/* Refuse copies of pageable memory in a capture. CUDA captures them, too, but a replay would use
 * the address from the capture, often on a stack that no longer exists. */
static cddp_status check_captured_copy(struct cddpi_device *device, cudaStream_t in, const void *to,
                                       const void *from, size_t bytes)
{
    struct cuda_device *self = cuda_device_of(device);

    if (!cuda_is_capturing(self, in) || (!is_pageable(to) && !is_pageable(from))) {
        return CDDP_OK;
    }
    self->incomplete = true;
    return cuda_fail(device, CDDP_ERR_UNAVAILABLE,
                     "a copy of %zu bytes from or to pageable memory cannot be captured", bytes);
}

cddp_status cuda_copy(struct cddpi_device *device, enum cddpi_stream stream, void *to,
                      const void *from, size_t bytes)
{
    cudaStream_t in = cuda_device_stream(device, stream);

    if (bytes == 0) {
        return CDDP_OK;
    }
    CDDPI_TRY(check_captured_copy(device, in, to, from, bytes));
    return CUDA_CHECK(device, cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, in));
}

cddp_status cuda_clear(struct cddpi_device *device, enum cddpi_stream stream, void *memory,
                       size_t bytes)
{
    cudaStream_t in = cuda_device_stream(device, stream);

    if (bytes == 0) {
        return CDDP_OK;
    }
    return CUDA_CHECK(device, cudaMemsetAsync(memory, 0, bytes, in));
}

cudaError_t cuda_poll(cudaError_t (*ready)(void *what), void *what, uint32_t timeout_ms)
{
    int64_t deadline_ns = cddpi_deadline_ns(timeout_ms);
    long pause_ns = 0;

    for (;;) {
        struct timespec pause = {0, pause_ns};
        cudaError_t error = cuda_asked(ready(what));

        if (error != cudaErrorNotReady || cddpi_now_ns() >= deadline_ns) {
            return error;
        }
        if (pause_ns > 0) {
            nanosleep(&pause, NULL);
        }
        /* The pauses grow up to about 0.6 ms, so the end of long work is noticed a little late. */
        pause_ns = pause_ns < 20000    ? pause_ns + 2000
                   : pause_ns < 500000 ? pause_ns * 5 / 4
                                       : pause_ns;
    }
}

cudaError_t cuda_stream_ready(void *stream)
{
    return cudaStreamQuery((cudaStream_t)stream);
}

void cuda_doubt(struct cddpi_device *device)
{
    __atomic_store_n(&cuda_device_of(device)->doubtful, true, __ATOMIC_RELEASE);
}

static bool is_doubtful(const struct cuda_device *device)
{
    return __atomic_load_n(&device->doubtful, __ATOMIC_ACQUIRE);
}

bool cuda_may_free(struct cddpi_device *device)
{
    struct cuda_device *self = cuda_device_of(device);

    if (!is_doubtful(self)) {
        return true;
    }
    if (self->capture != 0) {
        return false; /* asking a stream would end its capture */
    }
    for (int i = 0; i < CDDPI_STREAM_COUNT; i++) {
        if (cuda_asked(cudaStreamQuery(self->streams[i])) == cudaErrorNotReady) {
            return false;
        }
    }
    return true;
}

cddp_status cuda_finish(struct cddpi_device *device, uint32_t timeout_ms)
{
    struct cuda_device *self = cuda_device_of(device);
    uint32_t patience = is_doubtful(self) && timeout_ms > DOUBTFUL_MS ? DOUBTFUL_MS : timeout_ms;
    int64_t deadline_ns = cddpi_deadline_ns(patience);

    CDDPI_TRY(cuda_enter(device));
    for (int i = 0; i < CDDPI_STREAM_COUNT; i++) {
        cudaError_t error = cuda_poll(cuda_stream_ready, self->streams[i],
                                      (uint32_t)cddpi_left_ms(deadline_ns));

        if (error == cudaErrorNotReady) {
            cuda_doubt(device);
            return cuda_fail(device, CDDP_ERR_TIMEOUT,
                             "the %s stream's work was not done within %u ms", stream_names[i],
                             patience);
        }
        CDDPI_TRY(CUDA_CHECK(device, error));
    }
    __atomic_store_n(&self->doubtful, false, __ATOMIC_RELEASE);
    return CDDP_OK;
}

void cuda_range_push(struct cddpi_device *device, const char *name)
{
    (void)device;
    (void)nvtxRangePushA(name);
}

void cuda_range_pop(struct cddpi_device *device)
{
    (void)device;
    (void)nvtxRangePop();
}
