/* conv.h - convolution and its two gradients as operation graphs of cuDNN, channels last. */
#ifndef CDDPI_KERNELS_CUDA_CUDNN_CONV_H
#define CDDPI_KERNELS_CUDA_CUDNN_CONV_H

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/cudnn/cudnn_plan.h"
#include "kernels/cuda/few_channels.h"

enum cddpi_cudnn_conv_id { CDDPI_CONV_X = 1, CDDPI_CONV_W, CDDPI_CONV_Y };

/** Add the operation to an empty graph; @p pass decides which of x, w and y is the result. All
 *  three have the shape's type: cuDNN has no engines that compute a float32 gradient of filters
 *  from 16-bit activations. Check graph->status afterwards. */
void cddpi_cudnn_conv_build(struct cddpi_cudnn_graph *graph, enum cddpi_cudnn_conv_pass pass,
                            const struct cddpi_cuda_conv *shape);

/** Whether a 16-bit input has so few channels that, for the filters' gradient, it is copied to
 *  whole vectors of channels, padded with zeros. For the first convolution of ResNet-50 with 256
 *  images, in bf16 on an H100, cuDNN 9.14 takes 1005 us with the copy and 1190 us without. Forward
 *  gains nothing: 1884 us and 1830 us. */
bool cddpi_cudnn_conv_few(const struct cddpi_cuda_conv *shape);

/** @p shape with the channels of such a copy. */
struct cddpi_cuda_conv cddpi_cudnn_conv_whole(const struct cddpi_cuda_conv *shape);

#endif
