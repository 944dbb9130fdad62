/* conv2d_cuda.c - owns convolutions on a device. Images and filters are channels last; the filters
 * are a copy of the plain parameter, and their gradient is converted back. */
#include "nn/ops/conv2d_cuda.h"
#include "base/alloc.h"
#include "base/error.h"
#include "nn/model_state.h"

struct conv2d_cuda_state {
    struct cddpi_cuda_groups groups;
    int bias_scratch; /* buffer */
};

static cddp_status plan_training(struct cddpi_plan *plan, int index,
                                 struct conv2d_cuda_state *state)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);

    plan->ops[index].flags = CDDPI_NEEDS_INPUT |
                             (op->relu ? CDDPI_NEEDS_OUTPUT | CDDPI_MAKES_PREACT_GRAD : 0u);
    if (op->params[1] >= 0) {
        CDDPI_TRY(cddpi_plan_buffer(plan, index,
                                    plan->model->cuda->kernels->sums_scratch(
                                        state->groups.out_pixels, (size_t)op->out.channels),
                                    CDDPI_IN_BACKWARD, &state->bias_scratch));
    }
    return CDDP_OK;
}

static cddp_status plan_conv(struct cddpi_plan *plan, int index, void **out)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    struct conv2d_cuda_state *state = cddpi_zalloc(sizeof *state);

    if (state == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "conv2d: no memory for %zu bytes", sizeof *state);
    }
    *out = state;
    cddpi_plan_output(plan, index, op->out.channels);
    CDDPI_TRY(cddpi_cuda_groups_plan(plan, index, &state->groups));
    return plan->training ? plan_training(plan, index, state) : CDDP_OK;
}

static cddp_status forward(struct cddpi_exec *exec, void *opaque)
{
    const struct conv2d_cuda_state *state = opaque;
    const struct cddpi_cuda_kernels *kernels = cddpi_exec_kernels(exec);
    struct cddpi_device *device = cddpi_exec_device(exec);
    const float *bias = cddpi_exec_param(exec, 1);
    void *y = cddpi_exec_output(exec);
    cddp_status status = cddpi_cuda_groups_conv(exec, &state->groups, cddpi_exec_input(exec, 0),
                                                cddpi_exec_copy(exec, 0), y);

    if (status == CDDP_OK && bias != NULL) {
        status = kernels->add_bias(device, state->groups.part.type, y, bias, exec->op->relu,
                                   state->groups.out_pixels, (size_t)exec->op->out.channels, y);
    } else if (status == CDDP_OK && exec->op->relu) {
        status = kernels->pointwise(device, state->groups.part.type, CDDPI_POINTWISE_RELU, 0, y,
                                    cddpi_exec_output_elements(exec), y);
    }
    return status;
}

static cddp_status filter_gradient(struct cddpi_exec *exec, const struct conv2d_cuda_state *state,
                                   const void *grad)
{
    const struct cddpi_cuda_kernels *kernels = cddpi_exec_kernels(exec);
    struct cddpi_device *device = cddpi_exec_device(exec);

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

static cddp_status backward(struct cddpi_exec *exec, void *opaque)
{
    const struct conv2d_cuda_state *state = opaque;
    void *grad_input = cddpi_exec_grad_input(exec, 0);
    const void *grad = NULL;
    cddp_status status = cddpi_cuda_mask_relu(exec, &grad);

    if (status == CDDP_OK) {
        status = filter_gradient(exec, state, grad);
    }
    if (status == CDDP_OK) {
        /* before the input's gradient, so that its allreduce can start */
        status = cddpi_exec_ready_both(exec);
    }
    if (status != CDDP_OK || grad_input == NULL) {
        return status;
    }
    return cddpi_cuda_groups_input(exec, &state->groups, grad, cddpi_exec_copy(exec, 0),
                                   grad_input);
}

static enum cddpi_copy copy(const struct cddpi_op *op, int k)
{
    if (k == 1) {
        return CDDPI_COPY_NONE;
    }
    return cddpi_cuda_filters_are_plain(op) ? CDDPI_COPY_CAST : CDDPI_COPY_CHANNELS_LAST;
}

const struct cddpi_op_kernels cddpi_cuda_conv2d = {
    .plan = plan_conv, .forward = forward, .backward = backward, .copy = copy};
