/* kernel_list.h - the list of all kernels of this module, and loading them.
 *
 * CUDA loads a kernel when it is first launched unless it is told to load all of a module, and that
 * may wait for everything that is under way on the device. A stream that waits for another process
 * would then never go on: what that process waits for in turn is behind the load. So all of them
 * are loaded when a device is opened, when nothing is under way. */
#ifndef CDDPI_KERNELS_CUDA_KERNEL_LIST_H
#define CDDPI_KERNELS_CUDA_KERNEL_LIST_H

#include "kernels/cuda/kernels_module.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One kernel. Static: it is in the list from before the module's first call. */
struct cddpi_cuda_kernel_entry {
    const void *kernel;
    const struct cddpi_cuda_kernel_entry *next;
#ifdef __cplusplus
    explicit cddpi_cuda_kernel_entry(const void *which);
#endif
};

/** The last that was added; NULL: none. */
extern const struct cddpi_cuda_kernel_entry *cddpi_cuda_kernel_list;

/** Load all kernels on @p device, which is the calling thread's. */
cddp_status cddpi_cuda_load_kernels(struct cddpi_device *device);

#ifdef __cplusplus
}

inline cddpi_cuda_kernel_entry::cddpi_cuda_kernel_entry(const void *which)
    : kernel(which), next(cddpi_cuda_kernel_list)
{
    cddpi_cuda_kernel_list = this;
}
#endif
#endif
