/* few_channels.h - pads images with fewer channels than a 16-byte vector to whole vectors, and
 * copies their filters' gradients back. */
#ifndef CDDPI_CUDA_FEW_CHANNELS_H
#define CDDPI_CUDA_FEW_CHANNELS_H

#include "kernels/cuda/kernels_module.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Elements of 16 bits in 16 bytes. */
enum { CDDPI_WHOLE_CHANNELS = 8 };

/** See pad_channels and add_channels of struct cddpi_cuda_kernels. */
cddp_status cddpi_cuda_pad_channels(struct cddpi_device *device, cddp_type type, const void *x,
                                    size_t rows, int channels, void *out);
cddp_status cddpi_cuda_add_channels(struct cddpi_device *device, cddp_type type, const void *x,
                                    size_t rows, int channels, bool add, float *out);

#ifdef __cplusplus
}
#endif
#endif
