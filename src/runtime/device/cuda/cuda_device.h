/* cuda_device.h - a CUDA device as the module's own sources see it: streams and errors. */
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
    struct cddpi_device base; /* first: a struct cddpi_device * is one to this */
    const struct cddpi_module_host *host;
    cudaStream_t streams[CDDPI_STREAM_COUNT];
    bool adopted;       /* the compute stream is the caller's */
    cudaMemPool_t pool; /* NULL: the device has none, so allocation waits for it */
    int multiprocessors;
    int capability;   /* 10 x major + minor: 90 */
    uint64_t capture; /* number of the capture that is being made; 0: none is */
    uint64_t captures;
    bool incomplete; /* the capture lacks what was refused while it was made */
    struct cddpi_cuda_kernels kernels;
    struct cuda_profile *profile;                           /* NULL: kernels are not profiled */
    struct cddpi_cuda_cache caches[CDDPI_CUDA_CACHE_KINDS]; /* by kernels */
};

static inline struct cuda_device *cuda_device_of(struct cddpi_device *device)
{
    return (struct cuda_device *)(void *)device;
}

/* The stream to put work into; makes the device the calling thread's, which launches need. */
static inline cudaStream_t cuda_device_stream(struct cddpi_device *device, enum cddpi_stream stream)
{
    (void)cudaSetDevice(device->index); /* an error comes again from what is put there */
    return cuda_device_of(device)->streams[stream];
}

/** As record and order of the device, in a stream of the caller's, which is not being captured. */
cddp_status cuda_event_record_in(struct cddpi_device *device, struct cddpi_event *event,
                                 cudaStream_t stream);
cddp_status cuda_event_order_in(struct cddpi_device *device, cudaStream_t stream,
                                struct cddpi_event *event);

/* --- errors --- */

/* The result of cudaEventQuery() or cudaStreamQuery(). "Not ready" is no failure, but the runtime
 * may keep it like one, and the next check of a launch would report it. */
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

/** The text of a call of the runtime that returned @p error, with where it was made. A refused
 *  capture becomes CDDP_ERR_UNAVAILABLE, no memory CDDP_ERR_NO_MEMORY, the rest
 *  CDDP_ERR_DEVICE. */
cddp_status cuda_failed_call(const struct cddpi_device *device, cudaError_t error, const char *call,
                             const char *file, int line);

/* The status of one call of the runtime: CUDA_CHECK(device, cudaMemsetAsync(...)). */
#define CUDA_CHECK(device, call) cuda_checked((device), (call), #call, __FILE__, __LINE__)

static inline cddp_status cuda_checked(const struct cddpi_device *device, cudaError_t error,
                                       const char *call, const char *file, int line)
{
    return error == cudaSuccess ? CDDP_OK : cuda_failed_call(device, error, call, file, line);
}

/* The status of the last launch: CUDA_CHECK_LAUNCH(device, "gelu"). */
#define CUDA_CHECK_LAUNCH(device, kernel)                                                          \
    cuda_checked((device), cudaGetLastError(), "launch of " kernel, __FILE__, __LINE__)

/** A function of the driver, such as "cuStreamWaitValue32"; NULL: this driver has none. */
void *cuda_driver_symbol(const char *name);

#ifdef __cplusplus
}
#endif
#endif
