/* relu.c - owns the relu that no other op does in its own pass. */
#include "kernels/cpu/elementwise.h"
#include "nn/cuda/model_cuda.h"
#include "nn/plan/model_plan.h"

static cddp_status shape(const struct cddpi_op *op, const struct cddpi_shape *in2,
                         struct cddpi_shape *out)
{
    (void)in2;
    *out = op->in;
    return CDDP_OK;
}

static cddp_status plan_relu(struct cddpi_plan *plan, int index, void **state)
{
    (void)state;
    cddpi_plan_output(plan, index, cddpi_plan_input(plan, index, 0)->block);
    plan->ops[index].flags = CDDPI_FORWARD_INPLACE | CDDPI_NEEDS_OUTPUT | CDDPI_MAKES_PREACT_GRAD |
                             CDDPI_GRAD_VIEW | CDDPI_SUMS_GRADS;
    return CDDP_OK;
}

static cddp_status forward(struct cddpi_exec *exec, void *state)
{
    (void)state;
    cddpi_nn_relu(cddpi_exec_input(exec, 0), cddpi_exec_output(exec),
                  cddpi_exec_output_elements(exec));
    return CDDP_OK;
}

static cddp_status backward(struct cddpi_exec *exec, void *state)
{
    (void)state;
    cddpi_exec_mask_relu(exec);
    return CDDP_OK;
}

static cddp_status forward_cuda(struct cddpi_exec *exec, void *state)
{
    (void)state;
    return cddpi_exec_kernels(exec)->relu(
        cddpi_exec_device(exec), cddpi_exec_type(exec), cddpi_exec_input(exec, 0),
        cddpi_exec_output_elements(exec), cddpi_exec_output(exec));
}

static cddp_status backward_cuda(struct cddpi_exec *exec, void *state)
{
    const void *masked;

    (void)state;
    return cddpi_cuda_mask_relu(exec, &masked);
}

static cddp_status plan_cuda(struct cddpi_plan *plan, int index, void **state)
{
    cddp_status status = plan_relu(plan, index, state);

    plan->ops[index].flags &= ~(unsigned)CDDPI_SUMS_GRADS;
    return status;
}

const struct cddpi_op_kernels cddpi_cuda_relu = {
    .plan = plan_cuda, .forward = forward_cuda, .backward = backward_cuda};

static const struct cddpi_op_kernels cpu = {
    .plan = plan_relu, .forward = forward, .backward = backward};

const struct cddpi_op_ops cddpi_op_relu = {
    .name = "relu",
    .shape = shape,
    .on = {[CDDPI_DEVICE_CPU] = &cpu, [CDDPI_DEVICE_CUDA] = &cddpi_cuda_relu}};
