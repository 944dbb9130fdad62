/* linear.c - owns y = W x + b of flat inputs or of each row of a sequence, with the relu behind it
 * in the same pass. Tied to an embedding, W is that one's table. */
#include "base/alloc.h"
#include "base/error.h"
#include "kernels/cpu/nn_elementwise.h"
#include "nn/cuda.h"
#include "nn/model_state.h"
#include "nn/ops/linear_bf16.h"
#include "nn/ops/linear_grad.h"

#include <math.h>
#include <string.h>

static cddp_status shape(const struct cddpi_op *op, const struct cddpi_shape *in2,
                         struct cddpi_shape *out)
{
    (void)in2;
    if (!op->in.flat && !op->in.sequence) {
        return cddpi_fail(CDDP_ERR_CONFIG,
                          "linear takes flat inputs, but its input is %d x %d x %d: put a flatten "
                          "layer (or global_avg_pool) before it",
                          op->in.channels, op->in.height, op->in.width);
    }
    *out = op->in;
    out->channels = op->layer.units;
    return CDDP_OK;
}

static size_t rows_of(const struct cddpi_run *run)
{
    return (size_t)run->plan->count * cddpi_shape_rows(&run->op->in);
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
    cddp_status status;

    if (op->layer.deviation > 0) {
        weight = (struct cddpi_param_info){CDDPI_INIT_NORMAL, op->layer.deviation, true};
        bias = (struct cddpi_param_info){CDDPI_INIT_ZERO, 0, false};
    }
    status = op->layer.tied != NULL
                 ? tie(model, op)
                 : cddpi_model_add_param(model, op, 0, "weight", 2, dims, weight);
    if (status == CDDP_OK && !op->layer.no_bias) {
        status = cddpi_model_add_param(model, op, 1, "bias", 1, dims, bias);
    }
    return status;
}

static double work(const struct cddpi_op *op)
{
    return (double)cddpi_shape_rows(&op->in) * (double)op->in.channels * (double)op->out.channels;
}

/* Products that were planned ahead; NULL where a plain one is made. */
struct state {
    void *bf16; /* all of them */
    void *grad; /* of the weight's gradient */
};

static void unplan(void *opaque)
{
    struct state *state = opaque;

    if (state != NULL) {
        cddpi_linear_bf16_unplan(state->bf16);
        cddpi_linear_grad_unplan(state->grad);
        cddpi_free(state);
    }
}

static cddp_status plan_linear(struct cddpi_plan *plan, int index, void **out)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    struct state *state = cddpi_zalloc(sizeof *state);
    bool keeps_input;
    cddp_status status;

    if (state == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "linear: no memory for %zu bytes", sizeof *state);
    }
    *out = state;
    status = plan->model->precision == CDDPI_PRECISION_BF16
                 ? cddpi_linear_bf16_plan(plan, index, &state->bf16)
                 : cddpi_linear_grad_plan(plan, index, &state->grad);
    if (status != CDDP_OK) {
        return status;
    }
    keeps_input = state->bf16 != NULL && cddpi_linear_bf16_keeps_input(state->bf16);
    cddpi_plan_output(plan, index, op->in.sequence ? op->out.channels : 1);
    plan->ops[index].flags = (keeps_input ? 0u : CDDPI_NEEDS_INPUT) |
                             (op->relu ? CDDPI_NEEDS_OUTPUT | CDDPI_MASKS_GRAD | CDDPI_SUMS_GRADS
                                       : 0u);
    return CDDP_OK;
}

