/* batch_norm_cuda.c - owns batch normalisation on a device, with a fused sum and relu, over this
 * rank's batch or over all ranks' batches. A rank's sums are sent to all others in stream order,
 * and only later work in the stream waits for them.
 *
 * It works as on the CPU (batch_norm_op.c), except that backward also gathers the ranks' sums
 * instead of reducing them: every rank then adds them in rank order, so the bits do not depend on
 * the transport. */
#include "base/error.h"
#include "group/on_device.h"
#include "nn/cuda/model_cuda.h"

struct batch_norm_cuda_state {
    struct cddpi_cuda_norm shape; /* for this rank's batch */
    bool sync;
    int mean, inverse; /* buffers; with sync: for all ranks' batches together */
    int rows;          /* buffer, with sync: one double, the number of values per channel */
    int unwanted;      /* buffer: receives the input's gradient if nobody needs it */
};

/* The number of values that a rank sends in forward for a batch with @p channels channels; backward
 * sends one less. */
static size_t moment_count(size_t channels)
{
    return 1 + 2 * channels;
}

/* cuda->exchange holds this rank's moments, all ranks' moments, and the count, means and deviations
 * for an idle rank, which has no plan and so no buffers for them. */
static double *all_moments(const struct cddpi_model *model)
{
    return model->cuda->exchange + model->cuda->exchange_stride;
}

static double *idle_rows(const struct cddpi_model *model)
{
    return all_moments(model) +
           (size_t)cddp_group_world_size(model->group) * model->cuda->exchange_stride;
}

static cddp_status check_op(const struct cddpi_model *model, const struct cddpi_op *op)
{
    const struct cddpi_device *device = model->device;

    if (cddpi_group_on_device(model->group) == device) {
        return CDDP_OK;
    }
    return cddpi_fail(
        CDDP_ERR_CONFIG,
        "layer \"%s\": batch_norm with sync (statistics over all ranks) needs a group "
        "on the model's device, %s %d: this one's memory is elsewhere",
        op->layer.name, device->ops->name, device->index);
}

cddp_status cddpi_cuda_sync_norm_create(struct cddpi_model *model)
{
    struct cddpi_device *device = model->device;
    size_t most = 0;
    size_t doubles;
    void *memory = NULL;
    cddp_status status;

    for (int i = 0; i < model->graph.op_count; i++) {
        const struct cddpi_op *op = &model->graph.ops[i];

        if (op->ops == &cddpi_op_batch_norm && cddpi_sync_norm_wanted(model, op)) {
            CDDPI_TRY(check_op(model, op));
            most = (size_t)op->in.channels > most ? (size_t)op->in.channels : most;
        }
    }
    if (most == 0) {
        return CDDP_OK;
    }
    /* each rank's moments begin at a multiple of 64 bytes */
    model->cuda->exchange_stride = (moment_count(most) + 7) / 8 * 8;
    doubles = (1 + (size_t)cddp_group_world_size(model->group)) * model->cuda->exchange_stride + 1 +
              most; /* for each channel two floats */
    status = device->ops->alloc(device, doubles * sizeof(double), "statistics over ranks", &memory);
    model->cuda->exchange = memory;
    return status;
}

/* Gather @p doubles numbers of each rank, from the start of the exchange memory to the part that
 * follows it. */
static cddp_status gather(const struct cddpi_exec *exec, size_t doubles)
{
    struct cddpi_model *model = exec->model;
    cddp_status status;

    cddpi_group_label(model->group, exec->op->layer.name);
    status = cddp_all_gather(model->group, model->cuda->exchange, all_moments(model), doubles,
                             CDDP_F64, NULL);
    cddpi_group_label(model->group, NULL);
    return status;
}

static cddp_status merge(const struct cddpi_exec *exec, const struct cddpi_cuda_norm *shape,
                         float *mean, float *inverse, double *rows)
{
    CDDPI_TRY(gather(exec, moment_count((size_t)shape->channels)));
    return cddpi_exec_kernels(exec)->batch_norm_merge(
        exec->model->device, shape, all_moments(exec->model),
        cddp_group_world_size(exec->model->group), cddpi_exec_running(exec, 0),
        cddpi_exec_running(exec, 1), mean, inverse, rows);
}

