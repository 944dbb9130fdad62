/* conv2d_columns.c - owns convolutions as matrix products (im2col), without oneDNN's convolutions:
 * each output's window becomes a row of a matrix, for some lines of outputs at a time. */
#include "base/error.h"
#include "kernels/cpu/elementwise.h"
#include "nn/model_state.h"
#include "nn/ops/conv2d.h"

#include <string.h>

enum { COLUMN_BYTES = 1 << 19 }; /* size of the columns at a time: they stay in a core's cache */

static size_t row_length(const struct cddpi_conv *state)
{
    return state->window.kernel * state->window.kernel * state->window.lanes;
}

static size_t line_count(const struct cddpi_conv *state)
{
    return state->window.planes * state->window.out_height;
}

/* Pixels of all images, and of all results. */
static size_t image_pixels(const struct cddpi_conv *state)
{
    return state->window.planes * state->window.height * state->window.width;
}

static size_t result_pixels(const struct cddpi_conv *state)
{
    return line_count(state) * state->window.out_width;
}

void cddpi_conv_columns_plan(struct cddpi_plan *plan, int index, const struct cddpi_conv *state,
                             enum cddpi_lifetime lifetime, struct cddpi_conv_pass *pass)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    /* bytes of one line's columns */
    size_t bytes = state->window.out_width * row_length(state) * sizeof(float);
    size_t most = line_count(state);

    pass->lines = COLUMN_BYTES / bytes;
    pass->lines = pass->lines < 1 ? 1 : pass->lines > most ? most : pass->lines;
    pass->columns = cddpi_plan_buffer(plan, index, pass->lines * bytes, lifetime);
    if (op->layer.groups > 1) {
        pass->group_image = cddpi_plan_buffer(
            plan, index, image_pixels(state) * (size_t)cddpi_conv_inputs(op) * sizeof(float),
            lifetime);
        pass->group_result = cddpi_plan_buffer(
            plan, index, result_pixels(state) * (size_t)cddpi_conv_outputs(op) * sizeof(float),
            lifetime);
    }
}

/* Copy the channels of group @p group, out of @p channels, to each of @p pixels pixels of @p out.
 */
static void put_group(const float *rows, size_t pixels, size_t channels, size_t some, size_t group,
                      float *out)
{
    for (size_t i = 0; i < pixels; i++) {
        memcpy(out + i * channels + group * some, rows + i * some, some * sizeof *out);
    }
}

/* The channels of group @p group out of @p channels of each of @p pixels pixels of @p all, in @p
 * buffer; with one group, @p all itself. */
static const float *part_of(const struct cddpi_exec *exec, const float *all, size_t pixels,
                            size_t channels, size_t group, int buffer)
{
    size_t some = channels / (size_t)exec->op->layer.groups;
    float *part;

    if (exec->op->layer.groups == 1) {
        return all;
    }
    part = cddpi_exec_buffer(exec, buffer);
    for (size_t i = 0; i < pixels; i++) {
        memcpy(part + i * some, all + i * channels + group * some, some * sizeof *part);
    }
    return part;
}

static const float *image_of(const struct cddpi_exec *exec, const struct cddpi_conv *state,
                             const struct cddpi_conv_pass *pass, const float *x, size_t group)
{
    return part_of(exec, x, image_pixels(state), (size_t)exec->op->in.channels, group,
                   pass->group_image);
}

static const float *result_of(const struct cddpi_exec *exec, const struct cddpi_conv *state,
                              const struct cddpi_conv_pass *pass, const float *y, size_t group)
{
    return part_of(exec, y, result_pixels(state), (size_t)exec->op->out.channels, group,
                   pass->group_result);
}

/* How many lines from @p first on fit. */
static size_t lines_from(const struct cddpi_conv *state, const struct cddpi_conv_pass *pass,
                         size_t first)
{
    size_t left = line_count(state) - first;

    return left < pass->lines ? left : pass->lines;
}

/* Forward of one group: y = x * weight. */
static cddp_status multiply(const struct cddpi_exec *exec, const struct cddpi_conv *state,
                            const float *x, const float *weight, float *y)
{
    const struct cddpi_conv_pass *pass = &state->forward;
    size_t outputs = (size_t)cddpi_conv_outputs(exec->op);
    size_t width = state->window.out_width;
    float *columns = cddpi_exec_buffer(exec, pass->columns);

    for (size_t line = 0; line < line_count(state); line += pass->lines) {
        size_t lines = lines_from(state, pass, line);

        cddpi_nn_columns(x, &state->window, line, lines, columns);
        CDDPI_TRY(cddpi_gemm(false, true, lines * width, outputs, row_length(state), columns,
                             weight, 0, y + line * width * outputs));
    }
    return CDDP_OK;
}

