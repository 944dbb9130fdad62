/* conv2d_cuda.c - owns convolutions on a device. Images and filters are channels last; the filters
 * are a copy of the plain parameter, and their gradient is converted back.
 *
 * Groups are computed one after the other, each as a convolution of its own whose channels are
 * copied out of the images and back. So groups use the same kernels as all convolutions, with the
 * same order of sums. */
#include "base/error.h"
#include "nn/cuda/model_cuda.h"

enum { WEIGHT_ALIGNMENT = 16 }; /* alignment that kernels need */

struct conv2d_cuda_groups {
    struct cddpi_cuda_conv part; /* one group's convolution */
    int count;
    size_t in_pixels, out_pixels; /* of all images */
    size_t filters;               /* elements of one group's filters */
    /* buffers, if there are several groups: one group's channels of input and output (or of their
     * gradients); its filters, if they are not aligned as kernels need; their gradient */
    int x, y, weight, grad;
    bool moves_weight;
};

/* Whether the plain layout of the filters equals the channels-last layout in memory. */
static bool filters_are_plain(const struct cddpi_op *op)
{
    return op->layer.kernel == 1 || op->in.channels == op->layer.groups;
}

static void plan_groups(struct cddpi_plan *plan, int index, struct conv2d_cuda_groups *out)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    size_t element = cddp_type_bytes(plan->model->type);
    struct conv2d_cuda_groups groups = {.count = op->layer.groups};

    groups.part = (struct cddpi_cuda_conv){.type = plan->model->type,
                                           .count = plan->count,
                                           .channels = op->in.channels / groups.count,
                                           .height = op->in.height,
                                           .width = op->in.width,
                                           .outputs = op->out.channels / groups.count,
                                           .kernel = op->layer.kernel,
                                           .stride = op->layer.stride,
                                           .padding = op->layer.padding,
                                           .any_order = plan->model->cuda->any_order};
    groups.in_pixels = (size_t)plan->count * (size_t)op->in.height * (size_t)op->in.width;
    groups.out_pixels = (size_t)plan->count * (size_t)op->out.height * (size_t)op->out.width;
    groups.filters = (size_t)groups.part.outputs * (size_t)groups.part.channels *
                     (size_t)groups.part.kernel * (size_t)groups.part.kernel;
    if (groups.count > 1) {
        groups.moves_weight = groups.filters * element % WEIGHT_ALIGNMENT != 0;
        groups.x = cddpi_plan_buffer(
            plan, index, groups.in_pixels * (size_t)groups.part.channels * element, CDDPI_IN_BOTH);
        groups.y = cddpi_plan_buffer(
            plan, index, groups.out_pixels * (size_t)groups.part.outputs * element, CDDPI_IN_BOTH);
    }
    if (groups.moves_weight) {
        groups.weight = cddpi_plan_buffer(plan, index, groups.filters * element, CDDPI_IN_BOTH);
    }
    if (plan->training && (groups.count > 1 || !filters_are_plain(op))) {
        groups.grad = cddpi_plan_buffer(plan, index, groups.filters * sizeof(float),
                                        CDDPI_IN_BACKWARD);
    }
    *out = groups;
}

/* The filters of group @p g, aligned as kernels need. */
static cddp_status filters_of(const struct cddpi_exec *exec,
                              const struct conv2d_cuda_groups *groups, const void *weight, int g,
                              const void **out)
{
    struct cddpi_device *device = exec->model->device;
    size_t bytes = groups->filters * cddp_type_bytes(groups->part.type);
    const char *from = (const char *)weight + (size_t)g * bytes;

    *out = groups->moves_weight ? cddpi_exec_buffer(exec, groups->weight) : from;
    return groups->moves_weight
               ? device->ops->copy(device, CDDPI_STREAM_COMPUTE,
                                   cddpi_exec_buffer(exec, groups->weight), from, bytes)
               : CDDP_OK;
}

/* Channels of the images on one side of a convolution. */
struct side {
    int buffer;
    int channels; /* of one group */
    size_t pixels;
};

static struct side inputs_of(const struct conv2d_cuda_groups *groups)
{
    return (struct side){groups->x, groups->part.channels, groups->in_pixels};
}

static struct side outputs_of(const struct conv2d_cuda_groups *groups)
{
    return (struct side){groups->y, groups->part.outputs, groups->out_pixels};
}

/* Copy the channels of group @p g from the images to the side's buffer. */
static cddp_status take_group(const struct cddpi_exec *exec,
                              const struct conv2d_cuda_groups *groups, struct side side,
                              const void *images, int g)
{
    size_t channels = (size_t)side.channels;

    return cddpi_exec_kernels(exec)->take_columns(exec->model->device, groups->part.type, images,
                                                  side.pixels, channels * (size_t)groups->count,
                                                  channels * (size_t)g, channels,
                                                  cddpi_exec_buffer(exec, side.buffer));
}

/* The opposite: from the side's buffer to the images. */
static cddp_status put_group(const struct cddpi_exec *exec, const struct conv2d_cuda_groups *groups,
                             struct side side, int g, void *images)
{
    size_t channels = (size_t)side.channels;

    return cddpi_exec_kernels(exec)->put_columns(
        exec->model->device, groups->part.type, cddpi_exec_buffer(exec, side.buffer), side.pixels,
        channels * (size_t)groups->count, channels * (size_t)g, channels, images);
}

