/* pointwise_op.c - owns the element-wise layers, where they are not fused into another op.
 * kernels/pointwise.h lists them. */
#include "kernels/cpu/elementwise.h"
#include "nn/cuda/model_cuda.h"

static enum cddpi_pointwise function_of(const struct cddpi_op *op)
{
    enum cddpi_pointwise function = (enum cddpi_pointwise)(op->ops - cddpi_op_pointwise);

    return function == CDDPI_POINTWISE_GELU && op->layer.exact ? CDDPI_POINTWISE_GELU_EXACT
                                                               : function;
}

/* CDDPI_NEEDS_INPUT or CDDPI_NEEDS_OUTPUT: what the gradient is computed from, besides dy. */
static const unsigned needs[CDDPI_POINTWISE_COUNT] = {
#define ROW(function, name, value) [CDDPI_POINTWISE_##function] = CDDPI_NEEDS_##value,
    CDDPI_POINTWISE_ROWS(ROW)
#undef ROW
};

/* The gradient of a relu is dy or 0, so it is computed like that of a fused relu, together with the
 * sum of several dy. */
static cddp_status plan_pointwise(struct cddpi_plan *plan, int index)
{
    enum cddpi_pointwise function = function_of(cddpi_plan_op_of(plan, index));

    cddpi_plan_output(plan, index, cddpi_plan_input(plan, index, 0)->block);
    plan->ops[index].flags = CDDPI_FORWARD_INPLACE | needs[function];
    plan->ops[index].flags |= function == CDDPI_POINTWISE_RELU
                                  ? CDDPI_MAKES_PREACT_GRAD | CDDPI_GRAD_VIEW | CDDPI_SUMS_GRADS
                                  : CDDPI_GRAD_INPLACE;
    return CDDP_OK;
}

/* Channels that pad the last block must stay zero, but sigmoid(0) is not zero. */
static void clear_padding(const struct cddpi_exec *exec, float *y)
{
    size_t block = (size_t)exec->plan->values[exec->op->output].block;
    size_t channels = (size_t)exec->op->out.channels;
    size_t spatial = (size_t)exec->op->out.height * (size_t)exec->op->out.width;
    size_t sample = cddpi_exec_output_elements(exec) / (size_t)exec->plan->count;
    size_t used = channels % block;

    if (used == 0 || exec->op->out.sequence) {
        return;
    }
    for (int n = 0; n < exec->plan->count; n++) {
        float *last = y + ((size_t)n + 1) * sample - spatial * block;

        for (size_t i = 0; i < spatial * block; i++) {
            last[i] = i % block < used ? last[i] : 0;
        }
    }
}

static cddp_status forward(struct cddpi_exec *exec)
{
    enum cddpi_pointwise function = function_of(exec->op);

    cddpi_nn_pointwise[function].forward(cddpi_exec_input(exec, 0), (float)exec->op->layer.slope,
                                         cddpi_exec_output(exec), cddpi_exec_output_elements(exec));
    if (function == CDDPI_POINTWISE_SIGMOID) {
        clear_padding(exec, cddpi_exec_output(exec));
    }
    return CDDP_OK;
}

static const void *saved_of(const struct cddpi_exec *exec, enum cddpi_pointwise function)
{
    return needs[function] == CDDPI_NEEDS_INPUT ? cddpi_exec_input(exec, 0)
                                                : cddpi_exec_output(exec);
}

static cddp_status backward(struct cddpi_exec *exec)
{
    enum cddpi_pointwise function = function_of(exec->op);
    float *dx = cddpi_exec_grad_input(exec, 0);

    if (function == CDDPI_POINTWISE_RELU) {
        cddpi_exec_mask_relu(exec);
    } else if (dx != NULL) {
        cddpi_nn_pointwise[function].backward(
            cddpi_exec_grad_output(exec, 0), saved_of(exec, function), (float)exec->op->layer.slope,
            dx, cddpi_exec_output_elements(exec));
    }
    return CDDP_OK;
}

static cddp_status plan_cuda(struct cddpi_plan *plan, int index)
{
    cddp_status status = plan_pointwise(plan, index);

    plan->ops[index].flags &= ~(unsigned)CDDPI_SUMS_GRADS;
    return status;
}

static cddp_status forward_cuda(struct cddpi_exec *exec)
{
    return cddpi_exec_kernels(exec)->pointwise(
        exec->model->device, exec->model->type, function_of(exec->op), (float)exec->op->layer.slope,
        cddpi_exec_input(exec, 0), cddpi_exec_output_elements(exec), cddpi_exec_output(exec));
}

static cddp_status backward_cuda(struct cddpi_exec *exec)
{
    enum cddpi_pointwise function = function_of(exec->op);
    const void *masked;
    void *dx;

    if (function == CDDPI_POINTWISE_RELU) {
        return cddpi_cuda_mask_relu(exec, &masked);
    }
    dx = cddpi_exec_grad_input(exec, 0);
    if (dx == NULL) {
        return CDDP_OK;
    }
    return cddpi_exec_kernels(exec)->pointwise_grad(
        exec->model->device, exec->model->type, function, (float)exec->op->layer.slope,
        cddpi_exec_grad_output(exec, 0), saved_of(exec, function), cddpi_exec_output_elements(exec),
        dx);
}

static const struct cddpi_op_kernels cpu = {
    .plan = plan_pointwise, .forward = forward, .backward = backward};
static const struct cddpi_op_kernels cuda = {
    .plan = plan_cuda, .forward = forward_cuda, .backward = backward_cuda};

const struct cddpi_op_ops cddpi_op_pointwise[CDDPI_POINTWISE_COUNT] = {
#define ROW(function, title, value)                                                                \
    [CDDPI_POINTWISE_##function] = {                                                               \
        .name = (title), .on = {[CDDPI_DEVICE_CPU] = &cpu, [CDDPI_DEVICE_CUDA] = &cuda}},
    CDDPI_POINTWISE_ROWS(ROW)
#undef ROW
};
