/* batch_norm_op.c - owns batch normalisation, with a fused relu, over this rank's batch or over all
 * ranks' batches.
 *
 * oneDNN's own is not used: it sums a channel in float32, so statistics of millions of values have
 * four digits, and their bits depend on the number of threads. Running statistics are PyTorch's:
 * they contain the unbiased variance.
 *
 * Over all ranks, each of which may have another number of samples, including 0: in forward, every
 * rank gathers (count, mean, sum of squared deviations) from all ranks and merges them in rank
 * order (Chan, Golub and LeVeque), in float64. This avoids differences of large sums, and gives the
 * same bits on every rank. Backward: an allreduce of the two sums over the whole batch that the
 * derivative needs. Each rank's gradients are scaled by a factor of its own (e.g. 1 / its samples),
 * so that factor is removed from the sums before they are sent. A rank without samples takes part
 * with zeros. */
#include "base/alloc.h"
#include "base/error.h"
#include "nn/cuda/model_cuda.h"
#include "nn/model_state.h"
#include "nn/ops/norm_passes.h"

#include <math.h>
#include <string.h>

bool cddpi_sync_norm_wanted(const struct cddpi_model *model, const struct cddpi_op *op)
{
    return op->layer.sync && model->group != NULL && cddp_group_world_size(model->group) > 1;
}

/* Moments of a batch in float64: count, means, and sums of squared deviations, which are later
 * divided by the count. */
