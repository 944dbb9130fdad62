/* layer_norm_op.c - owns layer normalisation: each row of features gets mean 0 and variance 1, then
 * scale and shift. */
#include "base/error.h"
#include "kernels/cpu/transformer.h"
#include "nn/cuda/model_cuda.h"

struct layer_norm_state {
    int moments; /* buffer: the means of all rows, then 1 / sqrt(variance + epsilon) of all rows */
    int scratch; /* buffer; training only */
};

static cddp_status shape(const struct cddpi_op *op, struct cddpi_shape *out)
{
    (void)out;
    if (!op->in.flat && !op->in.sequence) {
        return cddpi_fail(
            CDDP_ERR_CONFIG,
            "layer_norm takes flat inputs or sequences, but its input is %d x %d x %d "
            "(channels x height x width)",
            op->in.channels, op->in.height, op->in.width);
    }
    return CDDP_OK;
}

static cddp_status declare(struct cddpi_model *model, struct cddpi_op *op)
{
    int64_t dims[] = {op->in.channels};

    CDDPI_TRY(cddpi_model_add_param(model, op, 0, "weight", 1, dims,
                                    (struct cddpi_param_info){CDDPI_INIT_ONE, 0, false}));
    return cddpi_model_add_param(model, op, 1, "bias", 1, dims,
                                 (struct cddpi_param_info){CDDPI_INIT_ZERO, 0, false});
}

static cddp_status plan_layer_norm(struct cddpi_plan *plan, int index)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    struct layer_norm_state *state = plan->ops[index].state;
    size_t moments = 2 * cddpi_plan_rows(plan, op) * sizeof(float);
    size_t scratch = CDDPI_LAYER_NORM_SCRATCH((size_t)op->in.channels) * sizeof(double);

    cddpi_plan_output(plan, index, cddpi_plan_input(plan, index, 0)->block);
    plan->ops[index].flags = CDDPI_FORWARD_INPLACE | CDDPI_NEEDS_INPUT | CDDPI_GRAD_INPLACE;
    if (plan->training) {
        state->moments = cddpi_plan_buffer(plan, index, moments, CDDPI_IN_BOTH);
        state->scratch = cddpi_plan_buffer(plan, index, scratch, CDDPI_IN_BACKWARD);
    }
    return CDDP_OK;
}

static cddp_status forward(struct cddpi_exec *exec)
{
    const struct layer_norm_state *state = exec->state;
    size_t rows = cddpi_plan_rows(exec->plan, exec->op);
    float *mean = exec->plan->training ? cddpi_exec_buffer(exec, state->moments) : NULL;

    cddpi_transformer_kernels()->layer_norm->forward(
        cddpi_exec_input(exec, 0), cddpi_exec_param(exec, 0), cddpi_exec_param(exec, 1),
        (float)exec->op->layer.epsilon, rows, (size_t)exec->op->in.channels,
        cddpi_exec_output(exec), mean, mean != NULL ? mean + rows : NULL);
    return CDDP_OK;
}

static cddp_status backward(struct cddpi_exec *exec)
{
    const struct layer_norm_state *state = exec->state;
    size_t rows = cddpi_plan_rows(exec->plan, exec->op);
    size_t columns = (size_t)exec->op->in.channels;
    const float *mean = cddpi_exec_buffer(exec, state->moments);

    cddpi_transformer_kernels()->layer_norm->backward(
        cddpi_exec_grad_output(exec, 0), cddpi_exec_input(exec, 0), cddpi_exec_param(exec, 0), mean,
        mean + rows, rows, columns, cddpi_exec_grad_input(exec, 0), cddpi_exec_sums(exec, 0),
        cddpi_exec_sums(exec, 1), cddpi_exec_buffer(exec, state->scratch));
    return cddpi_exec_ready_both(exec);
}

struct layer_norm_cuda_state {
    /* buffers; unwanted: receives the gradient if nobody needs it */
    int moments, scratch, unwanted;
};

