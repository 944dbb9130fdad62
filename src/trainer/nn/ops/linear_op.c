/* linear_op.c - owns y = W x + b of flat inputs or of each row of a sequence, with a fused relu. If
 * it is tied to an embedding, W is the embedding's table. */
#include "nn/ops/linear_op.h"
#include "base/error.h"
#include "kernels/cpu/elementwise.h"
#include "nn/cpu/matmul.h"
#include "nn/cuda/model_cuda.h"

#include <math.h>
#include <string.h>

static cddp_status shape(const struct cddpi_op *op, struct cddpi_shape *out)
{
    if (!op->in.flat && !op->in.sequence) {
        return cddpi_fail(CDDP_ERR_CONFIG,
                          "linear takes flat inputs, but its input is %d x %d x %d: put a flatten "
                          "layer (or global_avg_pool) before it",
                          op->in.channels, op->in.height, op->in.width);
    }
    out->channels = op->layer.units;
    return CDDP_OK;
}

static cddp_status tie(const struct cddpi_model *model, struct cddpi_op *op)
{
    for (const struct cddpi_op *other = model->graph.ops; other < op; other++) {
        const struct cddpi_shape *features = &other->out;

        if (other->ops != &cddpi_op_embedding || strcmp(other->layer.name, op->layer.tied) != 0) {
            continue;
        }
        if (op->out.channels != model->classes || op->in.channels != features->channels) {
            return cddpi_fail(CDDP_ERR_CONFIG,
                              "its weight would be %d x %d, but the table of \"%s\", to which it "
                              "is tied, is %d x %d",
                              op->out.channels, op->in.channels, op->layer.tied, model->classes,
                              features->channels);
        }
        op->params[0] = other->params[0];
        return CDDP_OK;
    }
    return cddpi_fail(CDDP_ERR_CONFIG,
                      "no embedding before it is called \"%s\", to which it is "
                      "tied",
                      op->layer.tied);
}

static cddp_status declare(struct cddpi_model *model, struct cddpi_op *op)
{
    int64_t dims[] = {op->out.channels, op->in.channels};
    double bound = 1 / sqrt((double)op->in.channels);
    struct cddpi_param_info weight = {CDDPI_INIT_UNIFORM, bound, true};
    struct cddpi_param_info bias = {CDDPI_INIT_UNIFORM, bound, false};

    if (op->layer.deviation > 0) {
        weight = (struct cddpi_param_info){CDDPI_INIT_NORMAL, op->layer.deviation, true};
        bias = (struct cddpi_param_info){CDDPI_INIT_ZERO, 0, false};
    }
    CDDPI_TRY(op->layer.tied != NULL
                  ? tie(model, op)
                  : cddpi_model_add_param(model, op, 0, "weight", 2, dims, weight));
    if (!op->layer.no_bias) {
        CDDPI_TRY(cddpi_model_add_param(model, op, 1, "bias", 1, dims, bias));
    }
    return CDDP_OK;
}

static double work(const struct cddpi_op *op)
{
    return (double)cddpi_shape_rows(&op->in) * (double)op->in.channels * (double)op->out.channels;
}

struct linear_state {
    void *bf16; /* plan of all products; NULL: float32, by the fields below */
    struct cddpi_planned_matmul forward, weights, input;
    void *grad; /* replaces `weights` below; NULL: not used */
};

static void unplan(void *opaque)
{
    struct linear_state *state = opaque;

    cddpi_linear_bf16_unplan(state->bf16);
    cddpi_linear_grad_unplan(state->grad);
}

static cddp_status plan_matmuls(struct cddpi_plan *plan, int index, struct linear_state *state)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    size_t rows = cddpi_plan_rows(plan, op);
    size_t outputs = (size_t)op->out.channels;
    size_t inputs = (size_t)op->in.channels;

    state->forward = cddpi_matmul_plan(plan, index, rows, outputs, inputs, CDDPI_IN_FORWARD);
    if (cddpi_plan_wants_grad(plan, index, 0)) {
        state->input = cddpi_matmul_plan(plan, index, rows, inputs, outputs, CDDPI_IN_BACKWARD);
    }
    if (plan->training) {
        state->weights = cddpi_matmul_plan(plan, index, outputs, inputs, rows, CDDPI_IN_WEIGHTS);
    }
    return state->weights.amx ? CDDP_OK : cddpi_linear_grad_plan(plan, index, &state->grad);
}

static cddp_status plan_linear(struct cddpi_plan *plan, int index)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    struct linear_state *state = plan->ops[index].state;
    bool keeps_input;

    CDDPI_TRY(plan->model->precision == CDDPI_PRECISION_BF16
                  ? cddpi_linear_bf16_plan(plan, index, &state->bf16)
                  : plan_matmuls(plan, index, state));
    keeps_input = state->bf16 != NULL && cddpi_linear_bf16_keeps_input(state->bf16);
    cddpi_plan_output(plan, index, op->in.sequence ? op->out.channels : 1);
    plan->ops[index].flags =
        (keeps_input ? 0u : CDDPI_WEIGHTS_INPUT) | (state->bf16 != NULL ? 0u : CDDPI_WEIGHTS_GRAD) |
        (op->relu ? CDDPI_NEEDS_OUTPUT | CDDPI_MAKES_PREACT_GRAD | CDDPI_SUMS_GRADS : 0u);
    return CDDP_OK;
}

