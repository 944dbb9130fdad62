/* pool_cuda.c - owns max_pool, avg_pool and global_avg_pool on a device, with channels last. */
#include "nn/cuda/model_cuda.h"

struct pool_cuda_state {
    struct cddpi_cuda_pool shape;
    int places; /* buffer: the place of each maximum in its window; -1: not needed */
};

static cddp_status plan_pool(struct cddpi_plan *plan, int index)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    struct pool_cuda_state *state = plan->ops[index].state;
    const struct cddpi_cuda_kernels *kernels = plan->model->cuda->kernels;

    state->shape = (struct cddpi_cuda_pool){.type = plan->model->type,
                                            .count = plan->count,
                                            .channels = op->in.channels,
                                            .height = op->in.height,
                                            .width = op->in.width,
                                            .kernel = op->layer.kernel,
                                            .stride = op->layer.stride,
                                            .padding = op->layer.padding,
                                            .average = op->ops == &cddpi_op_avg_pool};
    state->places = -1;
    cddpi_plan_output(plan, index, cddpi_plan_input(plan, index, 0)->block);
    if (!state->shape.average && cddpi_plan_wants_grad(plan, index, 0)) {
        state->places = cddpi_plan_buffer(plan, index, kernels->pool_places_bytes(&state->shape),
                                          CDDPI_IN_BOTH);
    }
    return CDDP_OK;
}

static void *places(const struct cddpi_exec *exec, const struct pool_cuda_state *state)
{
    return state->places >= 0 ? cddpi_exec_buffer(exec, state->places) : NULL;
}

static cddp_status forward(struct cddpi_exec *exec)
{
    const struct pool_cuda_state *state = exec->state;

    return cddpi_exec_kernels(exec)->pool(exec->model->device, &state->shape,
                                          cddpi_exec_input(exec, 0), cddpi_exec_output(exec),
                                          places(exec, state));
}

static cddp_status backward(struct cddpi_exec *exec)
{
    const struct pool_cuda_state *state = exec->state;
    void *grad_input = cddpi_exec_grad_input(exec, 0);

    return grad_input == NULL
               ? CDDP_OK
               : cddpi_exec_kernels(exec)->pool_grad(exec->model->device, &state->shape,
                                                     cddpi_exec_grad_output(exec, 0),
                                                     places(exec, state), grad_input);
}

const struct cddpi_op_kernels cddpi_cuda_pool = {.state_bytes = sizeof(struct pool_cuda_state),
                                                 .plan = plan_pool,
                                                 .forward = forward,
                                                 .backward = backward};

static size_t area_of(const struct cddpi_exec *exec)
{
    return (size_t)exec->op->in.height * (size_t)exec->op->in.width;
}

static cddp_status global_forward(struct cddpi_exec *exec)
{
    return cddpi_exec_kernels(exec)->global_pool(
        exec->model->device, exec->model->type, cddpi_exec_input(exec, 0),
        (size_t)exec->plan->count, area_of(exec), (size_t)exec->op->in.channels,
        cddpi_exec_output(exec));
}

static cddp_status global_backward(struct cddpi_exec *exec)
{
    void *grad_input = cddpi_exec_grad_input(exec, 0);

    if (grad_input == NULL) {
        return CDDP_OK;
    }
    return cddpi_exec_kernels(exec)->global_pool_grad(
        exec->model->device, exec->model->type, cddpi_exec_grad_output(exec, 0),
        (size_t)exec->plan->count, area_of(exec), (size_t)exec->op->in.channels, grad_input);
}

const struct cddpi_op_kernels cddpi_cuda_global_pool = {
    .plan = cddpi_plan_flat, .forward = global_forward, .backward = global_backward};
