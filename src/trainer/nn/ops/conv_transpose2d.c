/* conv_transpose2d.c - owns transposed convolutions. Forward is the input gradient of a
 * convolution: each input pixel adds its filters, scaled, to a window of the output.
 *
 * It is computed as matrix products: the window of each input pixel is a row of columns, whose
 * elements are then added to the output. Inside, images are channels last and filters inputs x
 * height x width x outputs. The order of sums does not depend on the number of samples that are
 * computed together. */
#include "base/error.h"
#include "kernels/cpu/cpu_layout.h"
#include "kernels/cpu/elementwise.h"
#include "nn/cuda/model_cuda.h"
#include "nn/ops/window_op.h"

#include <math.h>
#include <string.h>

enum { COLUMN_BYTES = 1 << 19 }; /* size of the columns at a time: they stay in a core's cache */

struct conv_transpose2d_state {
    struct cddpi_nn_layout in, rows; /* the input's own layout, and channels last */
    struct cddpi_nn_window window;   /* the convolution from the output to the input */
    size_t lines;                    /* rows of input pixels at a time */
    int columns, input, weight;      /* buffers; input -1: it is channels last already */
    int weight_grad, grad_input;     /* buffers, in training */
};

static cddp_status shape(const struct cddpi_op *op, struct cddpi_shape *out)
{
    const struct cddpi_layer *layer = &op->layer;
    int64_t more = layer->kernel - 2 * (int64_t)layer->padding;
    int64_t height = (int64_t)(op->in.height - 1) * layer->stride + more;
    int64_t width = (int64_t)(op->in.width - 1) * layer->stride + more;

    if (height < 1 || width < 1 || height > 1 << 16 || width > 1 << 16) {
        return cddpi_fail(CDDP_ERR_CONFIG,
                          "its output would be %lld x %lld: kernel %d, stride %d and padding %d do "
                          "not fit its input of %d x %d",
                          (long long)height, (long long)width, layer->kernel, layer->stride,
                          layer->padding, op->in.height, op->in.width);
    }
    *out = (struct cddpi_shape){
        .channels = layer->units, .height = (int)height, .width = (int)width};
    return CDDP_OK;
}

/* As in PyTorch, fan_in is computed from the outputs. */
static cddp_status declare(struct cddpi_model *model, struct cddpi_op *op)
{
    int kernel = op->layer.kernel;
    const int64_t dims[] = {op->in.channels, op->out.channels, kernel, kernel};
    double bound = 1 / sqrt((double)op->out.channels * kernel * kernel);
    bool normal = op->layer.deviation > 0;

    CDDPI_TRY(cddpi_model_add_param(
        model, op, 0, "weight", 4, dims,
        (struct cddpi_param_info){normal ? CDDPI_INIT_NORMAL : CDDPI_INIT_UNIFORM,
                                  normal ? op->layer.deviation : bound, true}));
    if (!op->layer.no_bias) {
        CDDPI_TRY(cddpi_model_add_param(
            model, op, 1, "bias", 1, dims + 1,
            (struct cddpi_param_info){normal ? CDDPI_INIT_ZERO : CDDPI_INIT_UNIFORM, bound,
                                      false}));
    }
    return CDDP_OK;
}

static double work(const struct cddpi_op *op)
{
    return (double)cddpi_shape_elements(&op->in) * op->out.channels * op->layer.kernel *
           op->layer.kernel;
}

static size_t row_length(const struct conv_transpose2d_state *state)
{
    return state->window.kernel * state->window.kernel * state->window.lanes;
}

static size_t line_count(const struct conv_transpose2d_state *state)
{
    return state->window.planes * state->window.out_height;
}

static cddp_status plan_op(struct cddpi_plan *plan, int index)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    struct conv_transpose2d_state *state = plan->ops[index].state;
    struct cddpi_plan_part part = {
        .op = index, .what = "transposed convolution", .work = work(op) * plan->count};
    size_t inputs, weights, line;
    bool converts;

    state->in = cddpi_plan_input_layout(plan, index);
    state->rows = state->in;
    state->rows.block = state->rows.channels;
    state->window = cddpi_window_of(op, &op->out, &op->in, (size_t)plan->count,
                                    (size_t)op->out.channels);
    line = state->window.out_width * row_length(state) * sizeof(float);
    state->lines = COLUMN_BYTES / line < 1 ? 1 : COLUMN_BYTES / line;
    state->lines = state->lines < line_count(state) ? state->lines : line_count(state);
    cddpi_plan_output(plan, index, op->out.channels);
    plan->ops[index].flags = CDDPI_NEEDS_INPUT;
    cddpi_plan_part(plan, "own:columns", &part);
    if (plan->training) {
        part.what = "gradients";
        part.work *= 2;
        cddpi_plan_part(plan, "own:columns", &part);
    }

    weights = state->in.channels * row_length(state) * sizeof(float);
    inputs = line_count(state) * state->window.out_width * state->in.channels * sizeof(float);
    converts = state->in.block != state->rows.block;
    state->columns = cddpi_plan_buffer(plan, index, state->lines * line, CDDPI_IN_BOTH);
    state->weight = cddpi_plan_buffer(plan, index, weights, CDDPI_IN_BOTH);
    if (converts) {
        state->input = cddpi_plan_buffer(plan, index, inputs, CDDPI_IN_BOTH);
    }
    if (plan->training) {
        state->weight_grad = cddpi_plan_buffer(plan, index, weights, CDDPI_IN_BACKWARD);
    }
    if (converts && cddpi_plan_wants_grad(plan, index, 0)) {
        state->grad_input = cddpi_plan_buffer(plan, index, inputs, CDDPI_IN_BACKWARD);
    }
    return CDDP_OK;
}

