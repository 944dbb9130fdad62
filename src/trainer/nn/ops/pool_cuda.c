/* pool_cuda.c - owns max_pool, avg_pool and global_avg_pool on a device, with channels last. */
#include "base/alloc.h"
#include "base/error.h"
#include "nn/cuda/model_cuda.h"
#include "nn/model_state.h"

struct pool_cuda_state {
    struct cddpi_cuda_pool shape;
    int places; /* buffer: the place of each maximum in its window; -1: not needed */
};

static cddp_status plan_pool(struct cddpi_plan *plan, int index, void **out)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    struct pool_cuda_state *state = cddpi_zalloc(sizeof *state);

    if (state == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "pool: no memory for %zu bytes", sizeof *state);
    }
    *out = state;
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
    if (state->shape.average || !cddpi_plan_wants_grad(plan, index, 0)) {
        return CDDP_OK;
    }
    return cddpi_plan_buffer(plan, index,
                             plan->model->cuda->kernels->pool_places_bytes(&state->shape),
                             CDDPI_IN_BOTH, &state->places);
}

static void *places(const struct cddpi_exec *exec, const struct pool_cuda_state *state)
{
    return state->places >= 0 ? cddpi_exec_buffer(exec, state->places) : NULL;
}

static cddp_status forward(struct cddpi_exec *exec, void *opaque)
{
    const struct pool_cuda_state *state = opaque;

    return cddpi_exec_kernels(exec)->pool(cddpi_exec_device(exec), &state->shape,
                                          cddpi_exec_input(exec, 0), cddpi_exec_output(exec),
                                          places(exec, state));
}

static cddp_status backward(struct cddpi_exec *exec, void *opaque)
{
    const struct pool_cuda_state *state = opaque;
    void *grad_input = cddpi_exec_grad_input(exec, 0);

    return grad_input == NULL
               ? CDDP_OK
               : cddpi_exec_kernels(exec)->pool_grad(cddpi_exec_device(exec), &state->shape,
                                                     cddpi_exec_grad_output(exec, 0),
                                                     places(exec, state), grad_input);
}

const struct cddpi_op_kernels cddpi_cuda_pool = {
    .plan = plan_pool, .forward = forward, .backward = backward};

static cddp_status plan_global(struct cddpi_plan *plan, int index, void **state)
{
    (void)state;
    cddpi_plan_output(plan, index, 1);
    return CDDP_OK;
}

static size_t area_of(const struct cddpi_exec *exec)
{
    return (size_t)exec->op->in.height * (size_t)exec->op->in.width;
}

static cddp_status global_forward(struct cddpi_exec *exec, void *state)
{
    (void)state;
    return cddpi_exec_kernels(exec)->global_pool(
        cddpi_exec_device(exec), cddpi_exec_type(exec), cddpi_exec_input(exec, 0),
        (size_t)exec->plan->count, area_of(exec), (size_t)exec->op->in.channels,
        cddpi_exec_output(exec));
}

static cddp_status global_backward(struct cddpi_exec *exec, void *state)
{
    void *grad_input = cddpi_exec_grad_input(exec, 0);

    (void)state;
    if (grad_input == NULL) {
        return CDDP_OK;
    }
    return cddpi_exec_kernels(exec)->global_pool_grad(
        cddpi_exec_device(exec), cddpi_exec_type(exec), cddpi_exec_grad_output(exec, 0),
        (size_t)exec->plan->count, area_of(exec), (size_t)exec->op->in.channels, grad_input);
}

const struct cddpi_op_kernels cddpi_cuda_global_pool = {
    .plan = plan_global, .forward = global_forward, .backward = global_backward};