static size_t moment_count(size_t channels)
{
    return 1 + 2 * channels;
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

/* Replace this rank's @p moments (with sums of squares) by those of all ranks. */
static cddp_status merge_over_ranks(const struct cddpi_exec *exec, double *moments)
{
    cddp_group *group = exec->model->group;
    size_t channels = (size_t)exec->op->in.channels;
    size_t doubles = moment_count(channels);
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

/* Blend the mean and the unbiased variance in @p moments into the running statistics; or write them
 * to the bound memory, by the batch's weight. Once for each batch. */
static void keep_statistics(const struct cddpi_exec *exec, const double *moments)
{
    double momentum = exec->op->layer.momentum;
    double weight = exec->batch->weight;
    double count = moments[0];
    double unbiased = count > 1 ? count / (count - 1) : 1;
    const double *mean = moments + 1;
    const double *variance = mean + exec->op->in.channels;
    float *running_mean = cddpi_exec_running(exec, 0);
    float *running_variance = cddpi_exec_running(exec, 1);
    float *weighted_mean = cddpi_exec_statistics(exec, 0);
    float *weighted_variance = cddpi_exec_statistics(exec, 1);

    for (int c = 0; !exec->recomputed && c < exec->op->in.channels; c++) {
        if (weighted_mean != NULL) {
            weighted_mean[c] = (float)(weight * mean[c]);
            weighted_variance[c] = (float)(weight * unbiased * variance[c]);
            continue;
        }
        running_mean[c] = (float)((1 - momentum) * (double)running_mean[c] + momentum * mean[c]);
        running_variance[c] = (float)((1 - momentum) * (double)running_variance[c] +
                                      momentum * unbiased * variance[c]);
    }
}

static cddp_status idle_forward(struct cddpi_exec *exec)
{
    size_t channels = (size_t)exec->op->in.channels;
    double *moments;
    cddp_status status;

    if (!cddpi_sync_norm_wanted(exec->model, exec->op)) {
        return CDDP_OK;
    }
    moments = cddpi_zalloc_array(moment_count(channels), sizeof *moments);
    status = moments != NULL ? merge_over_ranks(exec, moments) : no_memory(exec);
    if (status == CDDP_OK && moments[0] > 0) {
        for (size_t c = 0; c < channels; c++) {
            moments[1 + channels + c] /= moments[0];
        }
        keep_statistics(exec, moments);
    }
    cddpi_free(moments);
    return status;
}

/* Add up all ranks' @p sums (2 x channels), free of their gradient scales, and apply this rank's.
 */
static cddp_status share_sums(const struct cddpi_exec *exec, double *sums)
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

static cddp_status idle_backward(struct cddpi_exec *exec)
{
    double *sums;
    cddp_status status;

    if (!cddpi_sync_norm_wanted(exec->model, exec->op)) {
        return CDDP_OK;
    }
    sums = cddpi_zalloc_array((size_t)exec->op->in.channels, 2 * sizeof *sums);
    status = sums != NULL ? share_sums(exec, sums) : no_memory(exec);
    cddpi_free(sums);
    return status;
}

struct batch_norm_state {
    bool sync;   /* in training: statistics are taken over all ranks' batches */
    int moments; /* buffer: count, means and variances of the batch */
    int forward_partial, backward_partial; /* buffers: for partial sums */
    int sums; /* buffer: sums of the gradient, and of its products with the input */
};

static cddp_status declare(struct cddpi_model *model, struct cddpi_op *op)
{
    int64_t channels = op->in.channels;
    double deviation = op->layer.deviation;

    CDDPI_TRY(cddpi_model_add_param(
        model, op, 0, "weight", 1, &channels,
        (struct cddpi_param_info){deviation > 0 ? CDDPI_INIT_NORMAL_AROUND_ONE : CDDPI_INIT_ONE,
                                  deviation, false}));
    CDDPI_TRY(cddpi_model_add_param(model, op, 1, "bias", 1, &channels,
                                    (struct cddpi_param_info){CDDPI_INIT_ZERO, 0, false}));
    CDDPI_TRY(cddpi_model_add_buffer(model, op, 0, "running_mean", channels, 0));
    return cddpi_model_add_buffer(model, op, 1, "running_var", channels, 1);
}

static void plan_training(struct batch_norm_state *state, struct cddpi_plan *plan, int index)
{
    struct cddpi_nn_layout layout = cddpi_plan_input_layout(plan, index);
    size_t moments = moment_count(layout.channels) * sizeof(double);
    size_t partial = cddpi_norm_partial(&layout) * sizeof(double);
    size_t sums = 2 * layout.channels * sizeof(double);

    plan->ops[index].flags = CDDPI_NEEDS_INPUT | CDDPI_GRAD_INPLACE;
    state->moments = cddpi_plan_buffer(plan, index, moments, CDDPI_IN_BOTH);
    state->forward_partial = cddpi_plan_buffer(plan, index, partial, CDDPI_IN_FORWARD);
    state->backward_partial = cddpi_plan_buffer(plan, index, partial, CDDPI_IN_BACKWARD);
    state->sums = cddpi_plan_buffer(plan, index, sums, CDDPI_IN_BACKWARD);
}

static cddp_status plan_batch_norm(struct cddpi_plan *plan, int index)
{
    struct batch_norm_state *state = plan->ops[index].state;
    struct cddpi_plan_part part = {.op = index, .what = "batch normalisation"};

    cddpi_plan_output(plan, index, cddpi_plan_input(plan, index, 0)->block);
    state->sync = plan->training &&
                  cddpi_sync_norm_wanted(plan->model, cddpi_plan_op_of(plan, index));
    plan->ops[index].flags = CDDPI_FORWARD_INPLACE;
    cddpi_plan_part(plan, "own:norm", &part);
    if (plan->training) {
        part.what = "gradient of batch normalisation";
        cddpi_plan_part(plan, "own:norm", &part);
        plan_training(state, plan, index);
    }
    return CDDP_OK;
}

/* Normalise with the moments of a batch. */
static struct cddpi_norm_affine affine_of(const struct cddpi_exec *exec, const double *mean,
                                          const double *variance)
{
    return (struct cddpi_norm_affine){.mean = mean,
                                      .variance = variance,
                                      .weight = cddpi_exec_param(exec, 0),
                                      .bias = cddpi_exec_param(exec, 1),
                                      .epsilon = exec->op->layer.epsilon,
                                      .relu = exec->op->relu};
}

static cddp_status train(struct cddpi_exec *exec, const struct batch_norm_state *state)
{
    struct cddpi_nn_layout layout = cddpi_plan_input_layout(exec->plan, exec->index);
    const float *x = cddpi_exec_input(exec, 0);
    double *partial = cddpi_exec_buffer(exec, state->forward_partial);
    double *moments = cddpi_exec_buffer(exec, state->moments);
    double *mean = moments + 1;
    double *variance = mean + layout.channels;
    struct cddpi_norm_affine affine = affine_of(exec, mean, variance);

    moments[0] = (double)layout.samples * (double)layout.spatial;
    if (state->sync) {
        cddpi_norm_moments(x, &layout, partial, mean, variance);
        CDDPI_TRY(merge_over_ranks(exec, moments));
        for (size_t c = 0; c < layout.channels; c++) {
            variance[c] /= moments[0];
        }
        cddpi_norm_normalize(x, &layout, &affine, cddpi_exec_output(exec));
    } else {
        cddpi_norm_forward(x, &layout, &affine, partial, mean, variance, cddpi_exec_output(exec));
    }
    keep_statistics(exec, moments);
    return CDDP_OK;
}

static cddp_status evaluate(struct cddpi_exec *exec)
{
    struct cddpi_nn_layout layout = cddpi_plan_input_layout(exec->plan, exec->index);
    double *running = cddpi_zalloc_array(2 * layout.channels, sizeof *running);
    struct cddpi_norm_affine affine = affine_of(exec, running, running + layout.channels);

    CDDPI_TRY_MEMORY(running != NULL, "batch_norm: no memory for statistics of %zu channels",
                     layout.channels);
    for (size_t c = 0; c < layout.channels; c++) {
        running[c] = (double)cddpi_exec_running(exec, 0)[c];
        running[layout.channels + c] = (double)cddpi_exec_running(exec, 1)[c];
    }
    cddpi_norm_normalize(cddpi_exec_input(exec, 0), &layout, &affine, cddpi_exec_output(exec));
    cddpi_free(running);
    return CDDP_OK;
}

static cddp_status forward(struct cddpi_exec *exec)
{
    return exec->plan->training ? train(exec, exec->state) : evaluate(exec);
}

/* The parameters' gradients of this rank's batch alone; ddp averages them over ranks. */
static void add_param_grads(const struct cddpi_exec *exec, const double *sums,
                            const double *variance)
{
    size_t channels = (size_t)exec->op->in.channels;
    float *scale = cddpi_exec_grad(exec, 0);
    float *shift = cddpi_exec_grad(exec, 1);

    for (size_t c = 0; c < channels; c++) {
        double deviation = sqrt(variance[c] + exec->op->layer.epsilon);
        float scale_part = (float)(sums[channels + c] / deviation);
        float shift_part = (float)sums[c];

        scale[c] = exec->accumulate ? scale[c] + scale_part : scale_part;
        shift[c] = exec->accumulate ? shift[c] + shift_part : shift_part;
    }
}

static cddp_status backward(struct cddpi_exec *exec)
{
    const struct batch_norm_state *state = exec->state;
    struct cddpi_nn_layout layout = cddpi_plan_input_layout(exec->plan, exec->index);
    const double *moments = cddpi_exec_buffer(exec, state->moments);
    const double *mean = moments + 1;
    struct cddpi_norm_affine affine = affine_of(exec, mean, mean + layout.channels);
    double *sums = cddpi_exec_buffer(exec, state->sums);
    struct cddpi_norm_grad grad = {.dy = cddpi_exec_grad_output(exec, 0),
                                   .partial = cddpi_exec_buffer(exec, state->backward_partial),
                                   .sums = sums,
                                   .products = sums + layout.channels,
                                   .count = moments[0]};
    const float *x = cddpi_exec_input(exec, 0);
    float *dx = cddpi_exec_grad_input(exec, 0);

    cddpi_norm_backward(x, &layout, &affine, &grad, state->sync ? NULL : dx);
    add_param_grads(exec, sums, affine.variance);
    if (state->sync) {
        CDDPI_TRY(share_sums(exec, sums));
    }
    if (state->sync && dx != NULL) {
        cddpi_norm_gradient(x, &layout, &affine, &grad, dx);
    }
    return cddpi_exec_ready_both(exec);
}

static const struct cddpi_op_kernels cpu = {.state_bytes = sizeof(struct batch_norm_state),
                                            .plan = plan_batch_norm,
                                            .forward = forward,
                                            .backward = backward,
                                            .idle_forward = idle_forward,
                                            .idle_backward = idle_backward};

const struct cddpi_op_ops cddpi_op_batch_norm = {
    .name = "batch_norm",
    .images_only = true,
    .fuses_relu = true,
    .declare = declare,
    .on = {[CDDPI_DEVICE_CPU] = &cpu, [CDDPI_DEVICE_CUDA] = &cddpi_cuda_batch_norm}};
