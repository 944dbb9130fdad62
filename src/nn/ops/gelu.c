/* gelu.c - owns the gelu that no other op does in its own pass. */
#include "kernels/cpu/nn_gpt.h"
#include "nn/cuda.h"
#include "nn/plan.h"

static cddp_status shape(const struct cddpi_op *op, const struct cddpi_shape *in2,
                         struct cddpi_shape *out)
{
    (void)in2;
    *out = op->in;
    return CDDP_OK;
}

static cddp_status plan_gelu(struct cddpi_plan *plan, int index, void **state)
{
    (void)state;
    cddpi_plan_output(plan, index, cddpi_plan_input(plan, index, 0)->block);
    plan->ops[index].flags = CDDPI_FORWARD_INPLACE | CDDPI_NEEDS_INPUT | CDDPI_GRAD_INPLACE;
    return CDDP_OK;
}

static cddp_status forward(struct cddpi_run *run, void *state)
{
    (void)state;
    cddpi_gpt_kernels()->gelu->forward(cddpi_run_input(run, 0), run->op->layer.exact,
                                       cddpi_run_output(run), cddpi_run_output_elements(run));
    return CDDP_OK;
}

static cddp_status backward(struct cddpi_run *run, void *state)
{
    float *grad_input = cddpi_run_grad_input(run, 0);

    (void)state;
    if (grad_input != NULL) {
        cddpi_gpt_kernels()->gelu->backward(cddpi_run_grad_output(run, 0), cddpi_run_input(run, 0),
                                            run->op->layer.exact, grad_input,
                                            cddpi_run_output_elements(run));
    }
    return CDDP_OK;
}

static cddp_status forward_cuda(struct cddpi_run *run, void *state)
{
    (void)state;
    return cddpi_run_kernels(run)->gelu(cddpi_run_device(run), cddpi_run_type(run),
                                        run->op->layer.exact, cddpi_run_input(run, 0),
                                        cddpi_run_output_elements(run), cddpi_run_output(run));
}

static cddp_status backward_cuda(struct cddpi_run *run, void *state)
{
    void *grad_input = cddpi_run_grad_input(run, 0);

    (void)state;
    if (grad_input == NULL) {
        return CDDP_OK;
    }
    return cddpi_run_kernels(run)->gelu_grad(cddpi_run_device(run), cddpi_run_type(run),
                                             run->op->layer.exact, cddpi_run_grad_output(run, 0),
                                             cddpi_run_input(run, 0),
                                             cddpi_run_output_elements(run), grad_input);
}

const struct cddpi_op_cuda cddpi_cuda_gelu = {
    .plan = plan_gelu, .forward = forward_cuda, .backward = backward_cuda};

const struct cddpi_op_ops cddpi_op_gelu = {.name = "gelu",
                                           .shape = shape,
                                           .plan = plan_gelu,
                                           .forward = forward,
                                           .backward = backward,
                                           .cuda = &cddpi_cuda_gelu};
