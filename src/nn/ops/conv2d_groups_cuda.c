/* conv2d_groups_cuda.c - owns convolutions in groups on a device: one after the other, each as a
 * convolution of its own, of channels that are copied out of the images and back. So what makes
 * them is what makes all convolutions, and the order of sums is theirs. */
#include "nn/model_state.h"
#include "nn/ops/conv2d_cuda.h"

enum { WEIGHT_ALIGNMENT = 16 }; /* kernels want */

bool cddpi_cuda_filters_are_plain(const struct cddpi_op *op)
{
    return op->layer.kernel == 1 || op->in.channels == op->layer.groups;
}

static cddp_status plan_parts(struct cddpi_plan *plan, int index, struct cddpi_cuda_groups *groups)
{
    enum cddpi_lifetime always = plan->training ? CDDPI_IN_BOTH : CDDPI_IN_FORWARD;
    size_t element = cddp_type_bytes(groups->part.type);
    cddp_status status = cddpi_plan_buffer(
        plan, index, groups->in_pixels * (size_t)groups->part.channels * element, always,
        &groups->x);

    groups->moves_weight = groups->filters * element % WEIGHT_ALIGNMENT != 0;
    if (status == CDDP_OK) {
        status = cddpi_plan_buffer(plan, index,
                                   groups->out_pixels * (size_t)groups->part.outputs * element,
                                   always, &groups->y);
    }
    if (status == CDDP_OK && groups->moves_weight) {
        status = cddpi_plan_buffer(plan, index, groups->filters * element, always, &groups->weight);
    }
    return status;
}

cddp_status cddpi_cuda_groups_plan(struct cddpi_plan *plan, int index,
                                   struct cddpi_cuda_groups *out)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    struct cddpi_cuda_groups groups = {.count = op->layer.groups};
    cddp_status status = CDDP_OK;

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
        status = plan_parts(plan, index, &groups);
    }
    if (status == CDDP_OK && plan->training &&
        (groups.count > 1 || !cddpi_cuda_filters_are_plain(op))) {
        status = cddpi_plan_buffer(plan, index, groups.filters * sizeof(float), CDDPI_IN_BACKWARD,
                                   &groups.grad);
    }
    *out = groups;
    return status;
}

/* Channels of group @p g of an image, or back into it. */
static cddp_status take(const struct cddpi_exec *exec, const struct cddpi_cuda_groups *groups,
                        const void *x, size_t pixels, int channels, int g, void *out)
{
    return cddpi_exec_kernels(exec)->take_columns(cddpi_exec_device(exec), groups->part.type, x,
                                                  pixels, (size_t)channels * (size_t)groups->count,
                                                  (size_t)channels * (size_t)g, (size_t)channels,
                                                  out);
}

static cddp_status put(const struct cddpi_exec *exec, const struct cddpi_cuda_groups *groups,
                       const void *x, size_t pixels, int channels, int g, void *out)
{
    return cddpi_exec_kernels(exec)->put_columns(cddpi_exec_device(exec), groups->part.type, x,
                                                 pixels, (size_t)channels * (size_t)groups->count,
                                                 (size_t)channels * (size_t)g, (size_t)channels,
                                                 out);
}

/* The filters of group @p g, where kernels can read them. */
static cddp_status filters_of(const struct cddpi_exec *exec, const struct cddpi_cuda_groups *groups,
                              const void *weight, int g, const void **out)
{
    struct cddpi_device *device = cddpi_exec_device(exec);
    size_t bytes = groups->filters * cddp_type_bytes(groups->part.type);
    const char *from = (const char *)weight + (size_t)g * bytes;

    *out = groups->moves_weight ? cddpi_exec_buffer(exec, groups->weight) : from;
    return groups->moves_weight
               ? device->ops->copy(device, CDDPI_STREAM_COMPUTE,
                                   cddpi_exec_buffer(exec, groups->weight), from, bytes)
               : CDDP_OK;
}

