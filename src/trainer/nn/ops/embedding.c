/* embedding.c - owns the embedding: the table's row of each token, plus the row of its position if
 * there are positions. */
#include "base/error.h"
#include "kernels/cpu/cpu_tokens.h"
#include "kernels/cpu/elementwise.h"
#include "nn/cuda/model_cuda.h"

#include <string.h>

static cddp_status shape(const struct cddpi_op *op, struct cddpi_shape *out)
{
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

    CDDPI_TRY(cddpi_model_add_param(model, op, 0, "weight", 2,
                                    (int64_t[]){model->classes, op->out.channels}, info));
    if (op->layer.positions != NULL) {
        CDDPI_TRY(cddpi_model_add_param_of(model, op, 1, op->layer.positions, "weight", 2,
                                           (int64_t[]){op->out.height, op->out.channels}, info));
    }
    return CDDP_OK;
}

struct embedding_state {
    int order; /* buffer: the rows of a batch, sorted by token */
};

static size_t vocab_of(const struct cddpi_model *model, const struct cddpi_op *op)
{
    return cddpi_tensor_elements(&model->params.items[op->params[0]]) / (size_t)op->out.channels;
}

static cddp_status plan_embedding(struct cddpi_plan *plan, int index)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    struct embedding_state *state = plan->ops[index].state;
    size_t elements = cddpi_plan_rows(plan, op) + vocab_of(plan->model, op) + 1;

    cddpi_plan_output(plan, index, op->out.channels);
    plan->ops[index].flags = CDDPI_WEIGHTS_GRAD;
    if (plan->training) {
        state->order = cddpi_plan_buffer(plan, index, elements * sizeof(uint32_t),
                                         CDDPI_IN_WEIGHTS);
    }
    return CDDP_OK;
}

static cddp_status forward(struct cddpi_exec *exec)
{
    size_t rows = cddpi_plan_rows(exec->plan, exec->op);
    size_t columns = (size_t)exec->op->out.channels;
    const float *table = cddpi_exec_param(exec, 0);
    const float *positions = cddpi_exec_param(exec, 1);
    float *out = cddpi_exec_output(exec);

    for (size_t r = 0; r < rows; r++, out += columns) {
        const float *row = table + (size_t)exec->batch->tokens[r] * columns;

        if (positions != NULL) {
            cddpi_nn_add(row, positions + r % (size_t)exec->op->out.height * columns, out, columns);
        } else {
            memcpy(out, row, columns * sizeof *out);
        }
    }
    return CDDP_OK;
}

static cddp_status weights(struct cddpi_exec *exec)
{
    const struct embedding_state *state = exec->state;
    size_t rows = cddpi_plan_rows(exec->plan, exec->op);
    size_t columns = (size_t)exec->op->out.channels;
    const float *grad = cddpi_exec_grad_output(exec, 0);
    float *positions = cddpi_exec_sums(exec, 1);
    float *table;

    if (positions != NULL) { /* one sample as a single row: all positions */
        cddpi_nn_add_column_sums(grad, positions, (size_t)exec->plan->count,
                                 (size_t)exec->op->out.height * columns);
    }
    CDDPI_TRY(cddpi_exec_ready(exec, 1));
    table = cddpi_exec_sums(exec, 0);
    cddpi_nn_add_rows(grad, exec->batch->tokens, rows, vocab_of(exec->model, exec->op), columns,
                      cddpi_exec_buffer(exec, state->order), table);
    return cddpi_exec_ready(exec, 0);
}

static cddp_status backward(struct cddpi_exec *exec)
{
    return cddpi_exec_defers(exec) ? CDDP_OK : weights(exec);
}

struct embedding_cuda_state {
    int scratch; /* buffer */
};

static cddp_status plan_cuda(struct cddpi_plan *plan, int index)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    struct embedding_cuda_state *state = plan->ops[index].state;

    cddpi_plan_output(plan, index, op->out.channels);
    if (plan->training) {
        state->scratch = cddpi_plan_buffer(
            plan, index,
            plan->model->cuda->kernels->embedding_scratch(cddpi_plan_rows(plan, op),
                                                          (size_t)plan->model->classes),
            CDDPI_IN_BACKWARD);
    }
    return CDDP_OK;
}

static cddp_status forward_cuda(struct cddpi_exec *exec)
{
    return cddpi_exec_kernels(exec)->embedding(
        exec->model->device, exec->model->type, exec->batch->tokens, cddpi_exec_copy(exec, 0),
        cddpi_exec_copy(exec, 1), cddpi_plan_rows(exec->plan, exec->op),
        (size_t)exec->op->out.height, (size_t)exec->op->out.channels, cddpi_exec_output(exec));
}

static cddp_status backward_cuda(struct cddpi_exec *exec)
{
    const struct embedding_cuda_state *state = exec->state;
    struct cddpi_device *device = exec->model->device;
    size_t columns = (size_t)exec->op->out.channels;
    size_t vocab = (size_t)exec->model->classes;
    float *positions = cddpi_exec_grad(exec, 1);

    if (!cddpi_exec_adds(exec, 0)) {
        CDDPI_TRY(device->ops->clear(device, CDDPI_STREAM_COMPUTE, cddpi_exec_grad(exec, 0),
                                     vocab * columns * sizeof(float)));
    }
    CDDPI_TRY(cddpi_exec_kernels(exec)->embedding_grad(
        device, exec->model->type, exec->batch->tokens, cddpi_exec_grad_output(exec, 0),
        cddpi_plan_rows(exec->plan, exec->op), (size_t)exec->op->out.height, columns, vocab,
        positions != NULL && cddpi_exec_adds(exec, 1), cddpi_exec_grad(exec, 0), positions,
        cddpi_exec_buffer(exec, state->scratch)));
    return cddpi_exec_ready_both(exec);
}

const struct cddpi_op_kernels cddpi_cuda_embedding = {
    .state_bytes = sizeof(struct embedding_cuda_state),
    .plan = plan_cuda,
    .forward = forward_cuda,
    .backward = backward_cuda,
    .copy = cddpi_copy_cast};

static const struct cddpi_op_kernels cpu = {.state_bytes = sizeof(struct embedding_state),
                                            .plan = plan_embedding,
                                            .forward = forward,
                                            .backward = backward,
                                            .weights = weights};

const struct cddpi_op_ops cddpi_op_embedding = {
    .name = "embedding",
    .shape = shape,
    .declare = declare,
    .on = {[CDDPI_DEVICE_CPU] = &cpu, [CDDPI_DEVICE_CUDA] = &cddpi_cuda_embedding}};
