/* scratch.h - device memory to work in, one for all kernels that need some beyond what their
 * callers give. */
#ifndef CDDPI_CUDA_SCRATCH_H
#define CDDPI_CUDA_SCRATCH_H

#include "kernels/cuda/kernels_module.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Whether the compute stream's work is being captured: then nothing can be allocated. */
bool cddpi_cuda_capturing(struct cddpi_device *device);

/** At least @p bytes, 256-byte aligned, for work of the compute stream, until the next call. It
 * grows outside of captured graphs only (else CDDP_ERR_UNAVAILABLE): captured work has asked for as
 * much before. */
cddp_status cddpi_cuda_scratch(struct cddpi_device *device, size_t bytes, void **out);

/** The part of scratch in first_use_bytes of struct cddpi_cuda_kernels. */
size_t cddpi_cuda_scratch_first_use_bytes(struct cddpi_device *device);

#ifdef __cplusplus
}
#endif
#endif
