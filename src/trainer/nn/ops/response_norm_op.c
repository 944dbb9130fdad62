/* response_norm_op.c - owns local_response_norm: each value is divided by a power of the sum of
 * squares over neighbouring channels (Krizhevsky et al., "ImageNet Classification with Deep
 * Convolutional Neural Networks", section 3.3). */
#include "base/alloc.h"
#include "base/error.h"
#include "kernels/cpu/cpu_layout.h"
#include "nn/cuda/model_cuda.h"
#include "nn/model_state.h"
#include "nn/plan/model_plan.h"

struct response_norm_state {
    struct cddpi_response_norm norm;
    int memory; /* buffer */
};

static struct cddpi_nn_layout layout_of(const struct cddpi_plan *plan, const struct cddpi_op *op)
{
    return (struct cddpi_nn_layout){(size_t)plan->count, (size_t)op->in.channels,
                                    (size_t)op->in.height * (size_t)op->in.width,
                                    (size_t)plan->values[op->inputs[0]].block};
}

static cddp_status plan_norm(struct cddpi_plan *plan, int index, void **out)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    const struct cddpi_plan_part forward = {.op = index, .what = "normalisation"};
    const struct cddpi_plan_part backward = {.op = index, .what = "gradient of normalisation"};
    struct response_norm_state *state = cddpi_zalloc(sizeof *state);
    struct cddpi_nn_layout layout;

    if (state == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "local_response_norm: no memory for %zu bytes",
                          sizeof *state);
    }
    *out = state;
    state->norm = (struct cddpi_response_norm){op->layer.kernel, (float)op->layer.alpha,
                                               (float)op->layer.beta, (float)op->layer.offset};
    cddpi_plan_output(plan, index, cddpi_plan_input(plan, index, 0)->block);
    plan->ops[index].flags = CDDPI_FORWARD_INPLACE | CDDPI_NEEDS_INPUT | CDDPI_GRAD_INPLACE;
    layout = layout_of(plan, op);
    CDDPI_TRY(cddpi_plan_part(plan, "own:rows", &forward));
    if (cddpi_plan_wants_grad(plan, index, 0)) {
        CDDPI_TRY(cddpi_plan_part(plan, "own:rows", &backward));
    }
    return cddpi_plan_buffer(plan, index, cddpi_response_norm_floats(&layout) * sizeof(float),
                             plan->training ? CDDPI_IN_BOTH : CDDPI_IN_FORWARD, &state->memory);
}

static cddp_status forward(struct cddpi_exec *exec, void *opaque)
{
    const struct response_norm_state *state = opaque;
    struct cddpi_nn_layout layout = layout_of(exec->plan, exec->op);

    cddpi_response_norm_forward(&state->norm, cddpi_exec_input(exec, 0), &layout,
                                cddpi_exec_buffer(exec, state->memory), cddpi_exec_output(exec));
    return CDDP_OK;
}

static cddp_status backward(struct cddpi_exec *exec, void *opaque)
{
    const struct response_norm_state *state = opaque;
    struct cddpi_nn_layout layout = layout_of(exec->plan, exec->op);
    float *grad_input = cddpi_exec_grad_input(exec, 0);

    if (grad_input != NULL) {
        cddpi_response_norm_backward(&state->norm, cddpi_exec_grad_output(exec, 0),
                                     cddpi_exec_input(exec, 0), &layout,
                                     cddpi_exec_buffer(exec, state->memory), grad_input);
    }
    return CDDP_OK;
}

static struct cddpi_cuda_response cuda_shape(const struct cddpi_exec *exec)
{
    const struct cddpi_op *op = exec->op;

    return (struct cddpi_cuda_response){.type = cddpi_exec_type(exec),
                                        .rows = (size_t)exec->plan->count * (size_t)op->in.height *
                                                (size_t)op->in.width,
                                        .channels = op->in.channels,
                                        .size = op->layer.kernel,
                                        .alpha = (float)op->layer.alpha,
                                        .beta = (float)op->layer.beta,
                                        .offset = (float)op->layer.offset};
}

/* Not in place: other threads read a value's neighbours. */
static cddp_status plan_cuda(struct cddpi_plan *plan, int index, void **out)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    struct response_norm_state *state = cddpi_zalloc(sizeof *state);

    if (state == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "local_response_norm: no memory for %zu bytes",
                          sizeof *state);
    }
    *out = state;
    cddpi_plan_output(plan, index, cddpi_plan_input(plan, index, 0)->block);
    plan->ops[index].flags = CDDPI_NEEDS_INPUT | CDDPI_GRAD_INPLACE;
    return plan->training && cddpi_plan_wants_grad(plan, index, 0)
               ? cddpi_plan_buffer(plan, index,
                                   (size_t)plan->count * cddpi_shape_elements(&op->in) *
                                       sizeof(float),
                                   CDDPI_IN_BACKWARD, &state->memory)
               : CDDP_OK;
}

static cddp_status forward_cuda(struct cddpi_exec *exec, void *opaque)
{
    struct cddpi_cuda_response shape = cuda_shape(exec);

    (void)opaque;
    return cddpi_exec_kernels(exec)->response_norm(
        cddpi_exec_device(exec), &shape, cddpi_exec_input(exec, 0), cddpi_exec_output(exec));
}

static cddp_status backward_cuda(struct cddpi_exec *exec, void *opaque)
{
    const struct response_norm_state *state = opaque;
    struct cddpi_cuda_response shape = cuda_shape(exec);
    void *dx = cddpi_exec_grad_input(exec, 0);

    return dx == NULL ? CDDP_OK
                      : cddpi_exec_kernels(exec)->response_norm_grad(
                            cddpi_exec_device(exec), &shape, cddpi_exec_grad_output(exec, 0),
                            cddpi_exec_input(exec, 0), cddpi_exec_buffer(exec, state->memory), dx);
}

const struct cddpi_op_kernels cddpi_cuda_response_norm = {
    .plan = plan_cuda, .forward = forward_cuda, .backward = backward_cuda};

static const struct cddpi_op_kernels cpu = {
    .plan = plan_norm, .forward = forward, .backward = backward};

const struct cddpi_op_ops cddpi_op_response_norm = {
    .name = "local_response_norm",
    .images_only = true,
    .on = {[CDDPI_DEVICE_CPU] = &cpu, [CDDPI_DEVICE_CUDA] = &cddpi_cuda_response_norm}};
