/* batch_norm_op.c - owns batch normalisation, with a fused relu.
 *
 * oneDNN's own is not used: it sums a channel in float32, so statistics of millions of values have
 * four digits, and their bits depend on the number of threads. Running statistics are PyTorch's:
 * they contain the unbiased variance. */
#include "nn/ops/batch_norm_op.h"

#include "base/alloc.h"
#include "base/error.h"
#include "nn/cuda/model_cuda.h"
#include "nn/ops/norm_passes.h"

#include <math.h>

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
    size_t moments = cddpi_norm_moment_count(layout.channels) * sizeof(double);
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

static cddp_status train_over_ranks(struct cddpi_exec *exec, const struct batch_norm_state *state,
                                    const struct cddpi_norm_affine *affine, double *moments)
{
    struct cddpi_nn_layout layout = cddpi_plan_input_layout(exec->plan, exec->index);
    double *variance = moments + 1 + layout.channels;

    cddpi_norm_moments(cddpi_exec_input(exec, 0), &layout,
                       cddpi_exec_buffer(exec, state->forward_partial), moments + 1, variance);
    CDDPI_TRY(cddpi_sync_norm_merge(exec, moments));
    for (size_t c = 0; c < layout.channels; c++) {
        variance[c] /= moments[0];
    }
    cddpi_norm_normalize(cddpi_exec_input(exec, 0), &layout, affine, cddpi_exec_output(exec));
    return CDDP_OK;
}

static cddp_status train(struct cddpi_exec *exec, const struct batch_norm_state *state)
{
    struct cddpi_nn_layout layout = cddpi_plan_input_layout(exec->plan, exec->index);
    double *moments = cddpi_exec_buffer(exec, state->moments);
    double *mean = moments + 1;
    double *variance = mean + layout.channels;
    struct cddpi_norm_affine affine = affine_of(exec, mean, variance);

    moments[0] = (double)layout.samples * (double)layout.spatial;
    if (state->sync) {
        CDDPI_TRY(train_over_ranks(exec, state, &affine, moments));
    } else {
        cddpi_norm_forward(cddpi_exec_input(exec, 0), &layout, &affine,
                           cddpi_exec_buffer(exec, state->forward_partial), mean, variance,
                           cddpi_exec_output(exec));
    }
    cddpi_batch_norm_update(exec, moments);
    return CDDP_OK;
}

static cddp_status evaluate(struct cddpi_exec *exec)
{
    struct cddpi_nn_layout layout = cddpi_plan_input_layout(exec->plan, exec->index);
    double *running = cddpi_zalloc_array(2 * layout.channels, sizeof *running);
    struct cddpi_norm_affine affine = affine_of(exec, running, running + layout.channels);

    if (running == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY,
                          "batch_norm: no memory for statistics of %zu channels", layout.channels);
    }
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
        CDDPI_TRY(cddpi_sync_norm_share(exec, sums));
    }
    if (state->sync && dx != NULL) {
        cddpi_norm_gradient(x, &layout, &affine, &grad, dx);
    }
    return cddpi_exec_ready_both(exec);
}

static cddp_status idle_forward(struct cddpi_exec *exec)
{
    return cddpi_sync_norm_wanted(exec->model, exec->op) ? cddpi_sync_norm_idle_forward(exec)
                                                         : CDDP_OK;
}

static cddp_status idle_backward(struct cddpi_exec *exec)
{
    return cddpi_sync_norm_wanted(exec->model, exec->op) ? cddpi_sync_norm_idle_backward(exec)
                                                         : CDDP_OK;
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
