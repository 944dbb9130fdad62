/* linear_bf16.c - owns the products of a linear layer with bf16 factors.
 *
 * Every factor is converted once, where it is used: the input and its packed copy (for the weight's
 * gradient) in one pass, the output's gradient and its transpose in another. On a CPU without bf16
 * instructions, factors are rounded to bf16 precision and multiplied as float32. The products are
 * the same; only the order of sums differs. */
#include "nn/ops/linear_op.h"

#include "base/alloc.h"
#include "base/error.h"
#include "kernels/cpu/bf16.h"
#include "kernels/cpu/elementwise.h"
#include "nn/cpu/dnnl.h"
#include "nn/model_state.h"

#include <string.h>

struct cddpi_linear_bf16 {
    bool rounded;
    bool keeps_input; /* the input's packed copy, for backward */
    size_t rows, outputs, inputs;
    struct cddpi_primitive forward, input, weights, weights_add;
    /* buffers; if `rounded`, all are float32, and "packed" ones are only rounded, not packed */
    int x, x_packed, weight, weight_packed, grad, grad_transposed, sums;
};

static cddp_status plan_matmuls(struct cddpi_linear_bf16 *state, struct cddpi_plan *plan, int index)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    struct cddpi_bf16_matmul forward = {.m = state->rows,
                                        .n = state->outputs,
                                        .k = state->inputs,
                                        .bias = op->params[1] >= 0,
                                        .post = op->relu ? CDDPI_POST_RELU : 0};
    struct cddpi_bf16_matmul weights = {.m = state->outputs, .n = state->inputs, .k = state->rows};
    struct cddpi_bf16_matmul input = {.m = state->rows, .n = state->inputs, .k = state->outputs};
    struct cddpi_dnnl *dnnl;

    CDDPI_TRY(cddpi_dnnl_get(plan->model, &dnnl));
    CDDPI_TRY(
        cddpi_bf16_matmul_init(&state->forward, dnnl, &forward, plan, index, CDDPI_IN_FORWARD));
    if (plan->training) {
        CDDPI_TRY(
            cddpi_bf16_matmul_init(&state->weights, dnnl, &weights, plan, index, CDDPI_IN_WEIGHTS));
        weights.post = CDDPI_POST_ADD;
        CDDPI_TRY(cddpi_bf16_matmul_init(&state->weights_add, dnnl, &weights, plan, index,
                                         CDDPI_IN_WEIGHTS));
    }
    if (cddpi_plan_wants_grad(plan, index, 0)) {
        CDDPI_TRY(
            cddpi_bf16_matmul_init(&state->input, dnnl, &input, plan, index, CDDPI_IN_BACKWARD));
    }
    return CDDP_OK;
}

static void fini_matmuls(struct cddpi_linear_bf16 *state)
{
    cddpi_primitive_fini(&state->forward);
    cddpi_primitive_fini(&state->input);
    cddpi_primitive_fini(&state->weights);
    cddpi_primitive_fini(&state->weights_add);
}

struct need {
    bool needed;
    size_t bytes;
    enum cddpi_lifetime lifetime;
    int *buffer;
};

static void plan_needs(struct cddpi_plan *plan, int index, const struct need *needs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (needs[i].needed) {
            *needs[i].buffer = cddpi_plan_buffer(plan, index, needs[i].bytes, needs[i].lifetime);
        }
    }
}

static void plan_rounded(struct cddpi_linear_bf16 *state, struct cddpi_plan *plan, int index)
{
    size_t x_bytes = state->rows * state->inputs * sizeof(float);
    size_t weight_bytes = state->outputs * state->inputs * sizeof(float);
    const struct need needs[] = {
        {true, x_bytes, CDDPI_IN_FORWARD, &state->x},
        {true, weight_bytes, CDDPI_IN_FORWARD, &state->weight},
        {plan->training, x_bytes, CDDPI_IN_WEIGHTS, &state->x_packed},
        {plan->training, weight_bytes, CDDPI_IN_BACKWARD, &state->weight_packed},
        {plan->training, state->rows * state->outputs * sizeof(float), CDDPI_BACKWARD_TO_WEIGHTS,
         &state->grad},
    };

    plan_needs(plan, index, needs, sizeof needs / sizeof needs[0]);
}

