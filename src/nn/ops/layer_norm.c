/* layer_norm.c - owns layer normalisation: each row of features to mean 0 and variance 1, then
 * scale and shift. */
#include "base/alloc.h"
#include "base/error.h"
#include "kernels/cpu/nn_gpt.h"
#include "nn/cuda.h"
#include "nn/model_state.h"

#include <string.h>

struct state {
    int moments; /* buffer: the means of all rows, then what they are multiplied by */
    int scratch; /* buffer; training only */
};

static cddp_status shape(const struct cddpi_op *op, const struct cddpi_shape *in2,
                         struct cddpi_shape *out)
{
    (void)in2;
    if (!op->in.flat && !op->in.sequence) {
        return cddpi_fail(
            CDDP_ERR_CONFIG,
            "layer_norm takes flat inputs or sequences, but its input is %d x %d x %d "
            "(channels x height x width)",
            op->in.channels, op->in.height, op->in.width);
    }
    *out = op->in;
    return CDDP_OK;
}

static cddp_status declare(struct cddpi_model *model, struct cddpi_op *op)
{
    int64_t dims[] = {op->in.channels};
    cddp_status status = cddpi_model_add_param(model, op, 0, "weight", 1, dims,
                                               (struct cddpi_param_info){CDDPI_INIT_ONE, 0, false});

    return status != CDDP_OK
               ? status
               : cddpi_model_add_param(model, op, 1, "bias", 1, dims,
                                       (struct cddpi_param_info){CDDPI_INIT_ZERO, 0, false});
}

static size_t rows_of(const struct cddpi_plan *plan, const struct cddpi_op *op)
{
    return (size_t)plan->count * cddpi_shape_rows(&op->in);
}

static cddp_status plan_layer_norm(struct cddpi_plan *plan, int index, void **out)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    struct state *state;
    cddp_status status;

    cddpi_plan_output(plan, index, cddpi_plan_input(plan, index, 0)->block);
    plan->ops[index].flags = CDDPI_FORWARD_INPLACE | CDDPI_NEEDS_INPUT | CDDPI_GRAD_INPLACE;
    if (!plan->training) {
        return CDDP_OK;
    }
    state = cddpi_zalloc(sizeof *state);
    if (state == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "layer_norm: no memory for %zu bytes", sizeof *state);
    }
    *out = state;
    status = cddpi_plan_buffer(plan, index, 2 * rows_of(plan, op) * sizeof(float), CDDPI_IN_BOTH,
                               &state->moments);
    return status != CDDP_OK
               ? status
               : cddpi_plan_buffer(plan, index, 2 * (size_t)op->in.channels * sizeof(float),
                                   CDDPI_IN_BACKWARD, &state->scratch);
}

static void unplan(void *state)
{
    cddpi_free(state);
}

static cddp_status forward(struct cddpi_run *run, void *opaque)
{
    struct state *state = opaque;
    size_t rows = rows_of(run->plan, run->op);
    float *mean = state != NULL ? cddpi_run_buffer(run, state->moments) : NULL;

    cddpi_gpt_kernels()->layer_norm->forward(
        cddpi_run_input(run, 0), cddpi_run_param(run, 0), cddpi_run_param(run, 1),
        (float)run->op->layer.epsilon, rows, (size_t)run->op->in.channels, cddpi_run_output(run),
        mean, mean != NULL ? mean + rows : NULL);
    return CDDP_OK;
}

static cddp_status backward(struct cddpi_run *run, void *opaque)
{
    struct state *state = opaque;
    size_t rows = rows_of(run->plan, run->op);
    size_t columns = (size_t)run->op->in.channels;
    const float *mean = cddpi_run_buffer(run, state->moments);
    cddp_status status;

    for (int k = 0; k < 2 && !run->accumulate; k++) {
        memset(cddpi_run_grad(run, k), 0, columns * sizeof(float));
    }
    cddpi_gpt_kernels()->layer_norm->backward(
        cddpi_run_grad_output(run, 0), cddpi_run_input(run, 0), cddpi_run_param(run, 0), mean,
        mean + rows, rows, columns, cddpi_run_grad_input(run, 0), cddpi_run_grad(run, 0),
        cddpi_run_grad(run, 1), cddpi_run_buffer(run, state->scratch));
    status = cddpi_run_ready(run, 1);
    return status != CDDP_OK ? status : cddpi_run_ready(run, 0);
}

