/* response_norm_op.c - owns local_response_norm: each value is divided by a power of the sum of
 * squares over neighbouring channels (Krizhevsky et al., "ImageNet Classification with Deep
 * Convolutional Neural Networks", section 3.3). */
#include "kernels/cpu/cpu_layout.h"
#include "nn/cuda/model_cuda.h"

struct response_norm_state {
    struct cddpi_response_norm norm;
    int memory; /* buffer */
};

static cddp_status plan_norm(struct cddpi_plan *plan, int index)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    struct cddpi_plan_part part = {.op = index, .what = "normalisation"};
    struct response_norm_state *state = plan->ops[index].state;
    struct cddpi_nn_layout layout = cddpi_plan_input_layout(plan, index);

    state->norm = (struct cddpi_response_norm){op->layer.kernel, (float)op->layer.alpha,
                                               (float)op->layer.beta, (float)op->layer.offset};
    cddpi_plan_output(plan, index, cddpi_plan_input(plan, index, 0)->block);
    plan->ops[index].flags = CDDPI_FORWARD_INPLACE | CDDPI_NEEDS_INPUT | CDDPI_GRAD_INPLACE;
    cddpi_plan_part(plan, "own:rows", &part);
    if (cddpi_plan_wants_grad(plan, index, 0)) {
        part.what = "gradient of normalisation";
        cddpi_plan_part(plan, "own:rows", &part);
    }
    state->memory = cddpi_plan_buffer(
        plan, index, cddpi_response_norm_floats(&layout) * sizeof(float), CDDPI_IN_BOTH);
    return CDDP_OK;
}

static cddp_status forward(struct cddpi_exec *exec)
{
    const struct response_norm_state *state = exec->state;
    struct cddpi_nn_layout layout = cddpi_plan_input_layout(exec->plan, exec->index);

    cddpi_response_norm_forward(&state->norm, cddpi_exec_input(exec, 0), &layout,
                                cddpi_exec_buffer(exec, state->memory), cddpi_exec_output(exec));
    return CDDP_OK;
}

static cddp_status backward(struct cddpi_exec *exec)
{
    const struct response_norm_state *state = exec->state;
    struct cddpi_nn_layout layout = cddpi_plan_input_layout(exec->plan, exec->index);
    float *grad_input = cddpi_exec_grad_input(exec, 0);

    if (grad_input != NULL) {
        cddpi_response_norm_backward(&state->norm, cddpi_exec_grad_output(exec, 0),
                                     cddpi_exec_input(exec, 0), &layout,
                                     cddpi_exec_buffer(exec, state->memory), grad_input);
    }
    return CDDP_OK;
}

static struct cddpi_cuda_response cuda_shape(const struct cddpi_exec *exec)
{
    const struct cddpi_op *op = exec->op;

    return (struct cddpi_cuda_response){.type = exec->model->type,
                                        .rows = (size_t)exec->plan->count * (size_t)op->in.height *
                                                (size_t)op->in.width,
                                        .channels = op->in.channels,
                                        .size = op->layer.kernel,
                                        .alpha = (float)op->layer.alpha,
                                        .beta = (float)op->layer.beta,
                                        .offset = (float)op->layer.offset};
}

/* Not in place: other threads read a value's neighbours. */
static cddp_status plan_cuda(struct cddpi_plan *plan, int index)
{
    const struct cddpi_plan_value *input = cddpi_plan_input(plan, index, 0);
    struct response_norm_state *state = plan->ops[index].state;
    size_t elements = (size_t)plan->count *
                      cddpi_shape_elements(&cddpi_plan_op_of(plan, index)->in);

    cddpi_plan_output(plan, index, input->block);
    plan->ops[index].flags = CDDPI_NEEDS_INPUT | CDDPI_GRAD_INPLACE;
    if (cddpi_plan_wants_grad(plan, index, 0)) {
        state->memory = cddpi_plan_buffer(plan, index, elements * sizeof(float), CDDPI_IN_BACKWARD);
    }
    return CDDP_OK;
}

static cddp_status forward_cuda(struct cddpi_exec *exec)
{
    struct cddpi_cuda_response shape = cuda_shape(exec);

    return cddpi_exec_kernels(exec)->response_norm(
        exec->model->device, &shape, cddpi_exec_input(exec, 0), cddpi_exec_output(exec));
}

static cddp_status backward_cuda(struct cddpi_exec *exec)
{
    const struct response_norm_state *state = exec->state;
    struct cddpi_cuda_response shape = cuda_shape(exec);
    void *dx = cddpi_exec_grad_input(exec, 0);

    return dx == NULL ? CDDP_OK
                      : cddpi_exec_kernels(exec)->response_norm_grad(
                            exec->model->device, &shape, cddpi_exec_grad_output(exec, 0),
                            cddpi_exec_input(exec, 0), cddpi_exec_buffer(exec, state->memory), dx);
}

const struct cddpi_op_kernels cddpi_cuda_response_norm = {
    .state_bytes = sizeof(struct response_norm_state),
    .plan = plan_cuda,
    .forward = forward_cuda,
    .backward = backward_cuda};

static const struct cddpi_op_kernels cpu = {.state_bytes = sizeof(struct response_norm_state),
                                            .plan = plan_norm,
                                            .forward = forward,
                                            .backward = backward};

const struct cddpi_op_ops cddpi_op_response_norm = {
    .name = "local_response_norm",
    .images_only = true,
    .on = {[CDDPI_DEVICE_CPU] = &cpu, [CDDPI_DEVICE_CUDA] = &cddpi_cuda_response_norm}};
