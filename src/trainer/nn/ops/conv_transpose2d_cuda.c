/* conv_transpose2d_cuda.c - owns transposed convolutions on a device. They use the kernels of a
 * convolution from the op's output to its input: its input gradient is our forward, and its forward
 * our input gradient. Images are channels last, and so is the copy of the filters that products
 * read. */
#include "base/error.h"
#include "nn/cuda/model_cuda.h"

struct conv_transpose2d_cuda_state {
    struct cddpi_cuda_conv shape; /* the convolution from the op's output to its input */
    size_t pixels;                /* of all outputs */
    int grad;                     /* buffer: the filters' gradient, channels last */
    int bias_scratch;             /* buffer */
};

/* Whether the plain layout of the filters equals the channels-last layout in memory. */
static bool is_plain(const struct cddpi_op *op)
{
    return op->layer.kernel == 1 || op->out.channels == 1;
}

static void plan_training(struct cddpi_plan *plan, int index,
                          struct conv_transpose2d_cuda_state *state)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    size_t taps = (size_t)op->layer.kernel * (size_t)op->layer.kernel;
    size_t filters = (size_t)op->in.channels * (size_t)op->out.channels * taps;

    plan->ops[index].flags = CDDPI_NEEDS_INPUT;
    if (!is_plain(op)) {
        state->grad = cddpi_plan_buffer(plan, index, filters * sizeof(float), CDDPI_IN_BACKWARD);
    }
    if (op->params[1] >= 0) {
        state->bias_scratch = cddpi_plan_buffer(
            plan, index,
            plan->model->cuda->kernels->sums_scratch(plan->model->device, state->pixels,
                                                     (size_t)op->out.channels),
            CDDPI_IN_BACKWARD);
    }
}

static cddp_status plan_op(struct cddpi_plan *plan, int index)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    struct conv_transpose2d_cuda_state *state = plan->ops[index].state;

    state->shape = (struct cddpi_cuda_conv){.type = plan->model->type,
                                            .count = plan->count,
                                            .channels = op->out.channels,
                                            .height = op->out.height,
                                            .width = op->out.width,
                                            .outputs = op->in.channels,
                                            .kernel = op->layer.kernel,
                                            .stride = op->layer.stride,
                                            .padding = op->layer.padding,
                                            .any_order = plan->model->cuda->any_order};
    state->pixels = (size_t)plan->count * (size_t)op->out.height * (size_t)op->out.width;
    cddpi_plan_output(plan, index, op->out.channels);
    if (plan->training) {
        plan_training(plan, index, state);
    }
    return CDDP_OK;
}

static cddp_status forward(struct cddpi_exec *exec)
{
    const struct conv_transpose2d_cuda_state *state = exec->state;
    const struct cddpi_cuda_kernels *kernels = cddpi_exec_kernels(exec);
    struct cddpi_device *device = exec->model->device;
    const float *bias = cddpi_exec_param(exec, 1);
    void *y = cddpi_exec_output(exec);

    CDDPI_TRY(kernels->conv_input(device, &state->shape, cddpi_exec_input(exec, 0),
                                  cddpi_exec_copy(exec, 0), y));
    return bias != NULL ? kernels->add_bias(device, state->shape.type, y, bias, false,
                                            state->pixels, (size_t)exec->op->out.channels, y)
                        : CDDP_OK;
}

static cddp_status filter_gradient(struct cddpi_exec *exec,
                                   const struct conv_transpose2d_cuda_state *state, const void *dy)
{
    const struct cddpi_cuda_conv *shape = &state->shape;
    float *made = is_plain(exec->op) ? NULL : cddpi_exec_buffer(exec, state->grad);

    CDDPI_TRY(cddpi_cuda_filter_gradient(exec, shape, cddpi_exec_input(exec, 0), dy, made,
                                         cddpi_exec_adds(exec, 0), cddpi_exec_grad(exec, 0)));
    if (cddpi_exec_grad(exec, 1) != NULL) {
        CDDPI_TRY(cddpi_exec_kernels(exec)->column_sums(
            exec->model->device, shape->type, dy, state->pixels, (size_t)shape->channels,
            cddpi_exec_adds(exec, 1), cddpi_exec_grad(exec, 1),
            cddpi_exec_buffer(exec, state->bias_scratch)));
    }
    return CDDP_OK;
}

static cddp_status backward(struct cddpi_exec *exec)
{
    const struct conv_transpose2d_cuda_state *state = exec->state;
    const void *dy = cddpi_exec_grad_output(exec, 0);
    void *dx = cddpi_exec_grad_input(exec, 0);

    CDDPI_TRY(filter_gradient(exec, state, dy));
    /* before the input's gradient, so that its allreduce can start */
    CDDPI_TRY(cddpi_exec_ready_both(exec));
    return dx != NULL ? cddpi_exec_kernels(exec)->conv(exec->model->device, &state->shape, dy,
                                                       cddpi_exec_copy(exec, 0), dx)
                      : CDDP_OK;
}

static enum cddpi_copy copy(const struct cddpi_op *op, int k)
{
    if (k == 1) {
        return CDDPI_COPY_NONE;
    }
    return is_plain(op) ? CDDPI_COPY_CAST : CDDPI_COPY_CHANNELS_LAST;
}

const struct cddpi_op_kernels cddpi_cuda_conv_transpose2d = {
    .state_bytes = sizeof(struct conv_transpose2d_cuda_state),
    .plan = plan_op,
    .forward = forward,
    .backward = backward,
    .copy = copy};
