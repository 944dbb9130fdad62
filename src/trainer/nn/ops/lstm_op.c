/* lstm_op.c - owns one layer of a long short-term memory over sequences, as in torch.nn.LSTM: gates
 * in the order input, forget, cell, output, and two biases. The state is zero at the start of each
 * sequence.
 *
 * One product computes the inputs' contribution to the gates of all steps. Each step then adds a
 * product with the previous step's outputs. Backward also runs through the steps first, and then
 * computes the gradients of inputs and weights from those of all gates at once.
 *
 * A layer called NAME_l1 has parameters NAME.weight_ih_l1 and so on, the names of nn.LSTM's second
 * layer. Any other name stands for the first layer. */
#include "base/alloc.h"
#include "base/error.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/transformer.h"
#include "nn/cpu/matmul.h"
#include "nn/cuda/model_cuda.h"

#include <ctype.h>
#include <math.h>
#include <string.h>

static cddp_status shape(const struct cddpi_op *op, struct cddpi_shape *out)
{
    if (!op->in.sequence) {
        return cddpi_fail(CDDP_ERR_CONFIG,
                          "lstm takes sequences, but its input is %d x %d x %d (channels x height "
                          "x width)",
                          op->in.channels, op->in.height, op->in.width);
    }
    out->channels = op->layer.units;
    return CDDP_OK;
}

/* Split "_lN" off the end of @p name, and return the length of the rest. *out_level receives "lN",
 * or "l0" if there is no such end. */
static size_t split_name(const char *name, const char **out_level)
{
    size_t length = strlen(name);
    size_t digits = 0;

    while (digits < length && isdigit((unsigned char)name[length - 1 - digits])) {
        digits++;
    }
    if (digits > 0 && length > digits + 2 && memcmp(name + length - digits - 2, "_l", 2) == 0) {
        *out_level = name + length - digits - 1;
        return length - digits - 2;
    }
    *out_level = "l0";
    return length;
}

static cddp_status add_param(struct cddpi_model *model, struct cddpi_op *op, int k,
                             const char *what, int64_t columns)
{
    const char *level;
    size_t length = split_name(op->layer.name, &level);
    char *layer = cddpi_format("%.*s", (int)length, op->layer.name);
    char *suffix = cddpi_format("%s_%s", what, level);
    int64_t dims[] = {CDDPI_LSTM_GATES * (int64_t)op->out.channels, columns};
    struct cddpi_param_info info = {CDDPI_INIT_UNIFORM, 1 / sqrt((double)op->out.channels),
                                    columns > 0};
    cddp_status status = CDDP_ERR_NO_MEMORY;

    if (layer != NULL && suffix != NULL) {
        status = cddpi_model_add_param_of(model, op, k, layer, suffix, columns > 0 ? 2 : 1, dims,
                                          info);
    } else {
        status = cddpi_fail(status, "lstm: no memory for a name");
    }
    cddpi_free(layer);
    cddpi_free(suffix);
    return status;
}

static cddp_status declare(struct cddpi_model *model, struct cddpi_op *op)
{
    CDDPI_TRY(add_param(model, op, CDDPI_LSTM_WEIGHT_IH, "weight_ih", op->in.channels));
    CDDPI_TRY(add_param(model, op, CDDPI_LSTM_WEIGHT_HH, "weight_hh", op->out.channels));
    if (!op->layer.no_bias) {
        CDDPI_TRY(add_param(model, op, CDDPI_LSTM_BIAS_IH, "bias_ih", 0));
    }
    if (!op->layer.no_bias) {
        CDDPI_TRY(add_param(model, op, CDDPI_LSTM_BIAS_HH, "bias_hh", 0));
    }
    return CDDP_OK;
}

static double work(const struct cddpi_op *op)
{
    return (double)op->in.height * CDDPI_LSTM_GATES * (double)op->out.channels *
           (double)(op->in.channels + op->out.channels);
}

struct lstm_state {
    struct cddpi_planned_matmul gates, input, weight_ih, weight_hh;
    int activations; /* buffer: all gates; backward replaces them by their gradients */
    int cells;       /* buffer */
    int carried;     /* buffer: gradients of a step's outputs and cells; training only */
};

/* The sizes of one run. */
struct lstm_sizes {
    size_t count, length, rows; /* sequences, steps of each, and their product */
    size_t inputs, units, gates;
};

static struct lstm_sizes sizes_of(const struct cddpi_op *op, int count)
{
    struct lstm_sizes sizes = {.count = (size_t)count,
                               .length = (size_t)op->in.height,
                               .inputs = (size_t)op->in.channels,
                               .units = (size_t)op->out.channels};

    sizes.rows = sizes.count * sizes.length;
    sizes.gates = CDDPI_LSTM_GATES * sizes.units;
    return sizes;
}

