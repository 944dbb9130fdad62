/* conv2d_columns.c - owns convolutions as products of matrices, which need nothing of oneDNN: each
 * output's window becomes a row of a matrix, some lines of outputs at a time. */
#include "kernels/cpu/elementwise.h"
#include "nn/model_state.h"
#include "nn/ops/conv2d.h"

#include <string.h>

enum { COLUMN_BYTES = 1 << 19 }; /* of columns at a time: they stay in a core's cache */

static size_t row_length(const struct cddpi_conv *state)
{
    return state->window.kernel * state->window.kernel * state->window.lanes;
}

static size_t line_count(const struct cddpi_conv *state)
{
    return state->window.planes * state->window.out_height;
}

cddp_status cddpi_conv_columns_plan(struct cddpi_plan *plan, int index,
                                    const struct cddpi_conv *state, enum cddpi_lifetime lifetime,
                                    struct cddpi_conv_pass *pass)
{
    size_t bytes = state->window.out_width * row_length(state) * sizeof(float); /* of a line */
    size_t most = line_count(state);

    pass->lines = COLUMN_BYTES / bytes;
    pass->lines = pass->lines < 1 ? 1 : pass->lines > most ? most : pass->lines;
    return cddpi_plan_buffer(plan, index, pass->lines * bytes, lifetime, &pass->columns);
}

/* The lines from @p first on that fit. */
static size_t lines_from(const struct cddpi_conv *state, const struct cddpi_conv_pass *pass,
                         size_t first)
{
    size_t left = line_count(state) - first;

    return left < pass->lines ? left : pass->lines;
}

cddp_status cddpi_conv_columns_forward(const struct cddpi_exec *exec,
                                       const struct cddpi_conv *state, const float *x,
                                       const float *weight, float *y)
{
    const struct cddpi_conv_pass *pass = &state->forward;
    size_t outputs = (size_t)exec->op->out.channels;
    size_t width = state->window.out_width;
    size_t rows = line_count(state) * width;
    const float *bias = cddpi_exec_param(exec, 1);
    float *columns = cddpi_exec_buffer(exec, pass->columns);
    cddp_status status = CDDP_OK;

    for (size_t line = 0; status == CDDP_OK && line < line_count(state); line += pass->lines) {
        size_t lines = lines_from(state, pass, line);

        cddpi_nn_columns(x, &state->window, line, lines, columns);
        status = cddpi_gemm(false, true, lines * width, outputs, row_length(state), columns, weight,
                            0, y + line * width * outputs);
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

cddp_status cddpi_conv_columns_weights(const struct cddpi_exec *exec,
                                       const struct cddpi_conv *state, const float *x,
                                       const float *grad, float *weight_grad, float *bias_grad)
{
    const struct cddpi_conv_pass *pass = &state->weights;
    size_t outputs = (size_t)exec->op->out.channels;
    size_t width = state->window.out_width;
    float *columns = cddpi_exec_buffer(exec, pass->columns);
    cddp_status status = CDDP_OK;

    for (size_t line = 0; status == CDDP_OK && line < line_count(state); line += pass->lines) {
        size_t lines = lines_from(state, pass, line);

        cddpi_nn_columns(x, &state->window, line, lines, columns);
        status = cddpi_gemm(true, false, outputs, row_length(state), lines * width,
                            grad + line * width * outputs, columns, line > 0 ? 1.0f : 0.0f,
                            weight_grad);
    }
    if (bias_grad != NULL) {
        memset(bias_grad, 0, outputs * sizeof *bias_grad);
        cddpi_nn_add_column_sums(grad, bias_grad, line_count(state) * width, outputs);
    }
    return status;
}

cddp_status cddpi_conv_columns_data(const struct cddpi_exec *exec, const struct cddpi_conv *state,
                                    const float *grad, const float *weight, float *dx)
{
    const struct cddpi_conv_pass *pass = &state->data;
    const struct cddpi_nn_window *window = &state->window;
    size_t outputs = (size_t)exec->op->out.channels;
    float *columns = cddpi_exec_buffer(exec, pass->columns);
    cddp_status status = CDDP_OK;

    memset(dx, 0, window->planes * window->height * window->width * window->lanes * sizeof *dx);
    for (size_t line = 0; status == CDDP_OK && line < line_count(state); line += pass->lines) {
        size_t lines = lines_from(state, pass, line);

        status = cddpi_gemm(false, false, lines * window->out_width, row_length(state), outputs,
                            grad + line * window->out_width * outputs, weight, 0, columns);
        if (status == CDDP_OK) {
            cddpi_nn_add_columns(columns, window, line, lines, dx);
        }
    }
    return status;
}