static cddp_status forward_over_ranks(struct cddpi_exec *exec,
                                      const struct batch_norm_cuda_state *norm)
{
    const struct cddpi_cuda_kernels *kernels = cddpi_exec_kernels(exec);
    struct cddpi_device *device = exec->model->device;
    float *mean = cddpi_exec_buffer(exec, norm->mean);
    float *inverse = cddpi_exec_buffer(exec, norm->inverse);

    CDDPI_TRY(kernels->batch_norm_moments(device, &norm->shape, cddpi_exec_input(exec, 0),
                                          exec->model->cuda->exchange));
    CDDPI_TRY(merge(exec, &norm->shape, mean, inverse, cddpi_exec_buffer(exec, norm->rows)));
    return kernels->batch_norm_apply(device, &norm->shape, cddpi_exec_input(exec, 0),
                                     exec->op->input_count > 1 ? cddpi_exec_input(exec, 1) : NULL,
                                     cddpi_exec_param(exec, 0), cddpi_exec_param(exec, 1), mean,
                                     inverse, cddpi_exec_output(exec));
}

static cddp_status backward_over_ranks(struct cddpi_exec *exec,
                                       const struct batch_norm_cuda_state *norm, void *grad_input)
{
    const struct cddpi_cuda_kernels *kernels = cddpi_exec_kernels(exec);
    struct cddpi_device *device = exec->model->device;
    const float *mean = cddpi_exec_buffer(exec, norm->mean);
    const float *inverse = cddpi_exec_buffer(exec, norm->inverse);

    CDDPI_TRY(kernels->batch_norm_grad_moments(
        device, &norm->shape, cddpi_exec_grad_output(exec, 0), cddpi_exec_input(exec, 0),
        cddpi_exec_output(exec), mean, inverse, cddpi_exec_adds(exec, 0), exec->scale,
        cddpi_exec_grad(exec, 0), cddpi_exec_grad(exec, 1), exec->model->cuda->exchange));
    CDDPI_TRY(gather(exec, 2 * (size_t)norm->shape.channels));
    CDDPI_TRY(kernels->batch_norm_grad_apply(
        device, &norm->shape, cddpi_exec_grad_output(exec, 0), cddpi_exec_input(exec, 0),
        cddpi_exec_output(exec), cddpi_exec_param(exec, 0), mean, inverse, all_moments(exec->model),
        cddp_group_world_size(exec->model->group), cddpi_exec_buffer(exec, norm->rows), exec->scale,
        grad_input, exec->op->input_count > 1 ? cddpi_exec_grad_input(exec, 1) : NULL));
    return cddpi_exec_ready_both(exec);
}

/* The moments of no rows and the sums of nothing are zeros. */
static cddp_status send_empty_statistics(const struct cddpi_exec *exec, size_t doubles)
{
    struct cddpi_device *device = exec->model->device;

    return device->ops->clear(device, CDDPI_STREAM_COMPUTE, exec->model->cuda->exchange,
                              doubles * sizeof(double));
}

static cddp_status idle_forward(struct cddpi_exec *exec)
{
    const struct cddpi_op *op = exec->op;
    double *rows;
    float *mean;
    struct cddpi_cuda_norm shape = {.type = exec->model->type,
                                    .channels = op->in.channels,
                                    .epsilon = (float)op->layer.epsilon,
                                    .momentum = (float)op->layer.momentum};

    if (!cddpi_sync_norm_wanted(exec->model, op)) {
        return CDDP_OK;
    }
    rows = idle_rows(exec->model);
    mean = (float *)(void *)(rows + 1);
    CDDPI_TRY(send_empty_statistics(exec, moment_count((size_t)shape.channels)));
    return merge(exec, &shape, mean, mean + shape.channels, rows);
}

static cddp_status idle_backward(struct cddpi_exec *exec)
{
    size_t doubles = 2 * (size_t)exec->op->in.channels;

    if (!cddpi_sync_norm_wanted(exec->model, exec->op)) {
        return CDDP_OK;
    }
    CDDPI_TRY(send_empty_statistics(exec, doubles));
    return gather(exec, doubles);
}

static void plan_training(struct cddpi_plan *plan, int index, struct batch_norm_cuda_state *state)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    const struct cddpi_plan_value *input = cddpi_plan_input(plan, index, 0);
    size_t bytes = (size_t)op->in.channels * sizeof(float);

    /* the relu's mask follows from the input if nothing was added; over ranks it is read from the
     * output */
    plan->ops[index].flags = CDDPI_NEEDS_FIRST | (state->sync ? 0u : CDDPI_SUMS_GRADS) |
                             (op->relu && (state->sync || op->input_count > 1) ? CDDPI_NEEDS_OUTPUT
                                                                               : 0u);
    state->mean = cddpi_plan_buffer(plan, index, bytes, CDDPI_IN_BOTH);
    state->inverse = cddpi_plan_buffer(plan, index, bytes, CDDPI_IN_BOTH);
    if (state->sync) {
        state->rows = cddpi_plan_buffer(plan, index, sizeof(double), CDDPI_IN_BOTH);
    }
    if (!cddpi_plan_wants_grad(plan, index, 0)) {
        bytes = input->elements * cddp_type_bytes(input->type);
        state->unwanted = cddpi_plan_buffer(plan, index, bytes, CDDPI_IN_BACKWARD);
    }
}

