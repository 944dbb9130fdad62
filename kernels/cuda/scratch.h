/* scratch.h - one block of device memory for all kernels that need scratch beyond what their
 * callers provide. */
#ifndef CDDPI_CUDA_SCRATCH_H
#define CDDPI_CUDA_SCRATCH_H

#include "kernels/cuda/kernels_module.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Whether the compute stream is being captured, so that nothing can be allocated. */
bool cddpi_cuda_capturing(struct cddpi_device *device);

/** At least @p bytes, 256-byte aligned, for work in the compute stream, valid until the next call.
 *  It grows only outside of captures (in a capture: CDDP_ERR_UNAVAILABLE), so the same work must
 *  have run uncaptured before. */
cddp_status cddpi_cuda_scratch(struct cddpi_device *device, size_t bytes, void **out);

/** The share of scratch in first_use_bytes of struct cddpi_cuda_kernels. */
size_t cddpi_cuda_scratch_first_use_bytes(struct cddpi_device *device);

#ifdef __cplusplus
}
#endif
#endif
