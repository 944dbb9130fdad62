/* add.c - owns the sum of two equal shapes, with a fused relu. If the summands have different
 * layouts, the second one is converted to the first one's layout. */
#include "base/alloc.h"
#include "base/error.h"
#include "kernels/cpu/cpu_layout.h"
#include "kernels/cpu/elementwise.h"
#include "nn/cuda/model_cuda.h"
#include "nn/plan/model_plan.h"

/* Only where the layouts differ. */
struct add_state {
    struct cddpi_nn_layout layouts[CDDPI_OP_INPUTS];
    int second; /* buffer: the second summand in the first one's layout */
};

static cddp_status shape(const struct cddpi_op *op, const struct cddpi_shape *in2,
                         struct cddpi_shape *out)
{
    const struct cddpi_shape *a = &op->in;

    if (a->channels != in2->channels || a->height != in2->height || a->width != in2->width) {
        return cddpi_fail(CDDP_ERR_CONFIG,
                          "add takes equal shapes, but its inputs are %d x %d x %d and %d x %d x "
                          "%d (channels x height x width)",
                          a->channels, a->height, a->width, in2->channels, in2->height, in2->width);
    }
    *out = op->in;
    return CDDP_OK;
}

static cddp_status plan_convert(struct cddpi_plan *plan, int index, struct add_state **out)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    struct add_state *state = cddpi_zalloc(sizeof *state);
    size_t bytes = cddpi_plan_input(plan, index, 0)->elements * sizeof(float);

    if (state == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "add: no memory for %zu bytes", sizeof *state);
    }
    *out = state;
    for (int k = 0; k < CDDPI_OP_INPUTS; k++) {
        state->layouts[k] = (struct cddpi_nn_layout){
            (size_t)plan->count, (size_t)op->in.channels,
            (size_t)op->in.height * (size_t)op->in.width,
            (size_t)cddpi_plan_input(plan, index, k)->block};
    }
    return cddpi_plan_buffer(plan, index, bytes, CDDPI_IN_FORWARD, &state->second);
}

static cddp_status plan_add(struct cddpi_plan *plan, int index, void **state)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    int block = cddpi_plan_input(plan, index, 0)->block;
    unsigned *flags = &plan->ops[index].flags;

    cddpi_plan_output(plan, index, block);
    *flags = op->relu ? CDDPI_NEEDS_OUTPUT | CDDPI_MAKES_PREACT_GRAD | CDDPI_SUMS_GRADS : 0;
    if (cddpi_plan_input(plan, index, 1)->block != block) {
        return plan_convert(plan, index, (struct add_state **)state);
    }
    *flags |= CDDPI_FORWARD_INPLACE | CDDPI_GRAD_VIEW;
    return CDDP_OK;
}

static cddp_status forward(struct cddpi_exec *exec, void *opaque)
{
    struct add_state *state = opaque;
    const float *second = cddpi_exec_input(exec, 1);
    size_t count = cddpi_exec_output_elements(exec);

    if (state != NULL) {
        float *converted = cddpi_exec_buffer(exec, state->second);

        cddpi_nn_convert(second, &state->layouts[1], converted, &state->layouts[0]);
        second = converted;
    }
    if (exec->op->relu) {
        cddpi_nn_add_relu(cddpi_exec_input(exec, 0), second, cddpi_exec_output(exec), count);
    } else {
        cddpi_nn_add(cddpi_exec_input(exec, 0), second, cddpi_exec_output(exec), count);
    }
    return CDDP_OK;
}

/* If the inputs' gradients are views, only the relu's mask is left to do. */
static cddp_status backward(struct cddpi_exec *exec, void *opaque)
{
    struct add_state *state = opaque;
    const float *grad = cddpi_exec_mask_relu(exec);

    for (int k = 0; state != NULL && k < CDDPI_OP_INPUTS; k++) {
        float *grad_input = cddpi_exec_grad_input(exec, k);

        if (grad_input != NULL) {
            cddpi_nn_convert(grad, &state->layouts[0], grad_input, &state->layouts[k]);
        }
    }
    return CDDP_OK;
}

/* A following layer_norm reads the sum in the pass that computes it, so it does this op's work. */
static bool is_done_later(const struct cddpi_plan *plan, int index)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    const struct cddpi_op *next = op + 1; /* exists, because the loss is the last op */

    return !op->relu && next->ops == &cddpi_op_layer_norm && next->inputs[0] == op->output;
}

static cddp_status plan_cuda(struct cddpi_plan *plan, int index, void **state)
{
    unsigned *flags = &plan->ops[index].flags;

    (void)state;
    cddpi_plan_output(plan, index, cddpi_plan_input(plan, index, 0)->block);
    *flags = CDDPI_GRAD_VIEW;
    if (is_done_later(plan, index)) {
        *flags |= CDDPI_FORWARD_DEFERRED;
    } else {
        *flags |= CDDPI_FORWARD_INPLACE | (cddpi_plan_op_of(plan, index)->relu
                                               ? CDDPI_NEEDS_OUTPUT | CDDPI_MAKES_PREACT_GRAD
                                               : 0u);
    }
    return CDDP_OK;
}

static cddp_status forward_cuda(struct cddpi_exec *exec, void *state)
{
    (void)state;
    if (cddpi_exec_is_deferred(exec, exec->index)) {
        return CDDP_OK;
    }
    return cddpi_exec_kernels(exec)->add(cddpi_exec_device(exec), cddpi_exec_type(exec),
                                         cddpi_exec_input(exec, 0), cddpi_exec_input(exec, 1),
                                         exec->op->relu, cddpi_exec_output_elements(exec),
                                         cddpi_exec_output(exec));
}

static cddp_status backward_cuda(struct cddpi_exec *exec, void *state)
{
    const void *masked;

    (void)state;
    return cddpi_cuda_mask_relu(exec, &masked);
}

const struct cddpi_op_kernels cddpi_cuda_add = {
    .plan = plan_cuda, .forward = forward_cuda, .backward = backward_cuda};

static const struct cddpi_op_kernels cpu = {
    .plan = plan_add, .forward = forward, .backward = backward};

const struct cddpi_op_ops cddpi_op_add = {
    .name = "add",
    .fuses_relu = true,
    .shape = shape,
    .on = {[CDDPI_DEVICE_CPU] = &cpu, [CDDPI_DEVICE_CUDA] = &cddpi_cuda_add}};
