/* batch_norm_op.h - what batch normalisation over all ranks needs beyond that over one rank's
 * batch, on the CPU and on a device. */
#ifndef CDDPI_NN_OPS_BATCH_NORM_H
#define CDDPI_NN_OPS_BATCH_NORM_H

#include "kernels/cuda/cuda_kernels.h"
#include "nn/plan/model_plan.h"

/* Moments of a batch in float64: count, means, and sums of squared deviations, which are later
 * divided by the count. */
static inline size_t cddpi_norm_moment_count(size_t channels)
{
    return 1 + 2 * channels;
}

/** Blend the mean and the unbiased variance in @p moments into the running statistics of exec->op.
 */
void cddpi_batch_norm_update(const struct cddpi_exec *exec, const double *moments);

/* Over all ranks. Each rank may have another number of samples, including 0. */

/** Whether @p op communicates with other ranks. */
bool cddpi_sync_norm_wanted(const struct cddpi_model *model, const struct cddpi_op *op);
/** Replace this rank's @p moments (with sums of squares) by those of all ranks. */
CDDP_CHECKED cddp_status cddpi_sync_norm_merge(const struct cddpi_exec *exec, double *moments);
/** Add up all ranks' @p sums (2 x channels). Each rank's gradient scale is removed before the sum,
 *  and this rank's scale is applied to the result. */
CDDP_CHECKED cddp_status cddpi_sync_norm_share(const struct cddpi_exec *exec, double *sums);
CDDP_CHECKED cddp_status cddpi_sync_norm_idle_forward(struct cddpi_exec *exec);
CDDP_CHECKED cddp_status cddpi_sync_norm_idle_backward(struct cddpi_exec *exec);

/* The same on a device. */
struct cddpi_cuda_sync_norm {
    struct cddpi_cuda_norm shape; /* for this rank's batch */
    int mean, inverse;            /* buffers: for all ranks' batches together */
    int rows;                     /* buffer: one double, the number of values per channel */
};
/** Allocate memory for the exchange between ranks, if any op needs it. CDDP_ERR_CONFIG: their group
 *  is not on the device. */
CDDP_CHECKED cddp_status cddpi_cuda_sync_norm_create(struct cddpi_model *model);
CDDP_CHECKED cddp_status cddpi_cuda_sync_norm_forward(struct cddpi_exec *exec,
                                                      const struct cddpi_cuda_sync_norm *norm);
CDDP_CHECKED cddp_status cddpi_cuda_sync_norm_backward(struct cddpi_exec *exec,
                                                       const struct cddpi_cuda_sync_norm *norm,
                                                       void *grad_input);
CDDP_CHECKED cddp_status cddpi_cuda_sync_norm_idle_forward(struct cddpi_exec *exec);
CDDP_CHECKED cddp_status cddpi_cuda_sync_norm_idle_backward(struct cddpi_exec *exec);

#endif