/* The kernels conv and conv_input. Filters are outputs x kernel x kernel x a group's channels. */
typedef cddp_status (*conv_fn)(struct cddpi_device *device, const struct cddpi_cuda_conv *shape,
                               const void *x, const void *weight, void *y);

static cddp_status run(const struct cddpi_exec *exec, const struct conv2d_cuda_groups *groups,
                       conv_fn conv, struct side from, const void *x, const void *weight,
                       struct side to, void *y)
{
    struct cddpi_device *device = exec->model->device;

    if (groups->count == 1) {
        return conv(device, &groups->part, x, weight, y);
    }
    for (int g = 0; g < groups->count; g++) {
        const void *filters = NULL;

        CDDPI_TRY(filters_of(exec, groups, weight, g, &filters));
        CDDPI_TRY(take_group(exec, groups, from, x, g));
        CDDPI_TRY(conv(device, &groups->part, cddpi_exec_buffer(exec, from.buffer), filters,
                       cddpi_exec_buffer(exec, to.buffer)));
        CDDPI_TRY(put_group(exec, groups, to, g, y));
    }
    return CDDP_OK;
}

static cddp_status conv_groups(const struct cddpi_exec *exec,
                               const struct conv2d_cuda_groups *groups, const void *x,
                               const void *weight, void *y)
{
    return run(exec, groups, cddpi_exec_kernels(exec)->conv, inputs_of(groups), x, weight,
               outputs_of(groups), y);
}

static cddp_status input_gradients(const struct cddpi_exec *exec,
                                   const struct conv2d_cuda_groups *groups, const void *dy,
                                   const void *weight, void *dx)
{
    return run(exec, groups, cddpi_exec_kernels(exec)->conv_input, outputs_of(groups), dy, weight,
               inputs_of(groups), dx);
}

cddp_status cddpi_cuda_filter_gradient(const struct cddpi_exec *exec,
                                       const struct cddpi_cuda_conv *shape, const void *dy,
                                       const void *x, float *made, bool add, float *dweight)
{
    const struct cddpi_cuda_kernels *kernels = cddpi_exec_kernels(exec);
    struct cddpi_device *device = exec->model->device;

    if (made == NULL) {
        return kernels->conv_weight(device, shape, dy, x, add, dweight);
    }
    CDDPI_TRY(kernels->conv_weight(device, shape, dy, x, false, made));
    return kernels->from_channels_last(device, CDDP_F32, made, (size_t)shape->outputs,
                                       (size_t)shape->channels,
                                       (size_t)shape->kernel * (size_t)shape->kernel, add, dweight);
}

static cddp_status weight_gradients(const struct cddpi_exec *exec,
                                    const struct conv2d_cuda_groups *groups, const void *dy,
                                    const void *x, bool add, float *dweight)
{
    bool whole = groups->count == 1;
    float *made = whole && filters_are_plain(exec->op) ? NULL
                                                       : cddpi_exec_buffer(exec, groups->grad);

    if (whole) {
        return cddpi_cuda_filter_gradient(exec, &groups->part, dy, x, made, add, dweight);
    }
    for (int g = 0; g < groups->count; g++) {
        CDDPI_TRY(take_group(exec, groups, inputs_of(groups), x, g));
        CDDPI_TRY(take_group(exec, groups, outputs_of(groups), dy, g));
        CDDPI_TRY(cddpi_cuda_filter_gradient(
            exec, &groups->part, cddpi_exec_buffer(exec, groups->y),
            cddpi_exec_buffer(exec, groups->x), made, add, dweight + (size_t)g * groups->filters));
    }
    return CDDP_OK;
}

struct conv2d_cuda_state {
    struct conv2d_cuda_groups groups;
    int bias_scratch; /* buffer */
};

static cddp_status plan_conv(struct cddpi_plan *plan, int index)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    struct conv2d_cuda_state *state = plan->ops[index].state;

    cddpi_plan_output(plan, index, op->out.channels);
    plan_groups(plan, index, &state->groups);
    if (plan->training) {
        plan->ops[index].flags = CDDPI_NEEDS_INPUT |
                                 (op->relu ? CDDPI_NEEDS_OUTPUT | CDDPI_MAKES_PREACT_GRAD : 0u);
    }
    if (plan->training && op->params[1] >= 0) {
        state->bias_scratch = cddpi_plan_buffer(
            plan, index,
            plan->model->cuda->kernels->sums_scratch(plan->model->device, state->groups.out_pixels,
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

    CDDPI_TRY(
        conv_groups(exec, &state->groups, cddpi_exec_input(exec, 0), cddpi_exec_copy(exec, 0), y));
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

    CDDPI_TRY(weight_gradients(exec, &state->groups, grad, cddpi_exec_input(exec, 0),
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
    return grad_input != NULL
               ? input_gradients(exec, &state->groups, grad, cddpi_exec_copy(exec, 0), grad_input)
               : CDDP_OK;
}

static enum cddpi_copy copy(const struct cddpi_op *op, int k)
{
    if (k == 1) {
        return CDDPI_COPY_NONE;
    }
    return filters_are_plain(op) ? CDDPI_COPY_CAST : CDDPI_COPY_CHANNELS_LAST;
}

const struct cddpi_op_kernels cddpi_cuda_conv2d = {.state_bytes = sizeof(struct conv2d_cuda_state),
                                                   .plan = plan_conv,
                                                   .forward = forward,
                                                   .backward = backward,
                                                   .copy = copy};
