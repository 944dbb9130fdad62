/* cudnn.h - the entries of the table of kernels that cuDNN can take over.
 *
 * Each call reports in @p out_done whether it has enqueued the work in the compute stream. If it
 * has not and returns CDDP_OK, there is no cuDNN here, or cuDNN has no working engine for the
 * shape; the caller then uses kernels of its own. This is found out once for each shape, outside of
 * captured graphs. */
#ifndef CDDPI_KERNELS_CUDA_CUDNN_CUDNN_H
#define CDDPI_KERNELS_CUDA_CUDNN_CUDNN_H

#include "kernels/cuda/kernels_module.h"

#if CDDP_HAVE_CUDNN

cddp_status cddpi_cudnn_attention(struct cddpi_device *device,
                                  const struct cddpi_cuda_attention *shape, const void *qkv,
                                  void *out, float *stats, bool *out_done);
cddp_status cddpi_cudnn_attention_grad(struct cddpi_device *device,
                                       const struct cddpi_cuda_attention *shape, const void *qkv,
                                       const void *out, const float *stats, const void *dout,
                                       void *dqkv, bool *out_done);
cddp_status cddpi_cudnn_conv(struct cddpi_device *device, const struct cddpi_cuda_conv *shape,
                             const void *x, const void *weight, void *y, bool *out_done);
cddp_status cddpi_cudnn_conv_input(struct cddpi_device *device, const struct cddpi_cuda_conv *shape,
                                   const void *dy, const void *weight, void *dx, bool *out_done);
cddp_status cddpi_cudnn_conv_weight(struct cddpi_device *device,
                                    const struct cddpi_cuda_conv *shape, const void *dy,
                                    const void *x, bool add, float *dweight, bool *out_done);

#else /* built without cuDNN's headers */

#define cddpi_cudnn_attention(...) CDDP_OK
#define cddpi_cudnn_attention_grad(...) CDDP_OK
#define cddpi_cudnn_conv(...) CDDP_OK
#define cddpi_cudnn_conv_input(...) CDDP_OK
#define cddpi_cudnn_conv_weight(...) CDDP_OK

#endif

#endif
