/* conv2d_cuda.c - owns convolutions on a device. Images and filters are channels last; the filters
 * are a copy of the plain parameter, and their gradient is converted back. */
#include "nn/ops/conv2d_cuda.h"
#include "base/error.h"

struct conv2d_cuda_state {
    struct cddpi_cuda_groups groups;
    int bias_scratch; /* buffer */
};

static cddp_status plan_conv(struct cddpi_plan *plan, int index)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    struct conv2d_cuda_state *state = plan->ops[index].state;

    cddpi_plan_output(plan, index, op->out.channels);
    cddpi_cuda_groups_plan(plan, index, &state->groups);
    if (plan->training) {
        plan->ops[index].flags = CDDPI_NEEDS_INPUT |
                                 (op->relu ? CDDPI_NEEDS_OUTPUT | CDDPI_MAKES_PREACT_GRAD : 0u);
    }
    if (plan->training && op->params[1] >= 0) {
        state->bias_scratch = cddpi_plan_buffer(
            plan, index,
            plan->model->cuda->kernels->sums_scratch(state->groups.out_pixels,
                                                     (size_t)op->out.channels),
            CDDPI_IN_BACKWARD);
    }
    return CDDP_OK;
}

static cddp_status forward(struct cddpi_exec *exec)
{
    const struct conv2d_cuda_state *state = exec->state;
    const struct cddpi_cuda_kernels *kernels = cddpi_exec_kernels(exec);
    struct cddpi_device *device = exec->model->device;
    const float *bias = cddpi_exec_param(exec, 1);
    void *y = cddpi_exec_output(exec);

    CDDPI_TRY(cddpi_cuda_groups_conv(exec, &state->groups, cddpi_exec_input(exec, 0),
                                     cddpi_exec_copy(exec, 0), y));
    if (bias != NULL) {
        return kernels->add_bias(device, exec->model->type, y, bias, exec->op->relu,
                                 state->groups.out_pixels, (size_t)exec->op->out.channels, y);
    }
    return exec->op->relu ? kernels->pointwise(device, exec->model->type, CDDPI_POINTWISE_RELU, 0,
                                               y, cddpi_exec_output_elements(exec), y)
                          : CDDP_OK;
}

static cddp_status filter_gradient(struct cddpi_exec *exec, const struct conv2d_cuda_state *state,
                                   const void *grad)
{
    const struct cddpi_cuda_kernels *kernels = cddpi_exec_kernels(exec);
    struct cddpi_device *device = exec->model->device;

    CDDPI_TRY(cddpi_cuda_groups_weight(exec, &state->groups, grad, cddpi_exec_input(exec, 0),
                                       cddpi_exec_adds(exec, 0), cddpi_exec_grad(exec, 0)));
    if (cddpi_exec_grad(exec, 1) != NULL) {
        CDDPI_TRY(kernels->column_sums(device, state->groups.part.type, grad,
                                       state->groups.out_pixels, (size_t)exec->op->out.channels,
                                       cddpi_exec_adds(exec, 1), cddpi_exec_grad(exec, 1),
                                       cddpi_exec_buffer(exec, state->bias_scratch)));
    }
    return CDDP_OK;
}

static cddp_status backward(struct cddpi_exec *exec)
{
    const struct conv2d_cuda_state *state = exec->state;
    void *grad_input = cddpi_exec_grad_input(exec, 0);
    const void *grad = NULL;

    CDDPI_TRY(cddpi_cuda_mask_relu(exec, &grad));
    CDDPI_TRY(filter_gradient(exec, state, grad));
    /* before the input's gradient, so that its allreduce can start */
    CDDPI_TRY(cddpi_exec_ready_both(exec));
    return grad_input != NULL ? cddpi_cuda_groups_input(exec, &state->groups, grad,
                                                        cddpi_exec_copy(exec, 0), grad_input)
                              : CDDP_OK;
}

static enum cddpi_copy copy(const struct cddpi_op *op, int k)
{
    if (k == 1) {
        return CDDPI_COPY_NONE;
    }
    return cddpi_cuda_filters_are_plain(op) ? CDDPI_COPY_CAST : CDDPI_COPY_CHANNELS_LAST;
}

const struct cddpi_op_kernels cddpi_cuda_conv2d = {.state_bytes = sizeof(struct conv2d_cuda_state),
                                                   .plan = plan_conv,
                                                   .forward = forward,
                                                   .backward = backward,
                                                   .copy = copy};
