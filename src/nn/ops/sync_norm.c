/* sync_norm.c - owns batch normalisation whose statistics are those of all ranks' batches together,
 * and that of one rank's batch where oneDNN has no kernel for it.
 *
 * Forward: every rank gathers every rank's (count, mean, sum of squared deviations) and merges them
 * in rank order (Chan, Golub and LeVeque), in float64: no difference of large sums, and the same
 * bits on every rank. Backward: the two sums over the whole batch that the derivative needs are
 * all-reduced. Each rank's gradients come scaled by a factor of its own (say 1 / its samples), so
 * these sums travel without it. A rank without samples takes part with zeros. */
#include "base/alloc.h"
#include "base/error.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/norm.h"
#include "nn/model_state.h"
#include "nn/ops/batch_norm.h"

#include <math.h>
#include <string.h>

bool cddpi_sync_norm_wanted(const struct cddpi_model *model, const struct cddpi_op *op)
{
    return op->layer.sync && model->group != NULL && cddp_group_world_size(model->group) > 1;
}

cddp_status cddpi_sync_norm_plan(struct cddpi_plan *plan, int index, bool alone,
                                 struct cddpi_sync_norm *norm)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    size_t bytes = (size_t)op->in.channels * sizeof(float);
    cddp_status status = cddpi_plan_buffer(plan, index, bytes, CDDPI_IN_BOTH, &norm->mean);

    norm->alone = alone;
    plan->ops[index].flags =
        CDDPI_NEEDS_INPUT | CDDPI_GRAD_INPLACE |
        (op->relu ? CDDPI_NEEDS_OUTPUT | CDDPI_MAKES_PREACT_GRAD | CDDPI_SUMS_GRADS : 0u);
    if (status == CDDP_OK) {
        status = cddpi_plan_buffer(plan, index, bytes, CDDPI_IN_BOTH, &norm->variance);
    }
    return status == CDDP_OK
               ? cddpi_plan_buffer(plan, index, sizeof(double), CDDPI_IN_BOTH, &norm->count)
               : status;
}

static struct cddpi_nn_layout layout_of(const struct cddpi_exec *exec)
{
    const struct cddpi_shape *in = &exec->op->in;

    return (struct cddpi_nn_layout){(size_t)exec->plan->count, (size_t)in->channels,
                                    (size_t)in->height * (size_t)in->width,
                                    (size_t)exec->plan->values[exec->op->output].block};
}

