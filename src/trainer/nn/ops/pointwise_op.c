/* pointwise_op.c - owns tanh, sigmoid and leaky_relu: functions of one number whose derivative is
 * known from their value. */
#include "kernels/cpu/cpu_pointwise.h"
#include "nn/cuda/model_cuda.h"
#include "nn/model_state.h"

static cddp_status shape(const struct cddpi_op *op, const struct cddpi_shape *in2,
                         struct cddpi_shape *out)
{
    (void)in2;
    *out = op->in;
    return CDDP_OK;
}

static cddp_status plan_op(struct cddpi_plan *plan, int index, void **state)
{
    (void)state;
    cddpi_plan_output(plan, index, cddpi_plan_input(plan, index, 0)->block);
    plan->ops[index].flags = CDDPI_FORWARD_INPLACE | CDDPI_NEEDS_OUTPUT | CDDPI_GRAD_INPLACE;
    return CDDP_OK;
}

static cddp_status forward_tanh(struct cddpi_exec *exec, void *state)
{
    (void)state;
    cddpi_nn_tanh(cddpi_exec_input(exec, 0), cddpi_exec_output(exec),
                  cddpi_exec_output_elements(exec));
    return CDDP_OK;
}

static cddp_status forward_leaky_relu(struct cddpi_exec *exec, void *state)
{
    (void)state;
    cddpi_nn_leaky_relu(cddpi_exec_input(exec, 0), (float)exec->op->layer.slope,
                        cddpi_exec_output(exec), cddpi_exec_output_elements(exec));
    return CDDP_OK;
}

/* Channels that fill the last block up must stay zero, which sigmoid(0) is not. */
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

static cddp_status forward_sigmoid(struct cddpi_exec *exec, void *state)
{
    (void)state;
    cddpi_nn_sigmoid(cddpi_exec_input(exec, 0), cddpi_exec_output(exec),
                     cddpi_exec_output_elements(exec));
    clear_padding(exec, cddpi_exec_output(exec));
    return CDDP_OK;
}

static cddp_status backward(struct cddpi_exec *exec, void *state)
{
    float *dx = cddpi_exec_grad_input(exec, 0);
    const float *dy = cddpi_exec_grad_output(exec, 0);
    const float *y = cddpi_exec_output(exec);
    size_t count = cddpi_exec_output_elements(exec);

    (void)state;
    if (dx == NULL) {
        return CDDP_OK;
    }
    switch (exec->op->layer.type) {
    case CDDPI_LAYER_TANH:
        cddpi_nn_tanh_backward(dy, y, dx, count);
        break;
    case CDDPI_LAYER_SIGMOID:
        cddpi_nn_sigmoid_backward(dy, y, dx, count);
        break;
    default:
        cddpi_nn_leaky_relu_backward(dy, y, (float)exec->op->layer.slope, dx, count);
        break;
    }
    return CDDP_OK;
}

static enum cddpi_cuda_function function_of(const struct cddpi_op *op)
{
    return op->layer.type == CDDPI_LAYER_TANH      ? CDDPI_FUNCTION_TANH
           : op->layer.type == CDDPI_LAYER_SIGMOID ? CDDPI_FUNCTION_SIGMOID
                                                   : CDDPI_FUNCTION_LEAKY_RELU;
}

static cddp_status forward_cuda(struct cddpi_exec *exec, void *state)
{
    (void)state;
    return cddpi_exec_kernels(exec)->pointwise(
        cddpi_exec_device(exec), cddpi_exec_type(exec), function_of(exec->op),
        (float)exec->op->layer.slope, cddpi_exec_input(exec, 0), cddpi_exec_output_elements(exec),
        cddpi_exec_output(exec));
}

static cddp_status backward_cuda(struct cddpi_exec *exec, void *state)
{
    void *dx = cddpi_exec_grad_input(exec, 0);

    (void)state;
    if (dx == NULL) {
        return CDDP_OK;
    }
    return cddpi_exec_kernels(exec)->pointwise_grad(
        cddpi_exec_device(exec), cddpi_exec_type(exec), function_of(exec->op),
        (float)exec->op->layer.slope, cddpi_exec_grad_output(exec, 0), cddpi_exec_output(exec),
        cddpi_exec_output_elements(exec), dx);
}

const struct cddpi_op_kernels cddpi_cuda_pointwise = {
    .plan = plan_op, .forward = forward_cuda, .backward = backward_cuda};

static const struct cddpi_op_kernels on_tanh = {
    .plan = plan_op, .forward = forward_tanh, .backward = backward};
static const struct cddpi_op_kernels on_sigmoid = {
    .plan = plan_op, .forward = forward_sigmoid, .backward = backward};
static const struct cddpi_op_kernels on_leaky_relu = {
    .plan = plan_op, .forward = forward_leaky_relu, .backward = backward};

const struct cddpi_op_ops cddpi_op_tanh = {
    .name = "tanh",
    .shape = shape,
    .on = {[CDDPI_DEVICE_CPU] = &on_tanh, [CDDPI_DEVICE_CUDA] = &cddpi_cuda_pointwise}};
const struct cddpi_op_ops cddpi_op_sigmoid = {
    .name = "sigmoid",
    .shape = shape,
    .on = {[CDDPI_DEVICE_CPU] = &on_sigmoid, [CDDPI_DEVICE_CUDA] = &cddpi_cuda_pointwise}};
const struct cddpi_op_ops cddpi_op_leaky_relu = {
    .name = "leaky_relu",
    .shape = shape,
    .on = {[CDDPI_DEVICE_CPU] = &on_leaky_relu, [CDDPI_DEVICE_CUDA] = &cddpi_cuda_pointwise}};