static cddp_status plan_lstm(struct cddpi_plan *plan, int index)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    struct lstm_sizes sizes = sizes_of(op, plan->count);
    struct lstm_state *state = plan->ops[index].state;
    size_t rows = sizes.rows;
    size_t gates = sizes.gates;

    cddpi_plan_output(plan, index, op->out.channels);
    plan->ops[index].flags = CDDPI_NEEDS_INPUT | CDDPI_NEEDS_OUTPUT;
    state->gates = cddpi_matmul_plan(plan, index, rows, gates, sizes.inputs, CDDPI_IN_FORWARD);
    state->activations = cddpi_plan_buffer(plan, index, rows * gates * sizeof(float),
                                           CDDPI_IN_BOTH);
    state->cells = cddpi_plan_buffer(plan, index, rows * sizes.units * sizeof(float),
                                     CDDPI_IN_BOTH);
    if (!plan->training) {
        return CDDP_OK;
    }
    state->weight_ih = cddpi_matmul_plan(plan, index, gates, sizes.inputs, rows, CDDPI_IN_BACKWARD);
    state->weight_hh = cddpi_matmul_plan(plan, index, gates, sizes.units, rows - 1,
                                         CDDPI_IN_BACKWARD);
    if (cddpi_plan_wants_grad(plan, index, 0)) {
        state->input = cddpi_matmul_plan(plan, index, rows, sizes.inputs, gates, CDDPI_IN_BACKWARD);
    }
    state->carried = cddpi_plan_buffer(plan, index, 2 * sizes.count * sizes.units * sizeof(float),
                                       CDDPI_IN_BACKWARD);
    return CDDP_OK;
}

/* The contribution of inputs and biases to all gates. */
static cddp_status project(struct cddpi_exec *exec, const struct lstm_state *state,
                           const struct lstm_sizes *sizes, float *gates)
{
    const float *bias = cddpi_exec_param(exec, CDDPI_LSTM_BIAS_HH);
    struct cddpi_nn_matmul product = cddpi_matmul_of(
        sizes->rows, sizes->gates, sizes->inputs, cddpi_exec_input(exec, 0), sizes->inputs,
        cddpi_exec_param(exec, CDDPI_LSTM_WEIGHT_IH), sizes->inputs, gates, sizes->gates);

    product.transpose_b = true;
    product.bias = cddpi_exec_param(exec, CDDPI_LSTM_BIAS_IH);
    CDDPI_TRY(cddpi_matmul_run(exec, &state->gates, &product));
    if (bias != NULL) {
        cddpi_nn_add_bias(gates, bias, sizes->rows, sizes->gates);
    }
    return CDDP_OK;
}

static cddp_status forward(struct cddpi_exec *exec)
{
    const struct lstm_state *state = exec->state;
    struct lstm_sizes sizes = sizes_of(exec->op, exec->plan->count);
    float *gates = cddpi_exec_buffer(exec, state->activations);
    float *cells = cddpi_exec_buffer(exec, state->cells);
    float *out = cddpi_exec_output(exec);

    CDDPI_TRY(project(exec, state, &sizes, gates));
    for (size_t t = 0; t < sizes.length; t++) {
        size_t at = t * sizes.units;

        if (t > 0) {
            struct cddpi_nn_matmul product = cddpi_matmul_of(
                sizes.count, sizes.gates, sizes.units, out + at - sizes.units,
                sizes.length * sizes.units, cddpi_exec_param(exec, CDDPI_LSTM_WEIGHT_HH),
                sizes.units, gates + CDDPI_LSTM_GATES * at, sizes.length * sizes.gates);

            product.transpose_b = true;
            product.adds = true;
            CDDPI_TRY(cddpi_matmul(&product, NULL));
        }
        cddpi_transformer_kernels()->lstm->forward(
            gates + CDDPI_LSTM_GATES * at, t > 0 ? cells + at - sizes.units : NULL, cells + at,
            out + at, sizes.count, sizes.length, sizes.units);
    }
    return CDDP_OK;
}

/* Replace all gates by their gradients, from the last step to the first. */
static cddp_status gate_gradients(const struct cddpi_exec *exec, const struct lstm_state *state,
                                  const struct lstm_sizes *sizes, float *gates)
{
    const float *cells = cddpi_exec_buffer(exec, state->cells);
    const float *grad = cddpi_exec_grad_output(exec, 0);
    size_t carried = sizes->count * sizes->units;
    float *carried_out = cddpi_exec_buffer(exec, state->carried);
    float *carried_cell = carried_out + carried;

    memset(carried_out, 0, 2 * carried * sizeof *carried_out);
    for (size_t t = sizes->length; t-- > 0;) {
        size_t at = t * sizes->units;

        cddpi_transformer_kernels()->lstm->backward(
            grad + at, carried_out, carried_cell, t > 0 ? cells + at - sizes->units : NULL,
            cells + at, gates + CDDPI_LSTM_GATES * at, sizes->count, sizes->length, sizes->units);
        if (t > 0) {
            struct cddpi_nn_matmul product = cddpi_matmul_of(
                sizes->count, sizes->units, sizes->gates, gates + CDDPI_LSTM_GATES * at,
                sizes->length * sizes->gates, cddpi_exec_param(exec, CDDPI_LSTM_WEIGHT_HH),
                sizes->units, carried_out, sizes->units);

            CDDPI_TRY(cddpi_matmul(&product, NULL));
        }
    }
    return CDDP_OK;
}

