/* kernels.c - what kernels ask of the device that they run on (kernels/cuda/kernels_module.h). */
#include "device/cuda/internal.h"

#include <stdio.h>

cudaStream_t cddpi_cuda_compute_stream(struct cddpi_device *device)
{
    return cuda_device_stream(device, CDDPI_STREAM_COMPUTE);
}

cudaStream_t cddpi_cuda_comm_stream(struct cddpi_device *device)
{
    return cuda_device_stream(device, CDDPI_STREAM_COMM);
}

cddp_status cddpi_cuda_status(struct cddpi_device *device, cudaError_t error, const char *call,
                              const char *file, int line)
{
    return cuda_checked(device, error, call, file, line);
}

cddp_status cddpi_cuda_fail(struct cddpi_device *device, cddp_status status, const char *format,
                            ...)
{
    char text[3072];
    va_list arguments;

    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return cuda_fail(device, status, "%s", text);
}

void *cddpi_cuda_host_alloc(struct cddpi_device *device, size_t bytes)
{
    return cuda_device_of(device)->host->alloc(bytes);
}

void cddpi_cuda_host_free(struct cddpi_device *device, void *memory)
{
    cuda_device_of(device)->host->free(memory);
}

struct cddpi_cuda_kept *cddpi_cuda_kept(struct cddpi_device *device, enum cddpi_cuda_part part)
{
    return &cuda_device_of(device)->kept[part];
}