/* Convert plain filters (inputs x outputs x height x width) to one row of height x width x outputs
 * for each input, or back. @p adds: add to the plain filters. */
static void pack(const struct conv_transpose2d_state *state, const float *plain, float *rows)
{
    size_t taps = state->window.kernel * state->window.kernel;
    size_t outputs = state->window.lanes;

    for (size_t i = 0; i < state->in.channels; i++, rows += taps * outputs) {
        for (size_t o = 0; o < outputs; o++) {
            for (size_t t = 0; t < taps; t++) {
                rows[t * outputs + o] = *plain++;
            }
        }
    }
}

static void unpack(const struct conv_transpose2d_state *state, const float *rows, bool adds,
                   float *plain)
{
    size_t taps = state->window.kernel * state->window.kernel;
    size_t outputs = state->window.lanes;

    for (size_t i = 0; i < state->in.channels; i++, rows += taps * outputs) {
        for (size_t o = 0; o < outputs; o++) {
            for (size_t t = 0; t < taps; t++, plain++) {
                *plain = rows[t * outputs + o] + (adds ? *plain : 0);
            }
        }
    }
}

static size_t lines_from(const struct conv_transpose2d_state *state, size_t first)
{
    size_t left = line_count(state) - first;

    return left < state->lines ? left : state->lines;
}

static cddp_status forward(struct cddpi_exec *exec)
{
    const struct conv_transpose2d_state *state = exec->state;
    size_t width = state->window.out_width;
    size_t pixels = state->window.planes * state->window.height * state->window.width;
    const float *x = cddpi_exec_converted(exec, cddpi_exec_input(exec, 0), &state->in, &state->rows,
                                          state->input);
    float *weight = cddpi_exec_buffer(exec, state->weight);
    float *columns = cddpi_exec_buffer(exec, state->columns);
    float *y = cddpi_exec_output(exec);
    const float *bias = cddpi_exec_param(exec, 1);

    pack(state, cddpi_exec_param(exec, 0), weight);
    memset(y, 0, pixels * state->window.lanes * sizeof *y);
    for (size_t line = 0; line < line_count(state); line += state->lines) {
        size_t lines = lines_from(state, line);

        CDDPI_TRY(cddpi_gemm(false, false, lines * width, row_length(state), state->in.channels,
                             x + line * width * state->in.channels, weight, 0, columns));
        cddpi_nn_add_columns(columns, &state->window, line, lines, y);
    }
    if (bias != NULL) {
        cddpi_nn_add_bias(y, bias, pixels, state->window.lanes);
    }
    return CDDP_OK;
}

/* The gradient of the packed filters; also of the input's rows unless @p dx is NULL. */
static cddp_status gradients(const struct cddpi_exec *exec,
                             const struct conv_transpose2d_state *state, const float *dy,
                             float *weight_grad, float *dx)
{
    size_t width = state->window.out_width;
    size_t inputs = state->in.channels;
    const float *x = cddpi_exec_converted(exec, cddpi_exec_input(exec, 0), &state->in, &state->rows,
                                          state->input);
    const float *weight = cddpi_exec_buffer(exec, state->weight);
    float *columns = cddpi_exec_buffer(exec, state->columns);

    for (size_t line = 0; line < line_count(state); line += state->lines) {
        size_t lines = lines_from(state, line);
        size_t place = line * width * inputs;

        cddpi_nn_columns(dy, &state->window, line, lines, columns);
        CDDPI_TRY(cddpi_gemm(true, false, inputs, row_length(state), lines * width, x + place,
                             columns, line > 0 ? 1.0f : 0.0f, weight_grad));
        if (dx != NULL) {
            CDDPI_TRY(cddpi_gemm(false, true, lines * width, inputs, row_length(state), columns,
                                 weight, 0, dx + place));
        }
    }
    return CDDP_OK;
}

static cddp_status backward(struct cddpi_exec *exec)
{
    const struct conv_transpose2d_state *state = exec->state;
    const float *dy = cddpi_exec_grad_output(exec, 0);
    float *weight_grad = cddpi_exec_buffer(exec, state->weight_grad);
    float *wanted = cddpi_exec_grad_input(exec, 0);
    float *bias = cddpi_exec_sums(exec, 1);
    bool converts = state->in.block != state->rows.block;
    float *dx = wanted != NULL && converts ? cddpi_exec_buffer(exec, state->grad_input) : wanted;

    if (bias != NULL) {
        cddpi_nn_add_column_sums(dy, bias,
                                 state->window.planes * state->window.height * state->window.width,
                                 state->window.lanes);
    }
    CDDPI_TRY(cddpi_exec_ready(exec, 1));
    CDDPI_TRY(gradients(exec, state, dy, weight_grad, dx));
    unpack(state, weight_grad, cddpi_exec_adds(exec, 0), cddpi_exec_grad(exec, 0));
    CDDPI_TRY(cddpi_exec_ready(exec, 0));
    if (wanted != NULL && converts) {
        cddpi_nn_convert(dx, &state->rows, wanted, &state->in);
    }
    return CDDP_OK;
}

static const struct cddpi_op_kernels cpu = {.threads = CDDPI_THREADS_PRODUCTS,
                                            .state_bytes = sizeof(struct conv_transpose2d_state),
                                            .plan = plan_op,
                                            .forward = forward,
                                            .backward = backward};

const struct cddpi_op_ops cddpi_op_conv_transpose2d = {
    .name = "conv_transpose2d",
    .images_only = true,
    .shape = shape,
    .declare = declare,
    .work = work,
    .on = {[CDDPI_DEVICE_CPU] = &cpu, [CDDPI_DEVICE_CUDA] = &cddpi_cuda_conv_transpose2d}};
