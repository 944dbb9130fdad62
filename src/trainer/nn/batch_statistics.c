/* batch_statistics.c - owns running statistics that have one update a step: where forwards write
 * their batch's statistics, and the update by the sums of a step's batches. */
#include "base/error.h"
#include "nn/cuda/model_cuda.h"
#include "nn/model_state.h"

void cddpi_model_bind_statistics(struct cddpi_model *model, float *const *statistics)
{
    model->memory_version += model->statistics != statistics ? 1 : 0;
    model->statistics = statistics;
}

static void blend(double momentum, const float *sums, size_t count, float *running)
{
    for (size_t i = 0; i < count; i++) {
        running[i] = (float)((1 - momentum) * (double)running[i] + momentum * (double)sums[i]);
    }
}

static cddp_status blend_op(const struct cddpi_model *model, const struct cddpi_op *op,
                            float *const *sums)
{
    const float *mean = sums[op->buffers[0]];
    const float *variance = sums[op->buffers[1]];
    float *running_mean = model->buffers.items[op->buffers[0]].data;
    float *running_variance = model->buffers.items[op->buffers[1]].data;

    if (cddpi_device_is_async(model->device)) {
        return model->device->kernels->batch_norm_blend(model->device, op->in.channels,
                                                        op->layer.momentum, mean, variance,
                                                        running_mean, running_variance);
    }
    blend(op->layer.momentum, mean, (size_t)op->in.channels, running_mean);
    blend(op->layer.momentum, variance, (size_t)op->in.channels, running_variance);
    return CDDP_OK;
}

cddp_status cddpi_model_blend_statistics(const struct cddpi_model *model, float *const *sums)
{
    for (int i = 0; i < model->graph.op_count; i++) {
        const struct cddpi_op *op = &model->graph.ops[i];

        if (op->ops == &cddpi_op_batch_norm) {
            CDDPI_TRY(blend_op(model, op, sums));
        }
    }
    return CDDP_OK;
}