static cddp_status plan_batch_norm(struct cddpi_plan *plan, int index)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    struct batch_norm_cuda_state *state = plan->ops[index].state;

    state->sync = plan->training && cddpi_sync_norm_wanted(plan->model, op);
    state->shape = (struct cddpi_cuda_norm){.type = plan->model->type,
                                            .rows = (size_t)plan->count * (size_t)op->in.height *
                                                    (size_t)op->in.width,
                                            .channels = op->in.channels,
                                            .epsilon = (float)op->layer.epsilon,
                                            .momentum = (float)op->layer.momentum,
                                            .relu = op->relu};
    cddpi_plan_output(plan, index, cddpi_plan_input(plan, index, 0)->block);
    if (plan->training) {
        plan_training(plan, index, state);
    }
    return CDDP_OK;
}

static cddp_status forward(struct cddpi_exec *exec)
{
    const struct batch_norm_cuda_state *state = exec->state;
    const struct cddpi_cuda_kernels *kernels = cddpi_exec_kernels(exec);
    struct cddpi_device *device = exec->model->device;
    struct cddpi_cuda_norm shape = state->shape;
    const void *sum = exec->op->input_count > 1 ? cddpi_exec_input(exec, 1) : NULL;
    float *(*kept)(const struct cddpi_exec *exec, int k) = cddpi_exec_running;

    if (state->sync) {
        return forward_over_ranks(exec, state);
    }
    if (!exec->plan->training) {
        return kernels->batch_norm_eval(device, &shape, cddpi_exec_input(exec, 0), sum,
                                        cddpi_exec_param(exec, 0), cddpi_exec_param(exec, 1),
                                        cddpi_exec_running(exec, 0), cddpi_exec_running(exec, 1),
                                        cddpi_exec_output(exec));
    }
    if (exec->model->statistics != NULL) {
        shape.weight = exec->batch->weight;
        kept = cddpi_exec_statistics;
    }
    /* only once for each batch */
    return kernels->batch_norm(
        device, &shape, cddpi_exec_input(exec, 0), sum, cddpi_exec_param(exec, 0),
        cddpi_exec_param(exec, 1), exec->recomputed ? NULL : kept(exec, 0),
        exec->recomputed ? NULL : kept(exec, 1), cddpi_exec_buffer(exec, state->mean),
        cddpi_exec_buffer(exec, state->inverse), cddpi_exec_output(exec));
}

static cddp_status backward(struct cddpi_exec *exec)
{
    const struct batch_norm_cuda_state *state = exec->state;
    void *grad_input = cddpi_exec_grad_input(exec, 0);

    if (grad_input == NULL) {
        grad_input = cddpi_exec_buffer(exec, state->unwanted);
    }
    if (state->sync) {
        return backward_over_ranks(exec, state, grad_input);
    }
    CDDPI_TRY(cddpi_exec_kernels(exec)->batch_norm_grad(
        exec->model->device, &state->shape, cddpi_exec_grad_output(exec, 0),
        cddpi_exec_grad_output(exec, 1), cddpi_exec_input(exec, 0),
        exec->op->input_count > 1 ? cddpi_exec_output(exec) : NULL, cddpi_exec_param(exec, 0),
        cddpi_exec_param(exec, 1), cddpi_exec_buffer(exec, state->mean),
        cddpi_exec_buffer(exec, state->inverse), cddpi_exec_adds(exec, 0), grad_input,
        exec->op->input_count > 1 ? cddpi_exec_grad_input(exec, 1) : NULL, cddpi_exec_grad(exec, 0),
        cddpi_exec_grad(exec, 1)));
    return cddpi_exec_ready_both(exec);
}

const struct cddpi_op_kernels cddpi_cuda_batch_norm = {
    .fuses_add = true,
    .state_bytes = sizeof(struct batch_norm_cuda_state),
    .plan = plan_batch_norm,
    .forward = forward,
    .backward = backward,
    .idle_forward = idle_forward,
    .idle_backward = idle_backward};
