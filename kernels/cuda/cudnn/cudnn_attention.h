/* cudnn_attention.h - causal attention and its gradient as operation graphs of cuDNN. */
#ifndef CDDPI_KERNELS_CUDA_CUDNN_ATTENTION_H
#define CDDPI_KERNELS_CUDA_CUDNN_ATTENTION_H

#include "kernels/cuda/cuda_kernels.h"
#include "kernels/cuda/cudnn/cudnn_plan.h"

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
    CDDPI_ATTENTION_DQ_SUMS /* scratch: batch x heads x length x head float32, if the plan uses it
                             */
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

#endif