static void plan_forms(struct cddpi_linear_bf16 *state, struct cddpi_plan *plan, int index)
{
    const size_t half = sizeof(uint16_t);
    bool wants_grad = cddpi_plan_wants_grad(plan, index, 0);
    const struct need needs[] = {
        {true, state->rows * state->inputs * half, CDDPI_IN_FORWARD, &state->x},
        {true, cddpi_bf16_packed_count(state->inputs, state->outputs) * half, CDDPI_IN_FORWARD,
         &state->weight},
        {plan->training, cddpi_bf16_packed_count(state->rows, state->inputs) * half,
         state->keeps_input ? CDDPI_FORWARD_TO_WEIGHTS : CDDPI_IN_WEIGHTS, &state->x_packed},
        {plan->training, state->rows * state->outputs * half, CDDPI_BACKWARD_TO_WEIGHTS,
         &state->grad_transposed},
        {plan->training, state->outputs * sizeof(double), CDDPI_IN_BACKWARD, &state->sums},
        {wants_grad, state->rows * state->outputs * half, CDDPI_IN_BACKWARD, &state->grad},
        {wants_grad, cddpi_bf16_packed_count(state->outputs, state->inputs) * half,
         CDDPI_IN_BACKWARD, &state->weight_packed},
    };

    plan_needs(plan, index, needs, sizeof needs / sizeof needs[0]);
}

cddp_status cddpi_linear_bf16_plan(struct cddpi_plan *plan, int index, void **out)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    struct cddpi_linear_bf16 *state = cddpi_zalloc(sizeof *state);
    struct cddpi_plan_mark mark = cddpi_plan_mark(plan);
    cddp_status status = CDDP_OK;

    CDDPI_TRY_MEMORY(state != NULL, "linear: no memory for %zu bytes", sizeof *state);
    *out = state;
    state->rounded = plan->model->bf16 == CDDPI_BF16_ROUNDED;
    state->rows = (size_t)plan->count * cddpi_shape_rows(&op->in);
    state->outputs = (size_t)op->out.channels;
    state->inputs = (size_t)op->in.channels;
    if (!state->rounded) {
        status = plan_matmuls(state, plan, index);
        if (status == CDDP_ERR_UNAVAILABLE) { /* oneDNN has no kernel for this shape */
            fini_matmuls(state);
            state->rounded = true;
            cddpi_plan_rollback(plan, mark);
            status = CDDP_OK;
        }
    }
    CDDPI_TRY(status);
    /* if segments are recomputed, a saved copy would be made twice, so backward makes it once
     * instead */
    state->keeps_input = !state->rounded && !(plan->recompute && op->layer.segment != 0);
    (state->rounded ? plan_rounded : plan_forms)(state, plan, index);
    return CDDP_OK;
}

bool cddpi_linear_bf16_keeps_input(const void *state)
{
    return ((const struct cddpi_linear_bf16 *)state)->keeps_input;
}

void cddpi_linear_bf16_unplan(void *opaque)
{
    if (opaque != NULL) {
        fini_matmuls(opaque);
        cddpi_free(opaque);
    }
}

static cddp_status forward_rounded(const struct cddpi_exec *exec,
                                   const struct cddpi_linear_bf16 *state)
{
    float *x = cddpi_exec_buffer(exec, state->x);
    float *weight = cddpi_exec_buffer(exec, state->weight);
    const float *bias = cddpi_exec_param(exec, 1);
    float *y = cddpi_exec_output(exec);

    cddpi_nn_round_bf16(cddpi_exec_input(exec, 0), x, state->rows * state->inputs);
    cddpi_nn_round_bf16(cddpi_exec_param(exec, 0), weight, state->outputs * state->inputs);
    CDDPI_TRY(cddpi_gemm(false, true, state->rows, state->outputs, state->inputs, x, weight, 0, y));
    if (bias != NULL) {
        cddpi_nn_add_bias(y, bias, state->rows, state->outputs);
    }
    if (exec->op->relu) {
        cddpi_nn_relu(y, y, state->rows * state->outputs);
    }
    return CDDP_OK;
}