cddp_status cddpi_cuda_groups_conv(const struct cddpi_exec *exec,
                                   const struct cddpi_cuda_groups *groups, const void *x,
                                   const void *weight, void *y)
{
    const struct cddpi_cuda_kernels *kernels = cddpi_exec_kernels(exec);
    struct cddpi_device *device = cddpi_exec_device(exec);
    const struct cddpi_cuda_conv *part = &groups->part;
    cddp_status status = CDDP_OK;

    if (groups->count == 1) {
        return kernels->conv(device, part, x, weight, y);
    }
    for (int g = 0; status == CDDP_OK && g < groups->count; g++) {
        void *from = cddpi_exec_buffer(exec, groups->x);
        void *to = cddpi_exec_buffer(exec, groups->y);
        const void *filters = NULL;

        status = filters_of(exec, groups, weight, g, &filters);
        if (status == CDDP_OK) {
            status = take(exec, groups, x, groups->in_pixels, part->channels, g, from);
        }
        if (status == CDDP_OK) {
            status = kernels->conv(device, part, from, filters, to);
        }
        if (status == CDDP_OK) {
            status = put(exec, groups, to, groups->out_pixels, part->outputs, g, y);
        }
    }
    return status;
}

cddp_status cddpi_cuda_groups_input(const struct cddpi_exec *exec,
                                    const struct cddpi_cuda_groups *groups, const void *dy,
                                    const void *weight, void *dx)
{
    const struct cddpi_cuda_kernels *kernels = cddpi_exec_kernels(exec);
    struct cddpi_device *device = cddpi_exec_device(exec);
    const struct cddpi_cuda_conv *part = &groups->part;
    cddp_status status = CDDP_OK;

    if (groups->count == 1) {
        return kernels->conv_input(device, part, dy, weight, dx);
    }
    for (int g = 0; status == CDDP_OK && g < groups->count; g++) {
        void *from = cddpi_exec_buffer(exec, groups->y);
        void *to = cddpi_exec_buffer(exec, groups->x);
        const void *filters = NULL;

        status = filters_of(exec, groups, weight, g, &filters);
        if (status == CDDP_OK) {
            status = take(exec, groups, dy, groups->out_pixels, part->outputs, g, from);
        }
        if (status == CDDP_OK) {
            status = kernels->conv_input(device, part, from, filters, to);
        }
        if (status == CDDP_OK) {
            status = put(exec, groups, to, groups->in_pixels, part->channels, g, dx);
        }
    }
    return status;
}

/* Filters with channels last, @p made, become part @p g of the plain gradient. */
static cddp_status store_gradient(const struct cddpi_exec *exec,
                                  const struct cddpi_cuda_groups *groups, const float *made, int g,
                                  bool add, float *dweight)
{
    const struct cddpi_cuda_conv *part = &groups->part;

    return cddpi_exec_kernels(exec)->from_channels_last(
        cddpi_exec_device(exec), CDDP_F32, made, (size_t)part->outputs, (size_t)part->channels,
        (size_t)part->kernel * (size_t)part->kernel, add, dweight + (size_t)g * groups->filters);
}

cddp_status cddpi_cuda_groups_weight(const struct cddpi_exec *exec,
                                     const struct cddpi_cuda_groups *groups, const void *dy,
                                     const void *x, bool add, float *dweight)
{
    const struct cddpi_cuda_kernels *kernels = cddpi_exec_kernels(exec);
    struct cddpi_device *device = cddpi_exec_device(exec);
    const struct cddpi_cuda_conv *part = &groups->part;
    bool whole = groups->count == 1;
    cddp_status status = CDDP_OK;

    if (whole && cddpi_cuda_filters_are_plain(exec->op)) {
        return kernels->conv_weight(device, part, dy, x, add, dweight);
    }
    for (int g = 0; status == CDDP_OK && g < groups->count; g++) {
        const void *of_inputs = whole ? x : cddpi_exec_buffer(exec, groups->x);
        const void *of_outputs = whole ? dy : cddpi_exec_buffer(exec, groups->y);
        float *made = cddpi_exec_buffer(exec, groups->grad);

        if (!whole) {
            status = take(exec, groups, x, groups->in_pixels, part->channels, g,
                          cddpi_exec_buffer(exec, groups->x));
        }
        if (status == CDDP_OK && !whole) {
            status = take(exec, groups, dy, groups->out_pixels, part->outputs, g,
                          cddpi_exec_buffer(exec, groups->y));
        }
        if (status == CDDP_OK) {
            status = kernels->conv_weight(device, part, of_outputs, of_inputs, false, made);
        }
        if (status == CDDP_OK) {
            status = store_gradient(exec, groups, made, g, add, dweight);
        }
    }
    return status;
}
