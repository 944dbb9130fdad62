/* batch_norm.h - the ways to normalise: one rank's batch (oneDNN) or that of all ranks, here or on
 * a device. */
#ifndef CDDPI_NN_OPS_BATCH_NORM_H
#define CDDPI_NN_OPS_BATCH_NORM_H

#include "kernels/cuda/cuda_kernels.h"
#include "nn/plan/plan.h"

/** Blend @p mean and the unbiased form of @p variance of a batch of @p count values a channel into
 *  the running statistics of exec->op. */
void cddpi_batch_norm_update(const struct cddpi_exec *exec, const float *mean,
                             const float *variance, double count);

/* Over all ranks, of which each may have another count of samples, or none. */
struct cddpi_sync_norm {
    bool alone;         /* this rank's batch is all there is */
    int mean, variance; /* buffers: of all ranks' batches together */
    int count;          /* buffer: one double, of how many values a channel */
};
CDDP_CHECKED cddp_status cddpi_sync_norm_plan(struct cddpi_plan *plan, int op, bool alone,
                                              struct cddpi_sync_norm *norm);
CDDP_CHECKED cddp_status cddpi_sync_norm_forward(struct cddpi_exec *exec,
                                                 const struct cddpi_sync_norm *norm);
/** In evaluation: by the running statistics. */
CDDP_CHECKED cddp_status cddpi_sync_norm_evaluate(struct cddpi_exec *exec);
CDDP_CHECKED cddp_status cddpi_sync_norm_backward(struct cddpi_exec *exec,
                                                  const struct cddpi_sync_norm *norm);
/** Whether @p op talks to other ranks. */
bool cddpi_sync_norm_wanted(const struct cddpi_model *model, const struct cddpi_op *op);
CDDP_CHECKED cddp_status cddpi_sync_norm_idle_forward(struct cddpi_exec *exec);
CDDP_CHECKED cddp_status cddpi_sync_norm_idle_backward(struct cddpi_exec *exec);

/* The same on a device. */
struct cddpi_cuda_sync_norm {
    struct cddpi_cuda_norm shape; /* of this rank's batch */
    int mean, inverse;            /* buffers: of all ranks' batches together */
    int rows;                     /* buffer: one double, of how many values a channel */
};
/** Memory for what ranks exchange, if any op exchanges something; CDDP_ERR_CONFIG if their group is
 *  not on the device. */
CDDP_CHECKED cddp_status cddpi_cuda_sync_norm_create(struct cddpi_model *model);
CDDP_CHECKED cddp_status cddpi_cuda_sync_norm_forward(struct cddpi_exec *exec,
                                                      const struct cddpi_cuda_sync_norm *norm);
CDDP_CHECKED cddp_status cddpi_cuda_sync_norm_backward(struct cddpi_exec *exec,
                                                       const struct cddpi_cuda_sync_norm *norm,
                                                       void *grad_input);
CDDP_CHECKED cddp_status cddpi_cuda_sync_norm_idle_forward(struct cddpi_exec *exec);
CDDP_CHECKED cddp_status cddpi_cuda_sync_norm_idle_backward(struct cddpi_exec *exec);

#endif
