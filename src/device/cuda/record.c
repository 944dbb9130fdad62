/* record.c - recordings: CUDA graphs made by capturing the streams. */
#include "device/cuda/internal.h"

bool cuda_records(const struct cuda_device *device, cudaStream_t in)
{
    enum cudaStreamCaptureStatus state = cudaStreamCaptureStatusNone;

    return device->recording != 0 && cudaStreamIsCapturing(in, &state) == cudaSuccess &&
           state != cudaStreamCaptureStatusNone;
}

cddp_status cuda_record_begin(struct cddpi_device *device)
{
    struct cuda_device *self = cuda_device_of(device);
    cudaStream_t stream = cuda_device_stream(device, CDDPI_STREAM_COMPUTE);
    cddp_status status;

    if (self->recording != 0) {
        return cuda_fail(device, CDDP_ERR_STATE, "a recording is being made already");
    }
    /* thread-local: other threads (the loader's, which pins memory) may go on as they like */
    status = CUDA_CHECK(device, cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    if (status == CDDP_OK) {
        self->recording = ++self->recordings;
        self->incomplete = false;
    }
    return status;
}

/* End the capture, and leave no stream in it. */
static cddp_status end_capture(struct cddpi_device *device, cudaGraph_t *graph)
{
    struct cuda_device *self = cuda_device_of(device);
    cudaStream_t stream = cuda_device_stream(device, CDDPI_STREAM_COMPUTE);
    cudaError_t error = cudaStreamEndCapture(stream, graph);

    self->recording = 0;
    if (error == cudaErrorStreamCaptureUnjoined) {
        (void)cudaGetLastError();
        return cuda_fail(device, CDDP_ERR_UNAVAILABLE,
                         "the work cannot be recorded: a stream that was ordered after the compute "
                         "stream was not ordered before its end again");
    }
    if (error != cudaSuccess) {
        return cuda_failed_call(device, error, "cudaStreamEndCapture", __FILE__, __LINE__);
    }
    if (*graph == NULL) {
        return cuda_fail(device, CDDP_ERR_UNAVAILABLE,
                         "the work cannot be recorded: CUDA gave up on it");
    }
    if (self->incomplete) {
        (void)cudaGraphDestroy(*graph);
        *graph = NULL;
        return cuda_fail(device, CDDP_ERR_UNAVAILABLE,
                         "the work cannot be recorded: a part of it was refused");
    }
    return CDDP_OK;
}

cddp_status cuda_record_end(struct cddpi_device *device, struct cddpi_recording **out)
{
    struct cuda_device *self = cuda_device_of(device);
    struct cddpi_recording *recording;
    cudaGraph_t graph = NULL;
    cddp_status status;

    if (self->recording == 0) {
        return cuda_fail(device, CDDP_ERR_STATE, "no recording is being made");
    }
    status = end_capture(device, &graph);
    if (status != CDDP_OK) {
        return status;
    }
    recording = self->host->alloc(sizeof *recording);
    if (recording == NULL) {
        status = cuda_fail(device, CDDP_ERR_NO_MEMORY, "recording: no memory for %zu bytes",
                           sizeof *recording);
    } else {
        /* with the streams' priorities, so that collectives go first in it, too */
        status = CUDA_CHECK(device, cudaGraphInstantiate(&recording->exec, graph,
                                                         cudaGraphInstantiateFlagUseNodePriority));
    }
    (void)cudaGraphDestroy(graph);
    if (status == CDDP_OK) {
        /* so that the first replay is as fast as the others */
        status = CUDA_CHECK(device,
                            cudaGraphUpload(recording->exec, self->streams[CDDPI_STREAM_COMPUTE]));
    }
    if (status != CDDP_OK) {
        cuda_recording_destroy(device, recording);
        return status;
    }
    *out = recording;
    return CDDP_OK;
}

cddp_status cuda_replay(struct cddpi_device *device, struct cddpi_recording *recording)
{
    cudaStream_t stream = cuda_device_stream(device, CDDPI_STREAM_COMPUTE);

    return CUDA_CHECK(device, cudaGraphLaunch(recording->exec, stream));
}

void cuda_recording_destroy(struct cddpi_device *device, struct cddpi_recording *recording)
{
    if (recording == NULL) {
        return;
    }
    (void)cuda_enter(device);
    if (recording->exec != NULL) {
        (void)cudaGraphExecDestroy(recording->exec);
    }
    cuda_device_of(device)->host->free(recording);
}