static cddp_status forward(struct cddpi_run *run, void *opaque)
{
    const struct state *state = opaque;
    size_t rows = rows_of(run);
    size_t columns = (size_t)run->op->out.channels;
    size_t inputs = (size_t)run->op->in.channels;
    const float *bias = cddpi_run_param(run, 1);
    float *y = cddpi_run_output(run);
    cddp_status status;

    if (state->bf16 != NULL) {
        return cddpi_linear_bf16_forward(run, state->bf16);
    }
    status = cddpi_gemm(false, true, rows, columns, inputs, cddpi_run_input(run, 0),
                        cddpi_run_param(run, 0), 0, y);
    if (status != CDDP_OK) {
        return status;
    }
    if (bias != NULL && run->op->relu) {
        cddpi_nn_add_bias_relu(y, bias, rows, columns);
    } else if (bias != NULL) {
        cddpi_nn_add_bias(y, bias, rows, columns);
    } else if (run->op->relu) {
        cddpi_nn_relu(y, y, rows * columns);
    }
    return CDDP_OK;
}

/* The gradient behind the relu, and the bias's gradient: in one pass where there is one gradient of
 * the output, or where that is converted to bf16. */
static const float *mask_and_sum(struct cddpi_run *run, const struct state *state, size_t rows,
                                 size_t columns)
{
    float *bias_grad = cddpi_run_grad(run, 1);
    const float *grad;

    if (bias_grad != NULL && !cddpi_run_adds(run, 1)) {
        memset(bias_grad, 0, columns * sizeof *bias_grad);
    }
    if (run->op->relu && bias_grad != NULL && cddpi_run_grad_output(run, 1) == NULL) {
        grad = cddpi_run_masked(run);
        cddpi_nn_mask_column_sums(cddpi_run_grad_output(run, 0), cddpi_run_output(run),
                                  cddpi_run_masked(run), bias_grad, rows, columns);
        bias_grad = NULL; /* done */
    } else {
        grad = cddpi_run_mask_relu(run);
    }
    if (state->bf16 != NULL) {
        cddpi_linear_bf16_grad(run, state->bf16, grad, bias_grad);
    } else if (bias_grad != NULL) {
        cddpi_nn_add_column_sums(grad, bias_grad, rows, columns);
    }
    return grad;
}

static cddp_status weight_gradient(const struct cddpi_run *run, const struct state *state,
                                   const float *grad)
{
    if (state->bf16 != NULL) {
        return cddpi_linear_bf16_weights(run, state->bf16);
    }
    if (state->grad != NULL) {
        return cddpi_linear_grad_run(run, state->grad, grad, cddpi_run_adds(run, 0));
    }
    return cddpi_gemm(true, false, (size_t)run->op->out.channels, (size_t)run->op->in.channels,
                      rows_of(run), grad, cddpi_run_input(run, 0),
                      cddpi_run_adds(run, 0) ? 1.0f : 0.0f, cddpi_run_grad(run, 0));
}

static cddp_status backward(struct cddpi_run *run, void *opaque)
{
    const struct state *state = opaque;
    size_t rows = rows_of(run);
    size_t columns = (size_t)run->op->out.channels;
    size_t inputs = (size_t)run->op->in.channels;
    const float *grad = mask_and_sum(run, state, rows, columns);
    float *grad_input = cddpi_run_grad_input(run, 0);
    cddp_status status = cddpi_run_ready(run, 1);

    if (status == CDDP_OK) {
        status = weight_gradient(run, state, grad);
    }
    if (status == CDDP_OK) {
        status = cddpi_run_ready(run, 0); /* before more work: its reduction can start */
    }
    if (status == CDDP_OK && grad_input != NULL && state->bf16 != NULL) {
        status = cddpi_linear_bf16_input(run, state->bf16, grad_input);
    } else if (status == CDDP_OK && grad_input != NULL) {
        status = cddpi_gemm(false, false, rows, inputs, columns, grad, cddpi_run_param(run, 0), 0,
                            grad_input);
    }
    return status;
}

const struct cddpi_op_ops cddpi_op_linear = {.name = "linear",
                                             .fuses_relu = true,
                                             .shape = shape,
                                             .declare = declare,
                                             .plan = plan_linear,
                                             .unplan = unplan,
                                             .work = work,
                                             .forward = forward,
                                             .backward = backward,
                                             .cuda = &cddpi_cuda_linear};
