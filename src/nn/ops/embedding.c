/* embedding.c - owns the step from tokens to rows of features: the row of each token, plus that of
 * its position where there are positions. */
#include "base/error.h"
#include "kernels/cpu/nn_elementwise.h"
#include "nn/model_state.h"

#include <string.h>

static cddp_status shape(const struct cddpi_op *op, const struct cddpi_shape *in2,
                         struct cddpi_shape *out)
{
    (void)in2;
    if (op->inputs[0] != CDDPI_VALUE_INPUT) {
        return cddpi_fail(CDDP_ERR_CONFIG, "embedding takes the data's tokens, not the output of "
                                           "a layer: its input should be \"input\"");
    }
    if (!op->in.sequence) {
        return cddpi_fail(CDDP_ERR_CONFIG, "embedding takes tokens, but the data are %d x %d x %d",
                          op->in.channels, op->in.height, op->in.width);
    }
    *out = (struct cddpi_shape){
        .channels = op->layer.units, .height = op->in.height, .width = 1, .sequence = true};
    return CDDP_OK;
}

static cddp_status declare(struct cddpi_model *model, struct cddpi_op *op)
{
    double deviation = op->layer.deviation > 0 ? op->layer.deviation : 1;
    struct cddpi_param_info info = {CDDPI_INIT_NORMAL, deviation, true};
    cddp_status status = cddpi_model_add_param(model, op, 0, "weight", 2,
                                               (int64_t[]){model->classes, op->out.channels}, info);

    if (status == CDDP_OK && op->layer.positions != NULL) {
        status = cddpi_model_add_param_of(model, op, 1, op->layer.positions, "weight", 2,
                                          (int64_t[]){op->out.height, op->out.channels}, info);
    }
    return status;
}

static cddp_status plan_embedding(struct cddpi_plan *plan, int index, void **state)
{
    (void)state;
    cddpi_plan_output(plan, index, cddpi_plan_op_of(plan, index)->out.channels);
    return CDDP_OK;
}

static cddp_status forward(struct cddpi_run *run, void *state)
{
    size_t rows = (size_t)run->plan->count * (size_t)run->op->out.height;
    size_t columns = (size_t)run->op->out.channels;
    const float *table = cddpi_run_param(run, 0);
    const float *positions = cddpi_run_param(run, 1);
    float *out = cddpi_run_output(run);

    (void)state;
    for (size_t r = 0; r < rows; r++, out += columns) {
        const float *row = table + (size_t)run->batch->tokens[r] * columns;

        if (positions != NULL) {
            cddpi_nn_add(row, positions + r % (size_t)run->op->out.height * columns, out, columns);
        } else {
            memcpy(out, row, columns * sizeof *out);
        }
    }
    return CDDP_OK;
}

/* Where backward adds up the gradient of parameter @p k: zero, unless something is there. */
static float *sums(struct cddpi_run *run, int k)
{
    float *grad = cddpi_run_grad(run, k);

    if (grad != NULL && !cddpi_run_adds(run, k)) {
        const cddp_param *param = &run->model->params.items[run->op->params[k]];

        memset(grad, 0, cddpi_tensor_elements(param) * sizeof *grad);
    }
    return grad;
}

/* Row by row in order, so that the sums of tokens that occur often have the same bits always. */
static cddp_status backward(struct cddpi_run *run, void *state)
{
    size_t rows = (size_t)run->plan->count * (size_t)run->op->out.height;
    size_t columns = (size_t)run->op->out.channels;
    const float *grad = cddpi_run_grad_output(run, 0);
    float *positions = sums(run, 1);
    float *table;
    cddp_status status;

    (void)state;
    for (size_t r = 0; positions != NULL && r < rows; r++) {
        float *to = positions + r % (size_t)run->op->out.height * columns;

        cddpi_nn_add(to, grad + r * columns, to, columns);
    }
    status = cddpi_run_ready(run, 1);
    if (status != CDDP_OK) {
        return status;
    }
    table = sums(run, 0);
    for (size_t r = 0; r < rows; r++) {
        float *to = table + (size_t)run->batch->tokens[r] * columns;

        cddpi_nn_add(to, grad + r * columns, to, columns);
    }
    return cddpi_run_ready(run, 0);
}

const struct cddpi_op_ops cddpi_op_embedding = {.name = "embedding",
                                                .shape = shape,
                                                .declare = declare,
                                                .plan = plan_embedding,
                                                .forward = forward,
                                                .backward = backward};