cddp_status cddpi_linear_bf16_forward(const struct cddpi_exec *exec, void *opaque)
{
    struct cddpi_linear_bf16 *state = opaque;
    struct cddpi_bf16_forms x = {0};
    uint16_t *weight;

    if (state->rounded) {
        return forward_rounded(exec, state);
    }
    x.plain = cddpi_exec_buffer(exec, state->x);
    if (exec->plan->training && state->keeps_input) {
        x.packed = cddpi_exec_buffer(exec, state->x_packed);
    }
    weight = cddpi_exec_buffer(exec, state->weight);
    cddpi_bf16_split(cddpi_exec_input(exec, 0), state->rows, state->inputs, &x);
    cddpi_bf16_pack_transposed(cddpi_exec_param(exec, 0), state->outputs, state->inputs, weight);
    return cddpi_primitive_run(
        exec, &state->forward,
        (const void *[]){x.plain, weight, cddpi_exec_output(exec), cddpi_exec_param(exec, 1)});
}

void cddpi_linear_bf16_grad(const struct cddpi_exec *exec, void *opaque, const float *grad,
                            float *sums)
{
    const struct cddpi_linear_bf16 *state = opaque;
    struct cddpi_bf16_forms forms = {0};

    if (state->rounded) {
        cddpi_nn_round_bf16(grad, cddpi_exec_buffer(exec, state->grad),
                            state->rows * state->outputs);
        if (sums != NULL) {
            cddpi_nn_add_column_sums(grad, sums, state->rows, state->outputs);
        }
        return;
    }
    forms.plain = state->input.handle != NULL ? cddpi_exec_buffer(exec, state->grad) : NULL;
    forms.transposed = cddpi_exec_buffer(exec, state->grad_transposed);
    if (sums != NULL) {
        forms.sums = cddpi_exec_buffer(exec, state->sums);
        memset(forms.sums, 0, state->outputs * sizeof *forms.sums);
    }
    cddpi_bf16_split(grad, state->rows, state->outputs, &forms);
    for (size_t c = 0; sums != NULL && c < state->outputs; c++) {
        sums[c] = (float)((double)sums[c] + forms.sums[c]);
    }
}

cddp_status cddpi_linear_bf16_weights(const struct cddpi_exec *exec, void *opaque)
{
    struct cddpi_linear_bf16 *state = opaque;
    void *x = cddpi_exec_buffer(exec, state->x_packed);
    float *out = cddpi_exec_grad(exec, 0);

    if (state->rounded) {
        cddpi_nn_round_bf16(cddpi_exec_input(exec, 0), x, state->rows * state->inputs);
        return cddpi_gemm(true, false, state->outputs, state->inputs, state->rows,
                          cddpi_exec_buffer(exec, state->grad), x,
                          cddpi_exec_adds(exec, 0) ? 1.0f : 0.0f, out);
    }
    if (!state->keeps_input) {
        cddpi_bf16_split(cddpi_exec_input(exec, 0), state->rows, state->inputs,
                         &(struct cddpi_bf16_forms){.packed = x});
    }
    return cddpi_primitive_run(
        exec, cddpi_exec_adds(exec, 0) ? &state->weights_add : &state->weights,
        (const void *[]){cddpi_exec_buffer(exec, state->grad_transposed), x, out});
}

cddp_status cddpi_linear_bf16_input(const struct cddpi_exec *exec, void *opaque, float *out)
{
    struct cddpi_linear_bf16 *state = opaque;
    const float *plain = cddpi_exec_param(exec, 0);
    void *weight = cddpi_exec_buffer(exec, state->weight_packed);

    if (state->rounded) {
        cddpi_nn_round_bf16(plain, weight, state->outputs * state->inputs);
        return cddpi_gemm(false, false, state->rows, state->inputs, state->outputs,
                          cddpi_exec_buffer(exec, state->grad), weight, 0, out);
    }
    cddpi_bf16_split(plain, state->outputs, state->inputs,
                     &(struct cddpi_bf16_forms){.packed = weight});
    return cddpi_primitive_run(exec, &state->input,
                               (const void *[]){cddpi_exec_buffer(exec, state->grad), weight, out});
}
