/* services.h - the services of kernels_module.h as a table, from the module that opens devices. */
#ifndef CDDPI_KERNELS_CUDA_SERVICES_H
#define CDDPI_KERNELS_CUDA_SERVICES_H

#include "kernels/cuda/kernels_module.h"

struct cddpi_cuda_services {
    cudaStream_t (*compute_stream)(struct cddpi_device *device);
    cudaStream_t (*comm_stream)(struct cddpi_device *device);
    cddp_status (*status)(const struct cddpi_device *device, cudaError_t error, const char *call,
                          const char *file, int line);
    cddp_status (*fail)(const struct cddpi_device *device, cddp_status status, const char *text);
    cddp_status (*alloc)(struct cddpi_device *device, size_t bytes, const char *what, void **out);
    void (*release)(struct cddpi_device *device, void *memory);
    cddp_status (*pin)(struct cddpi_device *device, size_t bytes, void **out);
    void (*unpin)(struct cddpi_device *device, void *memory);
    cddp_status (*copy)(struct cddpi_device *device, void *to, const void *from, size_t bytes);
    cddp_status (*clear)(struct cddpi_device *device, void *memory, size_t bytes);
    size_t (*multiprocessors)(const struct cddpi_device *device);
    const struct cddpi_cuda_kernels *(*rows)(struct cddpi_device *device);
    struct cddpi_tuning *(*tuning)(struct cddpi_device *device, const char *subject,
                                   const char *library);
    struct cddpi_cuda_cache *(*cache)(struct cddpi_device *device, enum cddpi_cuda_cache_kind kind);
};

/** Set the services. Call this before any kernel starts; @p services must stay valid, and are the
 *  same for all devices. */
void cddpi_cuda_services_use(const struct cddpi_cuda_services *services);

#endif
