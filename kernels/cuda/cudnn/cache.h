/* cache.h - cuDNN's part of the device cache: its handle, and a plan for each shape. */
#ifndef CDDPI_KERNELS_CUDA_CUDNN_CACHE_H
#define CDDPI_KERNELS_CUDA_CUDNN_CACHE_H

#include "kernels/cuda/cudnn/cudnn_plan.h"

enum cddpi_cudnn_kind {
    CDDPI_CUDNN_ATTENTION,
    CDDPI_CUDNN_ATTENTION_GRAD,
    CDDPI_CUDNN_CONV, /* + enum cddpi_cudnn_conv_pass */
};

/* The key of a plan. It is compared as memory; there is no padding, because all members have the
 * same size. */
struct cddpi_cudnn_key {
    int32_t kind, type;
    int32_t sizes[8];
    /* Not 0: engines are chosen by measured time, with cddpi_cudnn_plan_measure(). */
    int32_t any_order;
};

struct cddpi_cudnn_use {
    const struct cddpi_cudnn *cudnn;
    cudnnHandle_t handle;
    struct cddpi_cudnn_plan *plan;
};

/** Find the plan for @p key; the first time, @p build makes its graph from @p shape. @p out->plan
 *  NULL: there is no cuDNN here, or cuDNN cannot do it (the first call words the reason), or the
 *  plan has failed before. CDDP_ERR_UNAVAILABLE: the shape is new and work is being captured. */
cddp_status cddpi_cudnn_find(struct cddpi_device *device, const struct cddpi_cudnn_key *key,
                             void (*build)(struct cddpi_cudnn_graph *graph, const void *shape),
                             const void *shape, struct cddpi_cudnn_use *out);

#endif