struct cuda_state {
    int moments, scratch, unwanted; /* buffers; the last where nobody wants the gradient */
};

static cddp_status plan_cuda_training(struct cddpi_plan *plan, int index, struct cuda_state *state)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    size_t rows = rows_of(plan, op);
    size_t columns = (size_t)op->in.channels;
    cddp_status status = cddpi_plan_buffer(plan, index, 2 * rows * sizeof(float), CDDPI_IN_BOTH,
                                           &state->moments);

    if (status == CDDP_OK) {
        status = cddpi_plan_buffer(plan, index,
                                   plan->model->cuda->kernels->layer_norm_scratch(rows, columns),
                                   CDDPI_IN_BACKWARD, &state->scratch);
    }
    if (status == CDDP_OK && !cddpi_plan_wants_grad(plan, index, 0)) {
        status = cddpi_plan_buffer(plan, index,
                                   rows * columns * cddp_type_bytes(plan->model->cuda->type),
                                   CDDPI_IN_BACKWARD, &state->unwanted);
    }
    return status;
}

static cddp_status plan_cuda(struct cddpi_plan *plan, int index, void **out)
{
    struct cuda_state *state = cddpi_zalloc(sizeof *state);

    if (state == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "layer_norm: no memory for %zu bytes", sizeof *state);
    }
    *out = state;
    cddpi_plan_output(plan, index, cddpi_plan_input(plan, index, 0)->block);
    plan->ops[index].flags = CDDPI_NEEDS_INPUT | CDDPI_ADDS_OTHER;
    return plan->training ? plan_cuda_training(plan, index, state) : CDDP_OK;
}

/* Where the add before it was left to this op, the input is made here: the sum of its inputs. */
static cddp_status forward_cuda(struct cddpi_run *run, void *opaque)
{
    const struct cuda_state *state = opaque;
    size_t rows = rows_of(run->plan, run->op);
    float *mean = run->plan->training ? cddpi_run_buffer(run, state->moments) : NULL;
    const void *x = cddpi_run_input(run, 0);
    const void *residual = NULL;
    void *sum = NULL;

    if (run->index > 0 && cddpi_run_is_later(run, run->index - 1)) {
        struct cddpi_run before = *run;

        before.index = run->index - 1;
        before.op = run->op - 1;
        x = cddpi_run_input(&before, 0);
        residual = cddpi_run_input(&before, 1);
        sum = cddpi_run_output(&before);
    }
    return cddpi_run_kernels(run)->layer_norm(
        cddpi_run_device(run), cddpi_run_type(run), x, residual, cddpi_run_param(run, 0),
        cddpi_run_param(run, 1), (float)run->op->layer.epsilon, rows, (size_t)run->op->in.channels,
        sum, cddpi_run_output(run), mean, mean != NULL ? mean + rows : NULL);
}

static cddp_status backward_cuda(struct cddpi_run *run, void *opaque)
{
    const struct cuda_state *state = opaque;
    size_t rows = rows_of(run->plan, run->op);
    int other = run->plan->ops[run->index].other;
    const float *mean = cddpi_run_buffer(run, state->moments);
    void *grad_input = cddpi_run_grad_input(run, 0);
    cddp_status status;

    if (grad_input == NULL) {
        grad_input = cddpi_run_buffer(run, state->unwanted);
    }
    status = cddpi_run_kernels(run)->layer_norm_grad(
        cddpi_run_device(run), cddpi_run_type(run), cddpi_run_grad_output(run, 0),
        cddpi_run_input(run, 0), cddpi_run_param(run, 0), mean, mean + rows, rows,
        (size_t)run->op->in.channels, other >= 0 ? cddpi_run_buffer(run, other) : NULL,
        cddpi_run_adds(run, 0), grad_input, cddpi_run_grad(run, 0), cddpi_run_grad(run, 1),
        cddpi_run_buffer(run, state->scratch));
    return status == CDDP_OK ? cddpi_run_ready_both(run) : status;
}

const struct cddpi_op_cuda cddpi_cuda_layer_norm = {
    .plan = plan_cuda, .forward = forward_cuda, .backward = backward_cuda};

const struct cddpi_op_ops cddpi_op_layer_norm = {.name = "layer_norm",
                                                 .shape = shape,
                                                 .declare = declare,
                                                 .plan = plan_layer_norm,
                                                 .unplan = unplan,
                                                 .forward = forward,
                                                 .backward = backward,
                                                 .cuda = &cddpi_cuda_layer_norm};