static cddp_status plan_cuda(struct cddpi_plan *plan, int index)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    struct layer_norm_cuda_state *state = plan->ops[index].state;
    size_t rows = cddpi_plan_rows(plan, op);
    size_t columns = (size_t)op->in.channels;
    size_t scratch = plan->model->cuda->kernels->layer_norm_scratch(plan->model->device, rows,
                                                                    columns);

    cddpi_plan_output(plan, index, cddpi_plan_input(plan, index, 0)->block);
    plan->ops[index].flags = CDDPI_NEEDS_INPUT | CDDPI_ADDS_OTHER;
    if (plan->training) {
        state->moments = cddpi_plan_buffer(plan, index, 2 * rows * sizeof(float), CDDPI_IN_BOTH);
        state->scratch = cddpi_plan_buffer(plan, index, scratch, CDDPI_IN_BACKWARD);
    }
    if (plan->training && !cddpi_plan_wants_grad(plan, index, 0)) {
        state->unwanted = cddpi_plan_buffer(
            plan, index, rows * columns * cddp_type_bytes(plan->model->type), CDDPI_IN_BACKWARD);
    }
    return CDDP_OK;
}

/* If the add before it was left to this op, it computes its input as well: the sum of the add's
 * inputs. */
static cddp_status forward_cuda(struct cddpi_exec *exec)
{
    const struct layer_norm_cuda_state *state = exec->state;
    size_t rows = cddpi_plan_rows(exec->plan, exec->op);
    float *mean = exec->plan->training ? cddpi_exec_buffer(exec, state->moments) : NULL;
    const void *x = cddpi_exec_input(exec, 0);
    const void *residual = NULL;
    void *sum = NULL;

    if (exec->index > 0 && cddpi_exec_is_deferred(exec, exec->index - 1)) {
        struct cddpi_exec before = *exec;

        before.index = exec->index - 1;
        before.op = exec->op - 1;
        x = cddpi_exec_input(&before, 0);
        residual = cddpi_exec_input(&before, 1);
        sum = cddpi_exec_output(&before);
    }
    return cddpi_exec_kernels(exec)->layer_norm(
        exec->model->device, exec->model->type, x, residual, cddpi_exec_param(exec, 0),
        cddpi_exec_param(exec, 1), (float)exec->op->layer.epsilon, rows,
        (size_t)exec->op->in.channels, sum, cddpi_exec_output(exec), mean,
        mean != NULL ? mean + rows : NULL);
}

static cddp_status backward_cuda(struct cddpi_exec *exec)
{
    const struct layer_norm_cuda_state *state = exec->state;
    size_t rows = cddpi_plan_rows(exec->plan, exec->op);
    int other = exec->plan->ops[exec->index].other;
    const float *mean = cddpi_exec_buffer(exec, state->moments);
    void *grad_input = cddpi_exec_grad_input(exec, 0);

    if (grad_input == NULL) {
        grad_input = cddpi_exec_buffer(exec, state->unwanted);
    }
    CDDPI_TRY(cddpi_exec_kernels(exec)->layer_norm_grad(
        exec->model->device, exec->model->type, cddpi_exec_grad_output(exec, 0),
        cddpi_exec_input(exec, 0), cddpi_exec_param(exec, 0), mean, mean + rows, rows,
        (size_t)exec->op->in.channels, other >= 0 ? cddpi_exec_buffer(exec, other) : NULL,
        cddpi_exec_adds(exec, 0), grad_input, cddpi_exec_grad(exec, 0), cddpi_exec_grad(exec, 1),
        cddpi_exec_buffer(exec, state->scratch)));
    return cddpi_exec_ready_both(exec);
}

const struct cddpi_op_kernels cddpi_cuda_layer_norm = {
    .state_bytes = sizeof(struct layer_norm_cuda_state),
    .plan = plan_cuda,
    .forward = forward_cuda,
    .backward = backward_cuda};

static const struct cddpi_op_kernels cpu = {.state_bytes = sizeof(struct layer_norm_state),
                                            .plan = plan_layer_norm,
                                            .forward = forward,
                                            .backward = backward};

const struct cddpi_op_ops cddpi_op_layer_norm = {
    .name = "layer_norm",
    .shape = shape,
    .declare = declare,
    .on = {[CDDPI_DEVICE_CPU] = &cpu, [CDDPI_DEVICE_CUDA] = &cddpi_cuda_layer_norm}};
