/* cuda_device.h - a CUDA device as the module's own sources see it: its streams and its errors. */
#ifndef CDDPI_CUDA_DEVICE_H
#define CDDPI_CUDA_DEVICE_H

#include "device/device_module.h"
#include "kernels/cuda/kernels_module.h"

#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif

struct cuda_profile;

struct cuda_device {
    struct cddpi_device base; /* first: a struct cddpi_device * can be cast to this */
    const struct cddpi_module_host *host;
    cudaStream_t streams[CDDPI_STREAM_COUNT];
    bool adopted;       /* the caller owns the compute stream */
    cudaMemPool_t pool; /* NULL: the device has no pools, so allocation waits for the device */
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

/** Word a failure: "rank 2: cuda:1: <text>". Returns @p status. Any thread. */
cddp_status cuda_fail(const struct cddpi_device *device, cddp_status status, const char *format,
                      ...) __attribute__((format(printf, 3, 4)));

/** Word the failure of a runtime call that returned @p error, with the place of the call. The
 *  status is CDDP_ERR_UNAVAILABLE for a refused capture, CDDP_ERR_NO_MEMORY for lack of memory, and
 *  else CDDP_ERR_DEVICE. */
cddp_status cuda_failed_call(const struct cddpi_device *device, cudaError_t error, const char *call,
                             const char *file, int line);

/* The status of one runtime call: CUDA_CHECK(device, cudaMemsetAsync(...)). */
#define CUDA_CHECK(device, call) cuda_checked((device), (call), #call, __FILE__, __LINE__)

static inline cddp_status cuda_checked(const struct cddpi_device *device, cudaError_t error,
                                       const char *call, const char *file, int line)
{
    return error == cudaSuccess ? CDDP_OK : cuda_failed_call(device, error, call, file, line);
}

/* The status of the last launch: CUDA_CHECK_LAUNCH(device, "gelu"). */
#define CUDA_CHECK_LAUNCH(device, kernel)                                                          \
    cuda_checked((device), cudaGetLastError(), "launch of " kernel, __FILE__, __LINE__)

/** A driver function, such as "cuStreamWaitValue32". NULL: this driver does not have it. */
void *cuda_driver_symbol(const char *name);

#ifdef __cplusplus
}
#endif
#endif