/* Count, means, sums of squared deviations: what a rank sends about its batch. */
static size_t moment_count(const struct cddpi_op *op)
{
    return 1 + 2 * (size_t)op->in.channels;
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

/* Exchange the moments at the front of @p memory, which has room for those of each rank behind
 * it; the merged ones end at the front. */
static cddp_status exchange(const struct cddpi_exec *exec, double *memory)
{
    cddp_group *group = exec->model->group;
    size_t channels = (size_t)exec->op->in.channels;
    size_t doubles = moment_count(exec->op);
    double *all = memory + doubles;
    cddp_status status = cddp_all_gather(group, memory, all, doubles, CDDP_F64, NULL);

    if (status != CDDP_OK) {
        return status;
    }
    memset(memory, 0, doubles * sizeof *memory);
    for (int rank = 0; rank < cddp_group_world_size(group); rank++) {
        merge(memory, all + (size_t)rank * doubles, channels);
    }
    return CDDP_OK;
}

static double *new_moments(const struct cddpi_exec *exec, bool alone)
{
    size_t ranks = alone ? 1 : (size_t)cddp_group_world_size(exec->model->group);

    return cddpi_zalloc_array((ranks + 1) * moment_count(exec->op), sizeof(double));
}

static cddp_status no_memory(const struct cddpi_exec *exec)
{
    return cddpi_fail(CDDP_ERR_NO_MEMORY, "batch_norm: no memory for statistics of %d channels",
                      exec->op->in.channels);
}

/* The moments of this rank's batch. The mean is rounded once, before deviations are taken from it:
 * their sum of squares is then exact about that mean. */
static void measure(const struct cddpi_exec *exec, float *mean, double *moments)
{
    struct cddpi_nn_layout layout = layout_of(exec);
    size_t channels = layout.channels;
    double count = (double)layout.samples * (double)layout.spatial;

    moments[0] = count;
    cddpi_nn_channel_sums(cddpi_exec_input(exec, 0), &layout, moments + 1);
    for (size_t c = 0; c < channels; c++) {
        mean[c] = (float)(moments[1 + c] / count);
        moments[1 + c] = (double)mean[c];
    }
    cddpi_nn_channel_squares(cddpi_exec_input(exec, 0), &layout, mean, moments + 1 + channels);
}

void cddpi_batch_norm_update(const struct cddpi_exec *exec, const float *mean,
                             const float *variance, double count)
{
    double momentum = exec->op->layer.momentum;
    double unbiased = count > 1 ? count / (count - 1) : 1;
    float *running_mean = cddpi_exec_running(exec, 0);
    float *running_variance = cddpi_exec_running(exec, 1);

    for (int c = 0; !exec->recomputed && c < exec->op->in.channels; c++) { /* once a batch */
        running_mean[c] = (float)((1 - momentum) * (double)running_mean[c] +
                                  momentum * (double)mean[c]);
        running_variance[c] = (float)((1 - momentum) * (double)running_variance[c] +
                                      momentum * unbiased * (double)variance[c]);
    }
}

static void take(const struct cddpi_exec *exec, const double *moments, float *mean, float *variance)
{
    size_t channels = (size_t)exec->op->in.channels;

    for (size_t c = 0; c < channels && moments[0] > 0; c++) {
        mean[c] = (float)moments[1 + c];
        variance[c] = (float)(moments[1 + channels + c] / moments[0]);
    }
    if (moments[0] > 0) {
        cddpi_batch_norm_update(exec, mean, variance, moments[0]);
    }
}

cddp_status cddpi_sync_norm_forward(struct cddpi_exec *exec, const struct cddpi_sync_norm *norm)
{
    struct cddpi_nn_layout layout = layout_of(exec);
    float *mean = cddpi_exec_buffer(exec, norm->mean);
    float *variance = cddpi_exec_buffer(exec, norm->variance);
    double *moments = new_moments(exec, norm->alone);
    float *factor;
    cddp_status status;

    if (moments == NULL) {
        return no_memory(exec);
    }
    measure(exec, mean, moments);
    status = norm->alone ? CDDP_OK : exchange(exec, moments);
    if (status == CDDP_OK) {
        take(exec, moments, mean, variance);
        *(double *)cddpi_exec_buffer(exec, norm->count) = moments[0];
        factor = (float *)(void *)moments; /* the moments are done with */
        for (size_t c = 0; c < layout.channels; c++) {
            factor[c] = (float)((double)cddpi_exec_param(exec, 0)[c] /
                                sqrt((double)variance[c] + exec->op->layer.epsilon));
        }
        cddpi_nn_normalize(cddpi_exec_input(exec, 0), &layout, mean, factor,
                           cddpi_exec_param(exec, 1), exec->op->relu, cddpi_exec_output(exec));
    }
    cddpi_free(moments);
    return status;
}

cddp_status cddpi_sync_norm_evaluate(struct cddpi_exec *exec)
{
    struct cddpi_nn_layout layout = layout_of(exec);
    float *factor = cddpi_zalloc_array(layout.channels, sizeof *factor);

    if (factor == NULL) {
        return no_memory(exec);
    }
    for (size_t c = 0; c < layout.channels; c++) {
        factor[c] = (float)((double)cddpi_exec_param(exec, 0)[c] /
                            sqrt((double)cddpi_exec_running(exec, 1)[c] + exec->op->layer.epsilon));
    }
    cddpi_nn_normalize(cddpi_exec_input(exec, 0), &layout, cddpi_exec_running(exec, 0), factor,
                       cddpi_exec_param(exec, 1), exec->op->relu, cddpi_exec_output(exec));
    cddpi_free(factor);
    return CDDP_OK;
}

cddp_status cddpi_sync_norm_idle_forward(struct cddpi_exec *exec)
{
    size_t channels = (size_t)exec->op->in.channels;
    double *moments = new_moments(exec, false);
    float *statistics = cddpi_zalloc_array(channels, 2 * sizeof *statistics);
    cddp_status status;

    if (moments == NULL || statistics == NULL) {
        status = no_memory(exec);
    } else {
        status = exchange(exec, moments);
    }
    if (status == CDDP_OK) {
        take(exec, moments, statistics, statistics + channels);
    }
    cddpi_free(statistics);
    cddpi_free(moments);
    return status;
}

/* The parameters' gradients, of this rank's batch alone: ddp brings the ranks' together. */
static void add_param_grads(const struct cddpi_exec *exec, const double *sums,
                            const float *variance)
{
    size_t channels = (size_t)exec->op->in.channels;
    float *scale = cddpi_exec_grad(exec, 0);
    float *shift = cddpi_exec_grad(exec, 1);

    for (size_t c = 0; c < channels; c++) {
        double deviation = sqrt((double)variance[c] + exec->op->layer.epsilon);
        float scale_part = (float)(sums[channels + c] / deviation);
        float shift_part = (float)sums[c];

        scale[c] = exec->accumulate ? scale[c] + scale_part : scale_part;
        shift[c] = exec->accumulate ? shift[c] + shift_part : shift_part;
    }
}

/* @p sums of all ranks, without their factors, to the gradient of the input. */
static void input_gradient(const struct cddpi_exec *exec, const struct cddpi_sync_norm *norm,
                           const float *grad, const double *sums, float *coefficients)
{
    struct cddpi_nn_layout layout = layout_of(exec);
    const float *mean = cddpi_exec_buffer(exec, norm->mean);
    const float *variance = cddpi_exec_buffer(exec, norm->variance);
    double count = *(const double *)cddpi_exec_buffer(exec, norm->count);
    size_t channels = layout.channels;
    float *offset = coefficients + channels;
    float *slope = coefficients + 2 * channels;

    for (size_t c = 0; c < channels; c++) {
        double inverse = 1 / ((double)variance[c] + exec->op->layer.epsilon);

        coefficients[c] = (float)((double)cddpi_exec_param(exec, 0)[c] * sqrt(inverse));
        offset[c] = (float)(exec->scale * sums[c] / count);
        slope[c] = (float)(exec->scale * sums[channels + c] * inverse / count);
    }
    cddpi_nn_normalize_backward(grad, cddpi_exec_input(exec, 0), &layout, mean, coefficients,
                                offset, slope, cddpi_exec_grad_input(exec, 0));
}

static cddp_status share_sums(const struct cddpi_exec *exec, bool alone, double *sums)
{
    size_t count = 2 * (size_t)exec->op->in.channels;

    for (size_t i = 0; i < count; i++) {
        sums[i] = exec->scale != 0 ? sums[i] / exec->scale : 0;
    }
    return alone ? CDDP_OK
                 : cddp_all_reduce(exec->model->group, sums, sums, count, CDDP_F64, CDDP_OP_SUM,
                                   NULL);
}

static cddp_status report(struct cddpi_exec *exec)
{
    cddp_status status = cddpi_exec_ready(exec, 1);

    return status == CDDP_OK ? cddpi_exec_ready(exec, 0) : status;
}

cddp_status cddpi_sync_norm_backward(struct cddpi_exec *exec, const struct cddpi_sync_norm *norm)
{
    struct cddpi_nn_layout layout = layout_of(exec);
    const float *grad = cddpi_exec_mask_relu(exec);
    const float *mean = cddpi_exec_buffer(exec, norm->mean);
    double *sums = cddpi_zalloc_array(layout.channels, 2 * sizeof *sums);
    float *coefficients = cddpi_zalloc_array(layout.channels, 3 * sizeof *coefficients);
    cddp_status status;

    if (sums == NULL || coefficients == NULL) {
        status = no_memory(exec);
    } else {
        cddpi_nn_channel_sums(grad, &layout, sums);
        cddpi_nn_channel_products(grad, cddpi_exec_input(exec, 0), &layout, mean,
                                  sums + layout.channels);
        add_param_grads(exec, sums, cddpi_exec_buffer(exec, norm->variance));
        status = share_sums(exec, norm->alone, sums);
    }
    if (status == CDDP_OK && cddpi_exec_grad_input(exec, 0) != NULL) {
        input_gradient(exec, norm, grad, sums, coefficients);
    }
    cddpi_free(coefficients);
    cddpi_free(sums);
    return status == CDDP_OK ? report(exec) : status;
}

cddp_status cddpi_sync_norm_idle_backward(struct cddpi_exec *exec)
{
    double *sums = cddpi_zalloc_array((size_t)exec->op->in.channels, 2 * sizeof *sums);
    cddp_status status = sums != NULL ? share_sums(exec, false, sums) : no_memory(exec);

    cddpi_free(sums);
    return status;
}