static cddp_status forward(struct cddpi_exec *exec)
{
    const struct linear_state *state = exec->state;
    size_t rows = cddpi_plan_rows(exec->plan, exec->op);
    size_t columns = (size_t)exec->op->out.channels;
    size_t inputs = (size_t)exec->op->in.channels;
    struct cddpi_nn_matmul product = cddpi_matmul_of(
        rows, columns, inputs, cddpi_exec_input(exec, 0), inputs, cddpi_exec_param(exec, 0), inputs,
        cddpi_exec_output(exec), columns);

    if (state->bf16 != NULL) {
        return cddpi_linear_bf16_forward(exec, state->bf16);
    }
    product.transpose_b = true;
    product.relu = exec->op->relu;
    product.bias = cddpi_exec_param(exec, 1);
    return cddpi_matmul_run(exec, &state->forward, &product);
}

/* The gradient after the relu's mask, and the bias's gradient. Both take one pass if the output's
 * gradient has one summand, or if it is converted to bf16. */
static const float *mask_and_sum(struct cddpi_exec *exec, const struct linear_state *state,
                                 size_t rows, size_t columns)
{
    float *bias_grad = cddpi_exec_sums(exec, 1);
    const float *grad;

    if (exec->op->relu && bias_grad != NULL && cddpi_exec_grad_output(exec, 1) == NULL) {
        grad = cddpi_exec_preact_grad(exec);
        cddpi_nn_mask_column_sums(cddpi_exec_grad_output(exec, 0), cddpi_exec_output(exec),
                                  cddpi_exec_preact_grad(exec), bias_grad, rows, columns);
        bias_grad = NULL; /* it is summed already */
    } else {
        grad = cddpi_exec_mask_relu(exec);
    }
    if (state->bf16 != NULL) {
        cddpi_linear_bf16_grad(exec, state->bf16, grad, bias_grad);
    } else if (bias_grad != NULL) {
        cddpi_nn_add_column_sums(grad, bias_grad, rows, columns);
    }
    return grad;
}

static cddp_status weight_gradient(const struct cddpi_exec *exec, const struct linear_state *state,
                                   const float *grad)
{
    size_t outputs = (size_t)exec->op->out.channels;
    size_t inputs = (size_t)exec->op->in.channels;
    struct cddpi_nn_matmul product = cddpi_matmul_of(
        outputs, inputs, cddpi_plan_rows(exec->plan, exec->op), grad, outputs,
        cddpi_exec_input(exec, 0), inputs, cddpi_exec_grad(exec, 0), inputs);

    if (state->bf16 != NULL) {
        return cddpi_linear_bf16_weights(exec, state->bf16);
    }
    if (state->grad != NULL) {
        return cddpi_linear_grad_run(exec, state->grad, grad, cddpi_exec_adds(exec, 0));
    }
    product.transpose_a = true;
    product.adds = cddpi_exec_adds(exec, 0);
    return cddpi_matmul_run(exec, &state->weights, &product);
}

static cddp_status input_gradient(const struct cddpi_exec *exec, const struct linear_state *state,
                                  const float *grad, float *out)
{
    size_t outputs = (size_t)exec->op->out.channels;
    size_t inputs = (size_t)exec->op->in.channels;
    struct cddpi_nn_matmul product = cddpi_matmul_of(
        cddpi_plan_rows(exec->plan, exec->op), inputs, outputs, grad, outputs,
        cddpi_exec_param(exec, 0), inputs, out, inputs);

    if (state->bf16 != NULL) {
        return cddpi_linear_bf16_input(exec, state->bf16, out);
    }
    return cddpi_matmul_run(exec, &state->input, &product);
}

/* The weight's gradient; the bias's gradient is complete already. */
static cddp_status weights(struct cddpi_exec *exec)
{
    CDDPI_TRY(weight_gradient(exec, exec->state, cddpi_exec_masked(exec)));
    return cddpi_exec_ready(exec, 0);
}

static cddp_status backward(struct cddpi_exec *exec)
{
    const struct linear_state *state = exec->state;
    size_t rows = cddpi_plan_rows(exec->plan, exec->op);
    size_t columns = (size_t)exec->op->out.channels;
    const float *grad = mask_and_sum(exec, state, rows, columns);
    float *grad_input = cddpi_exec_grad_input(exec, 0);

    CDDPI_TRY(cddpi_exec_ready(exec, 1));
    if (!cddpi_exec_defers(exec)) {
        /* before the input's gradient, so that its allreduce can start */
        CDDPI_TRY(weights(exec));
    }
    if (grad_input != NULL) {
        CDDPI_TRY(input_gradient(exec, state, grad, grad_input));
    }
    return CDDP_OK;
}

static const struct cddpi_op_kernels cpu = {.threads = CDDPI_THREADS_PRODUCTS,
                                            .state_bytes = sizeof(struct linear_state),
                                            .plan = plan_linear,
                                            .unplan = unplan,
                                            .forward = forward,
                                            .backward = backward,
                                            .weights = weights};

const struct cddpi_op_ops cddpi_op_linear = {
    .name = "linear",
    .fuses_relu = true,
    .shape = shape,
    .declare = declare,
    .work = work,
    .on = {[CDDPI_DEVICE_CPU] = &cpu, [CDDPI_DEVICE_CUDA] = &cddpi_cuda_linear}};
