/* batch_norm_cuda.c - owns batch normalisation on a device, with a fused sum and relu. */
#include "base/error.h"
#include "nn/cuda/model_cuda.h"
#include "nn/ops/batch_norm_op.h"

struct batch_norm_cuda_state {
    /* without sync: only `shape`, for this rank's batch, is used */
    struct cddpi_cuda_sync_norm norm;
    bool sync;
    int unwanted; /* buffer: receives the input's gradient if nobody needs it */
};

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
    state->norm.mean = cddpi_plan_buffer(plan, index, bytes, CDDPI_IN_BOTH);
    state->norm.inverse = cddpi_plan_buffer(plan, index, bytes, CDDPI_IN_BOTH);
    if (state->sync) {
        state->norm.rows = cddpi_plan_buffer(plan, index, sizeof(double), CDDPI_IN_BOTH);
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
    state->norm.shape = (struct cddpi_cuda_norm){
        .type = plan->model->type,
        .rows = (size_t)plan->count * (size_t)op->in.height * (size_t)op->in.width,
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
    struct cddpi_cuda_norm shape = state->norm.shape;
    const void *sum = exec->op->input_count > 1 ? cddpi_exec_input(exec, 1) : NULL;

    if (state->sync) {
        return cddpi_cuda_sync_norm_forward(exec, &state->norm);
    }
    if (!exec->plan->training) {
        return kernels->batch_norm_eval(device, &shape, cddpi_exec_input(exec, 0), sum,
                                        cddpi_exec_param(exec, 0), cddpi_exec_param(exec, 1),
                                        cddpi_exec_running(exec, 0), cddpi_exec_running(exec, 1),
                                        cddpi_exec_output(exec));
    }
    /* update running statistics only once for each batch */
    shape.momentum = exec->recomputed ? 0 : shape.momentum;
    return kernels->batch_norm(
        device, &shape, cddpi_exec_input(exec, 0), sum, cddpi_exec_param(exec, 0),
        cddpi_exec_param(exec, 1), cddpi_exec_running(exec, 0), cddpi_exec_running(exec, 1),
        cddpi_exec_buffer(exec, state->norm.mean), cddpi_exec_buffer(exec, state->norm.inverse),
        cddpi_exec_output(exec));
}

static cddp_status backward(struct cddpi_exec *exec)
{
    const struct batch_norm_cuda_state *state = exec->state;
    void *grad_input = cddpi_exec_grad_input(exec, 0);

    if (grad_input == NULL) {
        grad_input = cddpi_exec_buffer(exec, state->unwanted);
    }
    if (state->sync) {
        return cddpi_cuda_sync_norm_backward(exec, &state->norm, grad_input);
    }
    CDDPI_TRY(cddpi_exec_kernels(exec)->batch_norm_grad(
        exec->model->device, &state->norm.shape, cddpi_exec_grad_output(exec, 0),
        cddpi_exec_grad_output(exec, 1), cddpi_exec_input(exec, 0),
        exec->op->input_count > 1 ? cddpi_exec_output(exec) : NULL, cddpi_exec_param(exec, 0),
        cddpi_exec_param(exec, 1), cddpi_exec_buffer(exec, state->norm.mean),
        cddpi_exec_buffer(exec, state->norm.inverse), cddpi_exec_adds(exec, 0), grad_input,
        exec->op->input_count > 1 ? cddpi_exec_grad_input(exec, 1) : NULL, cddpi_exec_grad(exec, 0),
        cddpi_exec_grad(exec, 1)));
    return cddpi_exec_ready_both(exec);
}

static cddp_status idle_forward(struct cddpi_exec *exec)
{
    return cddpi_sync_norm_wanted(exec->model, exec->op) ? cddpi_cuda_sync_norm_idle_forward(exec)
                                                         : CDDP_OK;
}

static cddp_status idle_backward(struct cddpi_exec *exec)
{
    return cddpi_sync_norm_wanted(exec->model, exec->op) ? cddpi_cuda_sync_norm_idle_backward(exec)
                                                         : CDDP_OK;
}

const struct cddpi_op_kernels cddpi_cuda_batch_norm = {
    .fuses_add = true,
    .state_bytes = sizeof(struct batch_norm_cuda_state),
    .plan = plan_batch_norm,
    .forward = forward,
    .backward = backward,
    .idle_forward = idle_forward,
    .idle_backward = idle_backward};
