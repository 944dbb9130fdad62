/* cache.h - what the device cache holds of cuDNN: its handle, and a plan for each shape. */
#ifndef CDDPI_KERNELS_CUDA_CUDNN_CACHE_H
#define CDDPI_KERNELS_CUDA_CUDNN_CACHE_H

#include "kernels/cuda/cudnn/cudnn_plan.h"

enum cddpi_cudnn_kind {
    CDDPI_CUDNN_ATTENTION,
    CDDPI_CUDNN_ATTENTION_GRAD,
    CDDPI_CUDNN_CONV, /* + enum cddpi_cudnn_conv_pass */
};

/* What a plan is found by; padding is none, for all members are of the same size. */
struct cddpi_cudnn_key {
    int32_t kind, type;
    int32_t sizes[8];
    /* Not 0: engines are chosen by time, which cddpi_cudnn_plan_measure() does. */
    int32_t any_order;
};

struct cddpi_cudnn_use {
    const struct cddpi_cudnn *cudnn;
    cudnnHandle_t handle;
    struct cddpi_cudnn_plan *plan;
};

/** The plan for @p key, whose graph @p build makes from @p shape the first time. @p out->plan NULL:
 *  there is no cuDNN here, or it cannot do it (the reason is in the error's text, once), or the
 *  plan has failed. CDDP_ERR_UNAVAILABLE: the shape is new while work is captured. */
cddp_status cddpi_cudnn_find(struct cddpi_device *device, const struct cddpi_cudnn_key *key,
                             void (*build)(struct cddpi_cudnn_graph *graph, const void *shape),
                             const void *shape, struct cddpi_cudnn_use *out);

#endif
