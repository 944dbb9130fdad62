/* kernels.c - gives the kernels what they need from a device (kernels/cuda/kernels_module.h). */
#include "device/cuda/cuda_internal.h"

static cudaStream_t compute_stream(struct cddpi_device *device)
{
    return cuda_device_stream(device, CDDPI_STREAM_COMPUTE);
}

static cudaStream_t comm_stream(struct cddpi_device *device)
{
    return cuda_device_stream(device, CDDPI_STREAM_COMM);
}

static cddp_status status_of(struct cddpi_device *device, cudaError_t error, const char *call,
                             const char *file, int line)
{
    return cuda_checked(device, error, call, file, line);
}

static cddp_status fail(struct cddpi_device *device, cddp_status status, const char *text)
{
    return cuda_fail(device, status, "%s", text);
}

static cddp_status copy(struct cddpi_device *device, void *to, const void *from, size_t bytes)
{
    return cuda_copy(device, CDDPI_STREAM_COMPUTE, to, from, bytes);
}

static cddp_status clear(struct cddpi_device *device, void *memory, size_t bytes)
{
    return cuda_clear(device, CDDPI_STREAM_COMPUTE, memory, bytes);
}

static const struct cddpi_cuda_kernels *rows(struct cddpi_device *device)
{
    return device->kernels;
}

static struct cddpi_cuda_cache *cache(struct cddpi_device *device, enum cddpi_cuda_cache_kind kind)
{
    return &cuda_device_of(device)->caches[kind];
}

void cuda_kernels_serve(void)
{
    static const struct cddpi_cuda_services services = {
        .compute_stream = compute_stream,
        .comm_stream = comm_stream,
        .status = status_of,
        .fail = fail,
        .alloc = cuda_alloc,
        .release = cuda_release,
        .pin = cuda_pin,
        .unpin = cuda_unpin,
        .copy = copy,
        .clear = clear,
        .rows = rows,
        .cache = cache,
    };

    cddpi_cuda_services_use(&services);
}
