/* cuda_capture.c - makes and replays CUDA graphs by capturing streams. */
#include "device/cuda/cuda_internal.h"

bool cuda_is_capturing(const struct cuda_device *device, cudaStream_t in)
{
    return device->capture != 0 && cuda_is_captured(in);
}

cddp_status cuda_capture_begin(struct cddpi_device *device)
{
    struct cuda_device *self = cuda_device_of(device);
    cudaStream_t stream = cuda_device_stream(device, CDDPI_STREAM_COMPUTE);

    if (self->capture != 0) {
        return cuda_fail(device, CDDP_ERR_STATE, "a capture is being made already");
    }
    /* Thread-local mode: other threads (such as the data loader's, which pin memory) may keep
     * calling CUDA. */
    CDDPI_TRY(CUDA_CHECK(device, cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal)));
    self->capture = ++self->captures;
    self->incomplete = false;
    return CDDP_OK;
}

/* End the capture on every path, so that no stream stays in it. */
static cddp_status end_capture(struct cddpi_device *device, cudaGraph_t *graph)
{
    struct cuda_device *self = cuda_device_of(device);
    cudaStream_t stream = cuda_device_stream(device, CDDPI_STREAM_COMPUTE);
    cudaError_t error = cudaStreamEndCapture(stream, graph);

    self->capture = 0;
    if (error == cudaErrorStreamCaptureUnjoined) {
        (void)cudaGetLastError();
        return cuda_fail(device, CDDP_ERR_UNAVAILABLE,
                         "the work cannot be captured: a stream that was ordered after the compute "
                         "stream was not ordered before its end again");
    }
    if (error != cudaSuccess) {
        return cddpi_cuda_status(device, error, "cudaStreamEndCapture", __FILE__, __LINE__);
    }
    if (*graph == NULL) {
        return cuda_fail(device, CDDP_ERR_UNAVAILABLE,
                         "the work cannot be captured: CUDA invalidated the capture");
    }
    if (self->incomplete) {
        (void)cudaGraphDestroy(*graph);
        *graph = NULL;
        return cuda_fail(device, CDDP_ERR_UNAVAILABLE,
                         "the work cannot be captured: a part of it was refused");
    }
    return CDDP_OK;
}

cddp_status cuda_capture_end(struct cddpi_device *device, struct cddpi_captured_graph **out)
{
    struct cuda_device *self = cuda_device_of(device);
    struct cddpi_captured_graph *captured;
    cudaGraph_t graph = NULL;
    cddp_status status;

    if (self->capture == 0) {
        return cuda_fail(device, CDDP_ERR_STATE, "no capture is being made");
    }
    CDDPI_TRY(end_capture(device, &graph));
    captured = cddpi_zalloc(sizeof *captured);
    if (captured == NULL) {
        status = cuda_fail(device, CDDP_ERR_NO_MEMORY, "capture: no memory for %zu bytes",
                           sizeof *captured);
    } else {
        /* Keep the streams' priorities, so that collectives go first in replays, too. */
        status = CUDA_CHECK(device, cudaGraphInstantiate(&captured->exec, graph,
                                                         cudaGraphInstantiateFlagUseNodePriority));
    }
    (void)cudaGraphDestroy(graph);
    if (status == CDDP_OK) {
        /* Upload now, so that the first replay is as fast as later ones. */
        status = CUDA_CHECK(device,
                            cudaGraphUpload(captured->exec, self->streams[CDDPI_STREAM_COMPUTE]));
    }
    if (status != CDDP_OK) {
        cuda_graph_destroy(device, captured);
        return status;
    }
    *out = captured;
    return CDDP_OK;
}

cddp_status cuda_replay(struct cddpi_device *device, struct cddpi_captured_graph *captured)
{
    cudaStream_t stream = cuda_device_stream(device, CDDPI_STREAM_COMPUTE);

    return CUDA_CHECK(device, cudaGraphLaunch(captured->exec, stream));
}

void cuda_graph_destroy(struct cddpi_device *device, struct cddpi_captured_graph *captured)
{
    if (captured == NULL) {
        return;
    }
    (void)cuda_enter(device);
    if (captured->exec != NULL) {
        (void)cudaGraphExecDestroy(captured->exec);
    }
    cddpi_free(captured);
}
