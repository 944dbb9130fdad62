/* cudnn_graphs.h - causal attention and convolution (channels last), and their gradients, as
 * operation graphs of cuDNN. */
#ifndef CDDPI_KERNELS_CUDA_CUDNN_GRAPHS_H
#define CDDPI_KERNELS_CUDA_CUDNN_GRAPHS_H

#include "kernels/cuda/cudnn/cudnn_plan.h"
#include "kernels/cuda/own_kernels.h"

/* The ids of a plan's pointers. */
enum cddpi_cudnn_attention_id {
    CDDPI_ATTENTION_Q = 1,
    CDDPI_ATTENTION_K,
    CDDPI_ATTENTION_V,
    CDDPI_ATTENTION_OUT,
    CDDPI_ATTENTION_STATS,
    CDDPI_ATTENTION_SCALE,  /* 1 / sqrt(head), in CPU memory */
    CDDPI_ATTENTION_HIDDEN, /* minus infinity, in CPU memory */
    CDDPI_ATTENTION_DOUT,
    CDDPI_ATTENTION_DQ,
    CDDPI_ATTENTION_DK,
    CDDPI_ATTENTION_DV,
    CDDPI_ATTENTION_ONE,    /* 1, in CPU memory */
    CDDPI_ATTENTION_DOTS,   /* scratch: batch x heads x length float32 */
    CDDPI_ATTENTION_DQ_SUMS /* scratch, if the plan uses it: batch x heads x length x head
                                float32 */
};

/** Whether to try cuDNN at all: 16-bit types, head width a multiple of 8 up to 128, and no shape
 *  that this version computes wrongly. Otherwise CDDP_ERR_UNAVAILABLE with the reason. */
cddp_status cddpi_cudnn_attention_fits(const struct cddpi_cudnn *cudnn,
                                       const struct cddpi_cuda_attention *shape);

/** Add the operations to an empty graph. Check graph->status afterwards. */
void cddpi_cudnn_attention_forward(struct cddpi_cudnn_graph *graph,
                                   const struct cddpi_cuda_attention *shape);
/** @p sums_dq: several blocks sum the gradient of the queries in float32 scratch, in any order: for
 *  devices where cuDNN has nothing else. */
void cddpi_cudnn_attention_backward(struct cddpi_cudnn_graph *graph,
                                    const struct cddpi_cuda_attention *shape, bool sums_dq);

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
