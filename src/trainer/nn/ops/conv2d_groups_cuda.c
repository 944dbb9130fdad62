/* conv2d_groups_cuda.c - owns grouped convolutions on a device: one group after the other, each as
 * a convolution of its own whose channels are copied out of the images and back. So groups use the
 * same kernels as all convolutions, with the same order of sums. */
#include "base/error.h"
#include "nn/ops/conv2d_cuda.h"

enum { WEIGHT_ALIGNMENT = 16 }; /* alignment that kernels need */

bool cddpi_cuda_filters_are_plain(const struct cddpi_op *op)
{
    return op->layer.kernel == 1 || op->in.channels == op->layer.groups;
}

void cddpi_cuda_groups_plan(struct cddpi_plan *plan, int index, struct cddpi_cuda_groups *out)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    size_t element = cddp_type_bytes(plan->model->type);
    struct cddpi_cuda_groups groups = {.count = op->layer.groups};

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
    if (plan->training && (groups.count > 1 || !cddpi_cuda_filters_are_plain(op))) {
        groups.grad = cddpi_plan_buffer(plan, index, groups.filters * sizeof(float),
                                        CDDPI_IN_BACKWARD);
    }
    *out = groups;
}

/* The filters of group @p g, aligned as kernels need. */
static cddp_status filters_of(const struct cddpi_exec *exec, const struct cddpi_cuda_groups *groups,
                              const void *weight, int g, const void **out)
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

static struct side inputs_of(const struct cddpi_cuda_groups *groups)
{
    return (struct side){groups->x, groups->part.channels, groups->in_pixels};
}

static struct side outputs_of(const struct cddpi_cuda_groups *groups)
{
    return (struct side){groups->y, groups->part.outputs, groups->out_pixels};
}

/* Copy the channels of group @p g from the images to the side's buffer. */
static cddp_status take_group(const struct cddpi_exec *exec, const struct cddpi_cuda_groups *groups,
                              struct side side, const void *images, int g)
{
    size_t channels = (size_t)side.channels;

    return cddpi_exec_kernels(exec)->take_columns(exec->model->device, groups->part.type, images,
                                                  side.pixels, channels * (size_t)groups->count,
                                                  channels * (size_t)g, channels,
                                                  cddpi_exec_buffer(exec, side.buffer));
}

/* The opposite: from the side's buffer to the images. */
static cddp_status put_group(const struct cddpi_exec *exec, const struct cddpi_cuda_groups *groups,
                             struct side side, int g, void *images)
{
    size_t channels = (size_t)side.channels;

    return cddpi_exec_kernels(exec)->put_columns(
        exec->model->device, groups->part.type, cddpi_exec_buffer(exec, side.buffer), side.pixels,
        channels * (size_t)groups->count, channels * (size_t)g, channels, images);
}

/* The type of the kernels conv and conv_input. */
typedef cddp_status (*conv_fn)(struct cddpi_device *device, const struct cddpi_cuda_conv *shape,
                               const void *x, const void *weight, void *y);

static cddp_status run(const struct cddpi_exec *exec, const struct cddpi_cuda_groups *groups,
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

cddp_status cddpi_cuda_groups_conv(const struct cddpi_exec *exec,
                                   const struct cddpi_cuda_groups *groups, const void *x,
                                   const void *weight, void *y)
{
    return run(exec, groups, cddpi_exec_kernels(exec)->conv, inputs_of(groups), x, weight,
               outputs_of(groups), y);
}

cddp_status cddpi_cuda_groups_input(const struct cddpi_exec *exec,
                                    const struct cddpi_cuda_groups *groups, const void *dy,
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

cddp_status cddpi_cuda_groups_weight(const struct cddpi_exec *exec,
                                     const struct cddpi_cuda_groups *groups, const void *dy,
                                     const void *x, bool add, float *dweight)
{
    bool whole = groups->count == 1;
    float *made = whole && cddpi_cuda_filters_are_plain(exec->op)
                      ? NULL
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
