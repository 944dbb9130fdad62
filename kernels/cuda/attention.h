/* attention.h - causal attention by kernels of our own. Shapes must not be empty. */
#ifndef CDDPI_CUDA_ATTENTION_H
#define CDDPI_CUDA_ATTENTION_H

#include "kernels/cuda/kernels_module.h"

#ifdef __cplusplus
extern "C" {
#endif

/** Implements cddpi_cuda_kernels.attention. CDDP_ERR_UNAVAILABLE: heads wider than 256. */
cddp_status cddpi_cuda_own_attention(struct cddpi_device *device,
                                     const struct cddpi_cuda_attention *shape, const void *qkv,
                                     void *out, float *stats);
/** @p scratch: cddpi_cuda_own_attention_scratch() bytes. */
cddp_status cddpi_cuda_own_attention_grad(struct cddpi_device *device,
                                          const struct cddpi_cuda_attention *shape, const void *qkv,
                                          const void *out, const float *stats, const void *dout,
                                          void *dqkv, float *scratch);
size_t cddpi_cuda_own_attention_scratch(const struct cddpi_cuda_attention *shape);

#ifdef __cplusplus
}
#endif
#endif
