/* batch_norm_op.h - what batch normalisation over all ranks adds to that over one rank's batch,
 * here and on a device. */
#ifndef CDDPI_NN_OPS_BATCH_NORM_H
#define CDDPI_NN_OPS_BATCH_NORM_H

#include "kernels/cuda/cuda_kernels.h"
#include "nn/plan/model_plan.h"

/* Moments of a batch: count, means and sums of squared deviations, in float64, which are then
 * divided by the count. */
static inline size_t cddpi_norm_moment_count(size_t channels)
{
    return 1 + 2 * channels;
}

/** Blend the mean and the unbiased form of the variance in @p moments into the running statistics
 *  of exec->op. */
void cddpi_batch_norm_update(const struct cddpi_exec *exec, const double *moments);

/* Over all ranks, of which each may have another count of samples, or none. */

/** Whether @p op talks to other ranks. */
bool cddpi_sync_norm_wanted(const struct cddpi_model *model, const struct cddpi_op *op);
/** Turn this rank's @p moments (with sums of squares) into those of all ranks. */
CDDP_CHECKED cddp_status cddpi_sync_norm_merge(const struct cddpi_exec *exec, double *moments);
/** Add up the ranks' @p sums (2 x channels), each without the scale of its gradients, and give them
 *  this rank's. */
CDDP_CHECKED cddp_status cddpi_sync_norm_share(const struct cddpi_exec *exec, double *sums);
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
