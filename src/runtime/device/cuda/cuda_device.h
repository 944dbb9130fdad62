/* cuda_device.h - a CUDA device as the module's own sources see it: its streams and its errors. */
#ifndef CDDPI_CUDA_DEVICE_H
#define CDDPI_CUDA_DEVICE_H

#include "device/device_module.h"
#include "kernels/cuda/kernels_module.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_card;
struct cuda_profile;

struct cuda_device {
    struct cddpi_device base; /* first: a struct cddpi_device * can be cast to this */
    cudaStream_t streams[CDDPI_STREAM_COUNT];
    bool adopted;           /* the caller owns the compute stream */
    cudaMemPool_t pool;     /* NULL: the device has no pools, so allocation waits for the device */
    size_t kept_bytes;      /* large allocations leave this much for others (NCCL); 0: nothing */
    int keepers;            /* transports for which it is kept */
    bool doubtful;          /* work may never end: see cuda_doubt(); atomic */
    struct cuda_card *card; /* what NVML says of it; NULL: nothing */
    int seen;               /* so many cards does this process see */
    int multiprocessors;
    int capability;   /* 10 x major + minor: 90 */
    uint64_t capture; /* number of the current capture; 0: none */
    uint64_t captures;
    bool incomplete; /* part of the current capture was refused */
    struct cddpi_cuda_kernels kernels;
    struct cuda_profile *profile;                           /* NULL: kernels are not profiled */
    struct cddpi_cuda_cache caches[CDDPI_CUDA_CACHE_KINDS]; /* used by the kernels */
};

static inline struct cuda_device *cuda_device_of(struct cddpi_device *device)
{
    return (struct cuda_device *)(void *)device;
}

/* The stream to enqueue work in. Also makes the device current for the calling thread, which kernel
 * launches need. */
static inline cudaStream_t cuda_device_stream(struct cddpi_device *device, enum cddpi_stream stream)
{
    (void)cudaSetDevice(device->index); /* the next call on the stream reports an error again */
    return cuda_device_of(device)->streams[stream];
}

/* Whether work enqueued in @p stream now becomes part of a capture. */
static inline bool cuda_is_captured(cudaStream_t stream)
{
    enum cudaStreamCaptureStatus state = cudaStreamCaptureStatusNone;

    return cudaStreamIsCapturing(stream, &state) == cudaSuccess &&
           state != cudaStreamCaptureStatusNone;
}

/** Tell that the work in the streams may never end, after an abort or a wait that timed out. From
 *  then on cuda_may_free() asks the streams, until all of them are empty. Any thread. */
void cuda_doubt(struct cddpi_device *device);
/** Whether memory may be freed for which the driver waits until all work is done (cudaFree(),
 *  cudaFreeHost()). If not, leave it to the end of the process. */
bool cuda_may_free(struct cddpi_device *device);

/** Like the device's record and order, in a stream of the caller that is not being captured. */
cddp_status cuda_event_record_in(struct cddpi_device *device, struct cddpi_event *event,
                                 cudaStream_t stream);
cddp_status cuda_event_order_in(struct cddpi_device *device, cudaStream_t stream,
                                struct cddpi_event *event);

/* --- errors --- */

/* Pass on the result of cudaEventQuery() or cudaStreamQuery(). "Not ready" is not a failure, but
 * the runtime may store it as its last error, and the next check of a launch would report it. */
static inline cudaError_t cuda_asked(cudaError_t error)
{
    if (error == cudaErrorNotReady) {
        (void)cudaGetLastError();
    }
    return error;
}

/* The status of one runtime call: CUDA_CHECK(device, cudaMemsetAsync(...)). */
#define CUDA_CHECK(device, call) cddpi_cuda_status((device), (call), #call, __FILE__, __LINE__)

/** A driver function, such as "cuStreamWaitValue32". NULL: this driver does not have it. */
void *cuda_driver_symbol(const char *name);

#ifdef __cplusplus
}
#endif
#endif
