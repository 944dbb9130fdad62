/* pool_cuda.c - owns max_pool, avg_pool and global_avg_pool on a device, with channels last. */
#include "base/alloc.h"
#include "base/error.h"
#include "nn/cuda.h"
#include "nn/model_state.h"

static cddp_status plan_pool(struct cddpi_plan *plan, int index, void **out)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    struct cddpi_cuda_pool *shape = cddpi_zalloc(sizeof *shape);

    if (shape == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "pool: no memory for %zu bytes", sizeof *shape);
    }
    *out = shape;
    *shape = (struct cddpi_cuda_pool){.type = plan->model->cuda->type,
                                      .count = plan->count,
                                      .channels = op->in.channels,
                                      .height = op->in.height,
                                      .width = op->in.width,
                                      .kernel = op->layer.kernel,
                                      .stride = op->layer.stride,
                                      .padding = op->layer.padding,
                                      .average = op->ops == &cddpi_op_avg_pool};
    cddpi_plan_output(plan, index, cddpi_plan_input(plan, index, 0)->block);
    if (!shape->average) {
        plan->ops[index].flags = CDDPI_NEEDS_INPUT | CDDPI_NEEDS_OUTPUT;
    }
    return CDDP_OK;
}

static cddp_status forward(struct cddpi_run *run, void *shape)
{
    return cddpi_run_kernels(run)->pool(cddpi_run_device(run), shape, cddpi_run_input(run, 0),
                                        cddpi_run_output(run));
}

static cddp_status backward(struct cddpi_run *run, void *opaque)
{
    const struct cddpi_cuda_pool *shape = opaque;
    const void *x = shape->average ? NULL : cddpi_run_input(run, 0);
    const void *y = shape->average ? NULL : cddpi_run_output(run);
    void *grad_input = cddpi_run_grad_input(run, 0);

    if (grad_input == NULL) {
        return CDDP_OK;
    }
    return cddpi_run_kernels(run)->pool_grad(cddpi_run_device(run), shape,
                                             cddpi_run_grad_output(run, 0), x, y, grad_input);
}

const struct cddpi_op_cuda cddpi_cuda_pool = {
    .plan = plan_pool, .forward = forward, .backward = backward};

static cddp_status plan_global(struct cddpi_plan *plan, int index, void **state)
{
    (void)state;
    cddpi_plan_output(plan, index, 1);
    return CDDP_OK;
}

static size_t area_of(const struct cddpi_run *run)
{
    return (size_t)run->op->in.height * (size_t)run->op->in.width;
}

static cddp_status global_forward(struct cddpi_run *run, void *state)
{
    (void)state;
    return cddpi_run_kernels(run)->global_pool(cddpi_run_device(run), cddpi_run_type(run),
                                               cddpi_run_input(run, 0), (size_t)run->plan->count,
                                               area_of(run), (size_t)run->op->in.channels,
                                               cddpi_run_output(run));
}

static cddp_status global_backward(struct cddpi_run *run, void *state)
{
    void *grad_input = cddpi_run_grad_input(run, 0);

    (void)state;
    if (grad_input == NULL) {
        return CDDP_OK;
    }
    return cddpi_run_kernels(run)->global_pool_grad(
        cddpi_run_device(run), cddpi_run_type(run), cddpi_run_grad_output(run, 0),
        (size_t)run->plan->count, area_of(run), (size_t)run->op->in.channels, grad_input);
}

const struct cddpi_op_cuda cddpi_cuda_global_pool = {
    .plan = plan_global, .forward = global_forward, .backward = global_backward};