static cddp_status bias_gradient(struct cddpi_exec *exec, const struct lstm_sizes *sizes,
                                 const float *gates, int k)
{
    float *grad = cddpi_exec_sums(exec, k);

    if (grad == NULL) {
        return CDDP_OK;
    }
    cddpi_nn_add_column_sums(gates, grad, sizes->rows, sizes->gates);
    return cddpi_exec_ready(exec, k);
}

/* The gradient of weight @p k, which multiplied @p inputs elements of each row of @p from: the
 * transposed gradients of the gates times @p from. */
static cddp_status weight_gradient(struct cddpi_exec *exec, const struct cddpi_planned_matmul *plan,
                                   const float *gates, const float *from, size_t rows,
                                   size_t inputs, int k)
{
    size_t outputs = CDDPI_LSTM_GATES * (size_t)exec->op->out.channels;
    struct cddpi_nn_matmul product = cddpi_matmul_of(outputs, inputs, rows, gates, outputs, from,
                                                     inputs, cddpi_exec_grad(exec, k), inputs);

    product.transpose_a = true;
    product.adds = cddpi_exec_adds(exec, k);

    CDDPI_TRY(cddpi_matmul_run(exec, plan, &product));
    return cddpi_exec_ready(exec, k);
}

static cddp_status input_gradient(struct cddpi_exec *exec, const struct lstm_state *state,
                                  const struct lstm_sizes *sizes, const float *gates)
{
    float *grad_input = cddpi_exec_grad_input(exec, 0);
    struct cddpi_nn_matmul product = cddpi_matmul_of(
        sizes->rows, sizes->inputs, sizes->gates, gates, sizes->gates,
        cddpi_exec_param(exec, CDDPI_LSTM_WEIGHT_IH), sizes->inputs, grad_input, sizes->inputs);

    if (grad_input == NULL) {
        return CDDP_OK;
    }
    return cddpi_matmul_run(exec, &state->input, &product);
}

/* Each row of gate gradients pairs with the outputs one row earlier, but the row of a first step
 * with none: that row is no longer needed, so it is set to zero. */
static cddp_status recurrent_gradient(struct cddpi_exec *exec, const struct lstm_state *state,
                                      const struct lstm_sizes *sizes, float *gates)
{
    for (size_t n = 0; n < sizes->count; n++) {
        memset(gates + n * sizes->length * sizes->gates, 0, sizes->gates * sizeof *gates);
    }
    if (sizes->rows == 1) { /* products do not accept an empty sum */
        (void)cddpi_exec_sums(exec, CDDPI_LSTM_WEIGHT_HH);
        return cddpi_exec_ready(exec, CDDPI_LSTM_WEIGHT_HH);
    }
    return weight_gradient(exec, &state->weight_hh, gates + sizes->gates, cddpi_exec_output(exec),
                           sizes->rows - 1, sizes->units, CDDPI_LSTM_WEIGHT_HH);
}

static cddp_status backward(struct cddpi_exec *exec)
{
    const struct lstm_state *state = exec->state;
    struct lstm_sizes sizes = sizes_of(exec->op, exec->plan->count);
    float *gates = cddpi_exec_buffer(exec, state->activations);

    CDDPI_TRY(gate_gradients(exec, state, &sizes, gates));
    CDDPI_TRY(bias_gradient(exec, &sizes, gates, CDDPI_LSTM_BIAS_HH));
    CDDPI_TRY(bias_gradient(exec, &sizes, gates, CDDPI_LSTM_BIAS_IH));
    CDDPI_TRY(weight_gradient(exec, &state->weight_ih, gates, cddpi_exec_input(exec, 0), sizes.rows,
                              sizes.inputs, CDDPI_LSTM_WEIGHT_IH));
    CDDPI_TRY(input_gradient(exec, state, &sizes, gates));
    return recurrent_gradient(exec, state, &sizes, gates);
}

static const struct cddpi_op_kernels cpu = {.threads = CDDPI_THREADS_PRODUCTS,
                                            .state_bytes = sizeof(struct lstm_state),
                                            .plan = plan_lstm,
                                            .forward = forward,
                                            .backward = backward};

const struct cddpi_op_ops cddpi_op_lstm = {
    .name = "lstm",
    .shape = shape,
    .declare = declare,
    .work = work,
    .on = {[CDDPI_DEVICE_CPU] = &cpu, [CDDPI_DEVICE_CUDA] = &cddpi_cuda_lstm}};
