/* cuda_device.h - a CUDA device as the module's own sources see it: streams, errors, and
 * NVIDIA's libraries, which are opened when they are first needed. */
#ifndef CDDPI_CUDA_DEVICE_H
#define CDDPI_CUDA_DEVICE_H

#include "device/module.h"
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
    int capability;     /* 10 x major + minor: 90 */
    uint64_t recording; /* number of the recording that is being made; 0: none is */
    uint64_t recordings;
    bool incomplete; /* the recording lacks what was refused while it was made */
    struct cddpi_cuda_kernels kernels;
    struct cuda_profile *profile;                  /* NULL: kernels are not profiled */
    struct cddpi_cuda_kept kept[CDDPI_CUDA_PARTS]; /* by kernels */
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

/** As record and order of the device, in a stream of the caller's, which is not being recorded. */
cddp_status cuda_event_record_in(struct cddpi_device *device, struct cddpi_event *event,
                                 cudaStream_t stream);
cddp_status cuda_event_order_in(struct cddpi_device *device, cudaStream_t stream,
                                struct cddpi_event *event);

/* --- errors --- */

/* What cudaEventQuery() or cudaStreamQuery() said. "Not ready" is no failure, but the runtime may
 * keep it like one, and the next check of a launch would find it. */
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

/** The text of a call of the runtime that returned @p error, with where it was made. Recording that
 *  was refused becomes CDDP_ERR_UNAVAILABLE, no memory CDDP_ERR_NO_MEMORY, the rest
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

/* What the last launch said, if anything: CUDA_CHECK_LAUNCH(device, "gelu"). */
#define CUDA_CHECK_LAUNCH(device, kernel)                                                          \
    cuda_checked((device), cudaGetLastError(), "launch of " kernel, __FILE__, __LINE__)

/* --- libraries that are opened at run time --- */

enum cuda_library {
    CUDA_LIBRARY_CUBLASLT,
    CUDA_LIBRARY_CUDNN,
    CUDA_LIBRARY_NCCL,
    CUDA_LIBRARY_COUNT
};

/** Open @p library, once a process, under the major version that the module was built for (or one
 *  that is known to work); never closed. CDDP_ERR_UNAVAILABLE: the loader's reason. Any thread. */
cddp_status cuda_library_open(const struct cddpi_module_host *host, enum cuda_library library,
                              void **out);

/** A function of an opened library: *(void **)&function = cuda_library_symbol(library, "name");
 *  NULL: it has none. */
void *cuda_library_symbol(void *library, const char *name);

/** A function of the driver, such as "cuStreamWaitValue32"; NULL: this driver has none. */
void *cuda_driver_symbol(const char *name);

#ifdef __cplusplus
}
#endif
#endif