cddp_status cddpi_conv_columns_forward(const struct cddpi_exec *exec,
                                       const struct cddpi_conv *state, const float *x,
                                       const float *weight, float *y)
{
    const struct cddpi_conv_pass *pass = &state->forward;
    size_t groups = (size_t)exec->op->layer.groups;
    size_t outputs = (size_t)exec->op->out.channels;
    size_t some = outputs / groups;
    size_t rows = result_pixels(state);
    const float *bias = cddpi_exec_param(exec, 1);
    float *made = groups > 1 ? cddpi_exec_buffer(exec, pass->group_result) : y;
    cddp_status status = CDDP_OK;

    for (size_t g = 0; status == CDDP_OK && g < groups; g++) {
        status = multiply(exec, state, image_of(exec, state, pass, x, g),
                          weight + g * some * row_length(state), made);
        if (status == CDDP_OK && groups > 1) {
            put_group(made, rows, outputs, some, g, y);
        }
    }
    if (bias != NULL && exec->op->relu) {
        cddpi_nn_add_bias_relu(y, bias, rows, outputs);
    } else if (bias != NULL) {
        cddpi_nn_add_bias(y, bias, rows, outputs);
    } else if (exec->op->relu) {
        cddpi_nn_relu(y, y, rows * outputs);
    }
    return status;
}

/* The gradient of one group's filters. */
static cddp_status multiply_weights(const struct cddpi_exec *exec, const struct cddpi_conv *state,
                                    const float *x, const float *grad, float *weight_grad)
{
    const struct cddpi_conv_pass *pass = &state->weights;
    size_t outputs = (size_t)cddpi_conv_outputs(exec->op);
    size_t width = state->window.out_width;
    float *columns = cddpi_exec_buffer(exec, pass->columns);

    for (size_t line = 0; line < line_count(state); line += pass->lines) {
        size_t lines = lines_from(state, pass, line);

        cddpi_nn_columns(x, &state->window, line, lines, columns);
        CDDPI_TRY(cddpi_gemm(true, false, outputs, row_length(state), lines * width,
                             grad + line * width * outputs, columns, line > 0 ? 1.0f : 0.0f,
                             weight_grad));
    }
    return CDDP_OK;
}

cddp_status cddpi_conv_columns_weights(const struct cddpi_exec *exec,
                                       const struct cddpi_conv *state, const float *x,
                                       const float *grad, float *weight_grad)
{
    const struct cddpi_conv_pass *pass = &state->weights;
    size_t groups = (size_t)exec->op->layer.groups;
    size_t outputs = (size_t)exec->op->out.channels;

    for (size_t g = 0; g < groups; g++) {
        CDDPI_TRY(multiply_weights(exec, state, image_of(exec, state, pass, x, g),
                                   result_of(exec, state, pass, grad, g),
                                   weight_grad + g * (outputs / groups) * row_length(state)));
    }
    return CDDP_OK;
}

/* The gradient of one group's images. */
static cddp_status multiply_data(const struct cddpi_exec *exec, const struct cddpi_conv *state,
                                 const float *grad, const float *weight, float *dx)
{
    const struct cddpi_conv_pass *pass = &state->data;
    const struct cddpi_nn_window *window = &state->window;
    size_t outputs = (size_t)cddpi_conv_outputs(exec->op);
    float *columns = cddpi_exec_buffer(exec, pass->columns);

    memset(dx, 0, image_pixels(state) * window->lanes * sizeof *dx);
    for (size_t line = 0; line < line_count(state); line += pass->lines) {
        size_t lines = lines_from(state, pass, line);

        CDDPI_TRY(cddpi_gemm(false, false, lines * window->out_width, row_length(state), outputs,
                             grad + line * window->out_width * outputs, weight, 0, columns));
        cddpi_nn_add_columns(columns, window, line, lines, dx);
    }
    return CDDP_OK;
}

cddp_status cddpi_conv_columns_data(const struct cddpi_exec *exec, const struct cddpi_conv *state,
                                    const float *grad, const float *weight, float *dx)
{
    const struct cddpi_conv_pass *pass = &state->data;
    size_t groups = (size_t)exec->op->layer.groups;
    size_t some = (size_t)cddpi_conv_outputs(exec->op);
    float *made = groups > 1 ? cddpi_exec_buffer(exec, pass->group_image) : dx;

    for (size_t g = 0; g < groups; g++) {
        CDDPI_TRY(multiply_data(exec, state, result_of(exec, state, pass, grad, g),
                                weight + g * some * row_length(state), made));
        if (groups > 1) {
            put_group(made, image_pixels(state), (size_t)exec->op->in.channels,
                      (size_t)cddpi_conv_inputs(exec->op), g, dx);
        }
    }
    return CDDP_OK;
}
