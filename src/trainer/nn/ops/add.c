/* add.c - owns the sum of two equal shapes, with a fused relu. If the summands have different
 * layouts, the second one is converted to the first one's layout. */
#include "kernels/cpu/cpu_layout.h"
#include "kernels/cpu/elementwise.h"
#include "nn/cuda/model_cuda.h"

struct add_state {
    struct cddpi_nn_layout layouts[CDDPI_OP_INPUTS];
    bool converts; /* the layouts differ */
    int second;    /* buffer: the second summand in the first one's layout */
};

static cddp_status plan_add(struct cddpi_plan *plan, int index)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    struct add_state *state = plan->ops[index].state;
    const struct cddpi_plan_value *first = cddpi_plan_input(plan, index, 0);
    unsigned *flags = &plan->ops[index].flags;

    cddpi_plan_output(plan, index, first->block);
    *flags = op->relu ? CDDPI_NEEDS_OUTPUT | CDDPI_MAKES_PREACT_GRAD | CDDPI_SUMS_GRADS : 0;
    state->converts = cddpi_plan_input(plan, index, 1)->block != first->block;
    for (int k = 0; k < CDDPI_OP_INPUTS; k++) {
        state->layouts[k] = cddpi_plan_layout(plan, &op->in,
                                              cddpi_plan_input(plan, index, k)->block);
    }
    if (state->converts) {
        state->second = cddpi_plan_buffer(plan, index, first->elements * sizeof(float),
                                          CDDPI_IN_FORWARD);
    } else {
        *flags |= CDDPI_FORWARD_INPLACE | CDDPI_GRAD_VIEW;
    }
    return CDDP_OK;
}

static cddp_status forward(struct cddpi_exec *exec)
{
    struct add_state *state = exec->state;
    const float *second = cddpi_exec_converted(exec, cddpi_exec_input(exec, 1), &state->layouts[1],
                                               &state->layouts[0], state->second);
    size_t count = cddpi_exec_output_elements(exec);

    if (exec->op->relu) {
        cddpi_nn_add_relu(cddpi_exec_input(exec, 0), second, cddpi_exec_output(exec), count);
    } else {
        cddpi_nn_add(cddpi_exec_input(exec, 0), second, cddpi_exec_output(exec), count);
    }
    return CDDP_OK;
}

/* If the inputs' gradients are views, only the relu's mask is left to do. */
static cddp_status backward(struct cddpi_exec *exec)
{
    struct add_state *state = exec->state;
    const float *grad = cddpi_exec_mask_relu(exec);

    for (int k = 0; state->converts && k < CDDPI_OP_INPUTS; k++) {
        float *grad_input = cddpi_exec_grad_input(exec, k);

        if (grad_input != NULL) {
            cddpi_nn_convert(grad, &state->layouts[0], grad_input, &state->layouts[k]);
        }
    }
    return CDDP_OK;
}

/* A following layer_norm reads the sum in the pass that computes it, so it does this op's work. */
static cddp_status plan_cuda(struct cddpi_plan *plan, int index)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    const struct cddpi_op *next = op + 1; /* exists, because the loss is the last op */
    unsigned *flags = &plan->ops[index].flags;

    cddpi_plan_output(plan, index, cddpi_plan_input(plan, index, 0)->block);
    *flags = CDDPI_GRAD_VIEW;
    if (!op->relu && next->ops == &cddpi_op_layer_norm && next->inputs[0] == op->output) {
        *flags |= CDDPI_FORWARD_DEFERRED;
    } else {
        *flags |= CDDPI_FORWARD_INPLACE |
                  (op->relu ? CDDPI_NEEDS_OUTPUT | CDDPI_MAKES_PREACT_GRAD : 0u);
    }
    return CDDP_OK;
}

static cddp_status forward_cuda(struct cddpi_exec *exec)
{
    if (cddpi_exec_is_deferred(exec, exec->index)) {
        return CDDP_OK;
    }
    return cddpi_exec_kernels(exec)->add(exec->model->device, exec->model->type,
                                         cddpi_exec_input(exec, 0), cddpi_exec_input(exec, 1),
                                         exec->op->relu, cddpi_exec_output_elements(exec),
                                         cddpi_exec_output(exec));
}

static cddp_status backward_cuda(struct cddpi_exec *exec)
{
    const void *masked;

    return cddpi_cuda_mask_relu(exec, &masked);
}

const struct cddpi_op_kernels cddpi_cuda_add = {
    .plan = plan_cuda, .forward = forward_cuda, .backward = backward_cuda};

static const struct cddpi_op_kernels cpu = {.state_bytes = sizeof(struct add_state),
                                            .plan = plan_add,
                                            .forward = forward,
                                            .backward = backward};

const struct cddpi_op_ops cddpi_op_add = {
    .name = "add",
    .fuses_relu = true,
    .on = {[CDDPI_DEVICE_CPU] = &cpu, [CDDPI_DEVICE_CUDA] = &cddpi_cuda_add}};
