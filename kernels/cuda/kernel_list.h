/* kernel_list.h - the list of all kernels of this module, and loading them.
 *
 * By default CUDA loads a kernel when it is first launched, and loading may wait for all work in
 * flight on the device. If a stream waits for another process, this can deadlock: the work that the
 * other process waits for is enqueued after the load. So all kernels are loaded when a device is
 * opened, when nothing is in flight. */
#ifndef CDDPI_KERNELS_CUDA_KERNEL_LIST_H
#define CDDPI_KERNELS_CUDA_KERNEL_LIST_H

#include "kernels/cuda/kernels_module.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One kernel. Entries are static, so they are in the list before the module's first call. */
struct cddpi_cuda_kernel_entry {
    const void *kernel;
    const struct cddpi_cuda_kernel_entry *next;
#ifdef __cplusplus
    explicit cddpi_cuda_kernel_entry(const void *which);
#endif
};

/** The entry that was added last; NULL: the list is empty. */
extern const struct cddpi_cuda_kernel_entry *cddpi_cuda_kernel_list;

/** Load all kernels on @p device, which must be the calling thread's current device. */
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
