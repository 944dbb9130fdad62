/* flatten.c - owns the conversion of an image to one row of features, plain N x (C H W): a view of
 * plain images, or a copy out of a blocked layout. */
#include "nn/cuda/model_cuda.h"

static cddp_status shape(const struct cddpi_op *op, struct cddpi_shape *out)
{
    /* at most 1 << 28: the graph limits the elements of a value */
    *out = cddpi_shape_flat((int)cddpi_shape_elements(&op->in));
    return CDDP_OK;
}

static cddp_status plan_flatten(struct cddpi_plan *plan, int index)
{
    struct cddpi_nn_layout in = cddpi_plan_input_layout(plan, index);
    bool same = in.block == 1 || (in.spatial == 1 && in.channels % in.block == 0);

    cddpi_plan_output(plan, index, 1);
    plan->ops[index].flags = same ? CDDPI_FORWARD_VIEW | CDDPI_GRAD_VIEW : 0;
    return CDDP_OK;
}

static cddp_status forward(struct cddpi_exec *exec)
{
    struct cddpi_nn_layout in = cddpi_plan_input_layout(exec->plan, exec->index);

    cddpi_nn_to_plain(cddpi_exec_input(exec, 0), &in, cddpi_exec_output(exec));
    return CDDP_OK;
}

static cddp_status backward(struct cddpi_exec *exec)
{
    struct cddpi_nn_layout in = cddpi_plan_input_layout(exec->plan, exec->index);

    cddpi_nn_from_plain(cddpi_exec_grad_output(exec, 0), &in, cddpi_exec_grad_input(exec, 0));
    return CDDP_OK;
}

static cddp_status forward_cuda(struct cddpi_exec *exec)
{
    struct cddpi_nn_layout in = cddpi_plan_input_layout(exec->plan, exec->index);

    return cddpi_exec_kernels(exec)->transpose(exec->model->device, exec->model->type,
                                               cddpi_exec_input(exec, 0), in.samples, in.spatial,
                                               in.channels, cddpi_exec_output(exec));
}

static cddp_status backward_cuda(struct cddpi_exec *exec)
{
    struct cddpi_nn_layout in = cddpi_plan_input_layout(exec->plan, exec->index);

    return cddpi_exec_kernels(exec)->transpose(
        exec->model->device, exec->model->type, cddpi_exec_grad_output(exec, 0), in.samples,
        in.channels, in.spatial, cddpi_exec_grad_input(exec, 0));
}

const struct cddpi_op_kernels cddpi_cuda_flatten = {
    .plan = plan_flatten, .forward = forward_cuda, .backward = backward_cuda};

static const struct cddpi_op_kernels cpu = {
    .plan = plan_flatten, .forward = forward, .backward = backward};

const struct cddpi_op_ops cddpi_op_flatten = {
    .name = "flatten",
    .images_only = true,
    .shape = shape,
    .on = {[CDDPI_DEVICE_CPU] = &cpu, [CDDPI_DEVICE_CUDA] = &cddpi_cuda_flatten}};
