/* sync_norm.c - owns the communication between ranks for batch normalisation over all ranks'
 * batches.
 *
 * Forward: every rank gathers (count, mean, sum of squared deviations) from all ranks and merges
 * them in rank order (Chan, Golub and LeVeque), in float64. This avoids differences of large sums,
 * and gives the same bits on every rank. Backward: an allreduce of the two sums over the whole
 * batch that the derivative needs. Each rank's gradients are scaled by a factor of its own (e.g. 1
 * / its samples), so that factor is removed from the sums before they are sent. A rank without
 * samples takes part with zeros. */
#include "base/alloc.h"
#include "base/error.h"
#include "nn/model_state.h"
#include "nn/ops/batch_norm_op.h"

#include <string.h>

bool cddpi_sync_norm_wanted(const struct cddpi_model *model, const struct cddpi_op *op)
{
    return op->layer.sync && model->group != NULL && cddp_group_world_size(model->group) > 1;
}

static void merge(double *into, const double *from, size_t channels)
{
    double count = into[0] + from[0];

    if (from[0] == 0) {
        return;
    }
    for (size_t c = 0; c < channels; c++) {
        double *mean = &into[1 + c];
        double *squares = &into[1 + channels + c];
        double difference = from[1 + c] - *mean;

        *mean += difference * (from[0] / count);
        *squares += from[1 + channels + c] + difference * difference * (into[0] * from[0] / count);
    }
    into[0] = count;
}

static cddp_status no_memory(const struct cddpi_exec *exec)
{
    return cddpi_fail(CDDP_ERR_NO_MEMORY, "batch_norm: no memory for statistics of %d channels",
                      exec->op->in.channels);
}

cddp_status cddpi_sync_norm_merge(const struct cddpi_exec *exec, double *moments)
{
    cddp_group *group = exec->model->group;
    size_t channels = (size_t)exec->op->in.channels;
    size_t doubles = cddpi_norm_moment_count(channels);
    size_t ranks = (size_t)cddp_group_world_size(group);
    double *all = cddpi_zalloc_array(ranks * doubles, sizeof *all);
    cddp_status status;

    if (all == NULL) {
        return no_memory(exec);
    }
    status = cddp_all_gather(group, moments, all, doubles, CDDP_F64, NULL);
    if (status == CDDP_OK) {
        memset(moments, 0, doubles * sizeof *moments);
        for (size_t rank = 0; rank < ranks; rank++) {
            merge(moments, all + rank * doubles, channels);
        }
    }
    cddpi_free(all);
    return status;
}

void cddpi_batch_norm_update(const struct cddpi_exec *exec, const double *moments)
{
    double momentum = exec->op->layer.momentum;
    double count = moments[0];
    double unbiased = count > 1 ? count / (count - 1) : 1;
    const double *mean = moments + 1;
    const double *variance = mean + exec->op->in.channels;
    float *running_mean = cddpi_exec_running(exec, 0);
    float *running_variance = cddpi_exec_running(exec, 1);

    for (int c = 0; !exec->recomputed && c < exec->op->in.channels; c++) { /* once for each batch */
        running_mean[c] = (float)((1 - momentum) * (double)running_mean[c] + momentum * mean[c]);
        running_variance[c] = (float)((1 - momentum) * (double)running_variance[c] +
                                      momentum * unbiased * variance[c]);
    }
}

cddp_status cddpi_sync_norm_idle_forward(struct cddpi_exec *exec)
{
    size_t channels = (size_t)exec->op->in.channels;
    double *moments = cddpi_zalloc_array(cddpi_norm_moment_count(channels), sizeof *moments);
    cddp_status status = moments != NULL ? cddpi_sync_norm_merge(exec, moments) : no_memory(exec);

    if (status == CDDP_OK && moments[0] > 0) {
        for (size_t c = 0; c < channels; c++) {
            moments[1 + channels + c] /= moments[0];
        }
        cddpi_batch_norm_update(exec, moments);
    }
    cddpi_free(moments);
    return status;
}

cddp_status cddpi_sync_norm_share(const struct cddpi_exec *exec, double *sums)
{
    size_t count = 2 * (size_t)exec->op->in.channels;
    cddp_status status;

    for (size_t i = 0; i < count; i++) {
        sums[i] = exec->scale != 0 ? sums[i] / exec->scale : 0;
    }
    status = cddp_all_reduce(exec->model->group, sums, sums, count, CDDP_F64, CDDP_OP_SUM, NULL);
    for (size_t i = 0; i < count; i++) {
        sums[i] *= exec->scale;
    }
    return status;
}

cddp_status cddpi_sync_norm_idle_backward(struct cddpi_exec *exec)
{
    double *sums = cddpi_zalloc_array((size_t)exec->op->in.channels, 2 * sizeof *sums);
    cddp_status status = sums != NULL ? cddpi_sync_norm_share(exec, sums) : no_memory(exec);

    cddpi_free(sums);
    return status;
}
