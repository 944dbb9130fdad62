/* relu.c - owns the relu that no other op does in its own pass. */
#include "kernels/cpu/nn_elementwise.h"
#include "nn/cuda.h"
#include "nn/plan.h"

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
    plan->ops[index].flags = CDDPI_FORWARD_INPLACE | CDDPI_NEEDS_OUTPUT | CDDPI_MASKS_GRAD |
                             CDDPI_GRAD_VIEW | CDDPI_SUMS_GRADS;
    return CDDP_OK;
}

static cddp_status forward(struct cddpi_run *run, void *state)
{
    (void)state;
    cddpi_nn_relu(cddpi_run_input(run, 0), cddpi_run_output(run), cddpi_run_output_elements(run));
    return CDDP_OK;
}

static cddp_status backward(struct cddpi_run *run, void *state)
{
    (void)state;
    cddpi_run_mask_relu(run);
    return CDDP_OK;
}

static cddp_status forward_cuda(struct cddpi_run *run, void *state)
{
    (void)state;
    return cddpi_run_kernels(run)->relu(cddpi_run_device(run), cddpi_run_type(run),
                                        cddpi_run_input(run, 0), cddpi_run_output_elements(run),
                                        cddpi_run_output(run));
}

static cddp_status backward_cuda(struct cddpi_run *run, void *state)
{
    const void *masked;

    (void)state;
    return cddpi_cuda_mask_relu(run, &masked);
}

static cddp_status plan_cuda(struct cddpi_plan *plan, int index, void **state)
{
    cddp_status status = plan_relu(plan, index, state);

    plan->ops[index].flags &= ~(unsigned)CDDPI_SUMS_GRADS;
    return status;
}

const struct cddpi_op_cuda cddpi_cuda_relu = {
    .plan = plan_cuda, .forward = forward_cuda, .backward = backward_cuda};

const struct cddpi_op_ops cddpi_op_relu = {.name = "relu",
                                           .shape = shape,
                                           .plan = plan_relu,
                                           .forward = forward,
                                           .backward = backward,
                                           .cuda = &cddpi_cuda_relu};
