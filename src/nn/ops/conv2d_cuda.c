/* conv2d_cuda.c - owns convolutions on a device: images and filters with channels last, of which
 * the filters are a copy of the plain parameter; their gradient is turned back. */
#include "base/alloc.h"
#include "base/error.h"
#include "nn/cuda.h"
#include "nn/model_state.h"

struct state {
    struct cddpi_cuda_conv shape;
    size_t pixels;    /* of all outputs */
    int grad;         /* buffer: the filters' gradient with channels last */
    int bias_scratch; /* buffer */
};

/* Whether plain filters and those with channels last are the same. */
static bool is_plain(const struct cddpi_op *op)
{
    return op->layer.kernel == 1 || op->in.channels == 1;
}

static cddp_status plan_training(struct cddpi_plan *plan, int index, struct state *state)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    size_t taps = (size_t)op->layer.kernel * (size_t)op->layer.kernel;
    size_t filters = (size_t)op->out.channels * (size_t)op->in.channels * taps;
    cddp_status status = CDDP_OK;

    plan->ops[index].flags = CDDPI_NEEDS_INPUT |
                             (op->relu ? CDDPI_NEEDS_OUTPUT | CDDPI_MASKS_GRAD : 0u);
    if (!is_plain(op)) {
        status = cddpi_plan_buffer(plan, index, filters * sizeof(float), CDDPI_IN_BACKWARD,
                                   &state->grad);
    }
    if (status == CDDP_OK && op->params[1] >= 0) {
        status = cddpi_plan_buffer(
            plan, index,
            plan->model->cuda->kernels->sums_scratch(state->pixels, (size_t)op->out.channels),
            CDDPI_IN_BACKWARD, &state->bias_scratch);
    }
    return status;
}

static cddp_status plan_conv(struct cddpi_plan *plan, int index, void **out)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    struct state *state = cddpi_zalloc(sizeof *state);

    if (state == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "conv2d: no memory for %zu bytes", sizeof *state);
    }
    *out = state;
    state->shape = (struct cddpi_cuda_conv){.type = plan->model->cuda->type,
                                            .count = plan->count,
                                            .channels = op->in.channels,
                                            .height = op->in.height,
                                            .width = op->in.width,
                                            .outputs = op->out.channels,
                                            .kernel = op->layer.kernel,
                                            .stride = op->layer.stride,
                                            .padding = op->layer.padding,
                                            .any_order = plan->model->cuda->any_order};
    state->pixels = (size_t)plan->count * (size_t)op->out.height * (size_t)op->out.width;
    cddpi_plan_output(plan, index, op->out.channels);
    return plan->training ? plan_training(plan, index, state) : CDDP_OK;
}

static cddp_status forward(struct cddpi_run *run, void *opaque)
{
    const struct state *state = opaque;
    const struct cddpi_cuda_kernels *kernels = cddpi_run_kernels(run);
    struct cddpi_device *device = cddpi_run_device(run);
    const float *bias = cddpi_run_param(run, 1);
    void *y = cddpi_run_output(run);
    cddp_status status = kernels->conv(device, &state->shape, cddpi_run_input(run, 0),
                                       cddpi_run_copy(run, 0), y);

    if (status == CDDP_OK && bias != NULL) {
        status = kernels->add_bias(device, state->shape.type, y, bias, run->op->relu, state->pixels,
                                   (size_t)run->op->out.channels, y);
    } else if (status == CDDP_OK && run->op->relu) {
        status = kernels->relu(device, state->shape.type, y, cddpi_run_output_elements(run), y);
    }
    return status;
}

static cddp_status filter_gradient(struct cddpi_run *run, const struct state *state,
                                   const void *grad)
{
    const struct cddpi_cuda_kernels *kernels = cddpi_run_kernels(run);
    struct cddpi_device *device = cddpi_run_device(run);
    const struct cddpi_cuda_conv *shape = &state->shape;
    bool plain = is_plain(run->op);
    bool adds = cddpi_run_adds(run, 0);
    float *made = plain ? cddpi_run_grad(run, 0) : cddpi_run_buffer(run, state->grad);
    cddp_status status = kernels->conv_weight(device, shape, grad, cddpi_run_input(run, 0),
                                              plain && adds, made);

    if (status == CDDP_OK && !plain) {
        status = kernels->from_channels_last(
            device, CDDP_F32, made, (size_t)shape->outputs, (size_t)shape->channels,
            (size_t)shape->kernel * (size_t)shape->kernel, adds, cddpi_run_grad(run, 0));
    }
    if (status == CDDP_OK && cddpi_run_grad(run, 1) != NULL) {
        status = kernels->column_sums(device, shape->type, grad, state->pixels,
                                      (size_t)shape->outputs, cddpi_run_adds(run, 1),
                                      cddpi_run_grad(run, 1),
                                      cddpi_run_buffer(run, state->bias_scratch));
    }
    return status;
}

static cddp_status backward(struct cddpi_run *run, void *opaque)
{
    const struct state *state = opaque;
    void *grad_input = cddpi_run_grad_input(run, 0);
    const void *grad = NULL;
    cddp_status status = cddpi_cuda_mask_relu(run, &grad);

    if (status == CDDP_OK) {
        status = filter_gradient(run, state, grad);
    }
    if (status == CDDP_OK) {
        status = cddpi_run_ready_both(run); /* before more work: its reduction can start */
    }
    if (status != CDDP_OK || grad_input == NULL) {
        return status;
    }
    return cddpi_run_kernels(run)->conv_input(cddpi_run_device(run), &state->shape, grad,
                                              cddpi_run_copy(run, 0), grad_input);
}

static enum cddpi_copy copy(const struct cddpi_op *op, int k)
{
    if (k == 1) {
        return CDDPI_COPY_NONE;
    }
    return is_plain(op) ? CDDPI_COPY_CAST : CDDPI_COPY_CHANNELS_LAST;
}

const struct cddpi_op_cuda cddpi_cuda_conv2d = {
    .plan = plan_conv, .forward = forward, .backward = backward, .copy = copy};
