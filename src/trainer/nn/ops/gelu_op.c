/* gelu_op.c - owns the gelu that no other op does in its own pass. */
#include "kernels/cpu/transformer.h"
#include "nn/cuda/model_cuda.h"
#include "nn/plan/model_plan.h"

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

static cddp_status forward(struct cddpi_exec *exec, void *state)
{
    (void)state;
    cddpi_transformer_kernels()->gelu->forward(cddpi_exec_input(exec, 0), exec->op->layer.exact,
                                               cddpi_exec_output(exec),
                                               cddpi_exec_output_elements(exec));
    return CDDP_OK;
}

static cddp_status backward(struct cddpi_exec *exec, void *state)
{
    float *grad_input = cddpi_exec_grad_input(exec, 0);

    (void)state;
    if (grad_input != NULL) {
        cddpi_transformer_kernels()->gelu->backward(
            cddpi_exec_grad_output(exec, 0), cddpi_exec_input(exec, 0), exec->op->layer.exact,
            grad_input, cddpi_exec_output_elements(exec));
    }
    return CDDP_OK;
}

static cddp_status forward_cuda(struct cddpi_exec *exec, void *state)
{
    (void)state;
    return cddpi_exec_kernels(exec)->gelu(
        cddpi_exec_device(exec), cddpi_exec_type(exec), exec->op->layer.exact,
        cddpi_exec_input(exec, 0), cddpi_exec_output_elements(exec), cddpi_exec_output(exec));
}

static cddp_status backward_cuda(struct cddpi_exec *exec, void *state)
{
    void *grad_input = cddpi_exec_grad_input(exec, 0);

    (void)state;
    if (grad_input == NULL) {
        return CDDP_OK;
    }
    return cddpi_exec_kernels(exec)->gelu_grad(
        cddpi_exec_device(exec), cddpi_exec_type(exec), exec->op->layer.exact,
        cddpi_exec_grad_output(exec, 0), cddpi_exec_input(exec, 0),
        cddpi_exec_output_elements(exec), grad_input);
}

const struct cddpi_op_kernels cddpi_cuda_gelu = {
    .plan = plan_gelu, .forward = forward_cuda, .backward = backward_cuda};

static const struct cddpi_op_kernels cpu = {
    .plan = plan_gelu, .forward = forward, .backward = backward};

const struct cddpi_op_ops cddpi_op_gelu = {
    .name = "gelu",
    .shape = shape,
    .on = {[CDDPI_DEVICE_CPU] = &cpu, [CDDPI_DEVICE_CUDA] = &cddpi_cuda_gelu}};
