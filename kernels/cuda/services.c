/* services.c - owns the functions that a device provides to its kernels. */
#include "kernels/cuda/services.h"

#include <stdarg.h>
#include <stdio.h>

/* The same for all devices, so it does not matter which one sets it last. */
static const struct cddpi_cuda_services *services;

void cddpi_cuda_services_use(const struct cddpi_cuda_services *given)
{
    services = given;
}

cudaStream_t cddpi_cuda_compute_stream(struct cddpi_device *device)
{
    return services->compute_stream(device);
}

cudaStream_t cddpi_cuda_comm_stream(struct cddpi_device *device)
{
    return services->comm_stream(device);
}

cddp_status cddpi_cuda_status(const struct cddpi_device *device, cudaError_t error,
                              const char *call, const char *file, int line)
{
    return error == cudaSuccess ? CDDP_OK : services->status(device, error, call, file, line);
}

cddp_status cuda_fail(const struct cddpi_device *device, cddp_status status, const char *format,
                      ...)
{
    char text[3072];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return services->fail(device, status, text);
}

cddp_status cddpi_cuda_alloc(struct cddpi_device *device, size_t bytes, const char *what,
                             void **out)
{
    return services->alloc(device, bytes, what, out);
}

void cddpi_cuda_release(struct cddpi_device *device, void *memory)
{
    services->release(device, memory);
}

cddp_status cddpi_cuda_pin(struct cddpi_device *device, size_t bytes, void **out)
{
    return services->pin(device, bytes, out);
}

void cddpi_cuda_unpin(struct cddpi_device *device, void *memory)
{
    services->unpin(device, memory);
}

cddp_status cddpi_cuda_copy(struct cddpi_device *device, void *to, const void *from, size_t bytes)
{
    return services->copy(device, to, from, bytes);
}

cddp_status cddpi_cuda_clear(struct cddpi_device *device, void *memory, size_t bytes)
{
    return services->clear(device, memory, bytes);
}

size_t cddpi_cuda_multiprocessors(const struct cddpi_device *device)
{
    return services->multiprocessors(device);
}

const struct cddpi_cuda_kernels *cddpi_cuda_rows(struct cddpi_device *device)
{
    return services->rows(device);
}

struct cddpi_cuda_cache *cddpi_cuda_cache(struct cddpi_device *device,
                                          enum cddpi_cuda_cache_kind kind)
{
    return services->cache(device, kind);
}

struct cddpi_tuning *cddpi_cuda_tuning(struct cddpi_device *device, const char *subject,
                                       const char *library)
{
    return services->tuning(device, subject, library);
}
