/* loss_op.c - owns the last op: softmax cross-entropy, mean squared error or binary cross-entropy
 * against the labels, or mean squared or absolute error against real targets.
 *
 * For images, forward computes the derivative together with the loss, and backward only scales it.
 * For tokens, rows are as long as the vocabulary, and a second copy of them would be the largest
 * buffer of all. There, forward overwrites the outputs with softmax's exponentials, and backward
 * turns these into the gradient, also in place. */
#include "base/error.h"
#include "kernels/cpu/cpu_loss.h"
#include "kernels/cpu/transformer.h"
#include "nn/cuda/model_cuda.h"

struct loss_state {
    int derivative; /* buffer: images: the derivative; tokens: the exponentials; -1: these are in
                       the input */
    int inverse;    /* buffer, tokens: the factor for each row that turns exponentials into
                       probabilities */
};

static size_t rows_of(const struct cddpi_plan *plan)
{
    return (size_t)plan->count * (size_t)plan->model->predictions;
}

/* Whether backward of the layer before reads that layer's output. */
static bool is_output_needed(const struct cddpi_plan *plan, int index)
{
    int producer = plan->model->graph.values[cddpi_plan_op_of(plan, index)->inputs[0]].producer;

    return (plan->ops[producer].flags & CDDPI_NEEDS_OUTPUT) != 0;
}

static cddp_status plan_loss(struct cddpi_plan *plan, int index)
{
    size_t bytes = cddpi_plan_input(plan, index, 0)->elements * sizeof(float);
    struct loss_state *state = plan->ops[index].state;
    bool tokens = plan->model->tokens_in;

    if (!plan->training) {
        return CDDP_OK;
    }
    state->derivative = -1;
    if (tokens && !is_output_needed(plan, index)) {
        plan->ops[index].flags = CDDPI_TAKES_INPUT;
    } else {
        state->derivative = cddpi_plan_buffer(plan, index, bytes, CDDPI_IN_BOTH);
    }
    if (tokens) {
        state->inverse = cddpi_plan_buffer(plan, index, rows_of(plan) * sizeof(float),
                                           CDDPI_IN_BOTH);
    }
    return CDDP_OK;
}

static void forward_tokens(struct cddpi_exec *exec, const struct loss_state *state)
{
    float *powers = NULL;
    float *inverse = NULL;

    if (exec->plan->training) {
        powers = state->derivative < 0 ? cddpi_exec_taken_input(exec)
                                       : cddpi_exec_buffer(exec, state->derivative);
        inverse = cddpi_exec_buffer(exec, state->inverse);
    }
    exec->result->loss_sum = cddpi_transformer_kernels()->softmax->forward(
        cddpi_exec_input(exec, 0), exec->batch->label, rows_of(exec->plan),
        (size_t)exec->model->classes, powers, inverse, &exec->result->correct);
}

static void forward_images(struct cddpi_exec *exec, const struct loss_state *state)
{
    static double (*const losses[])(const float *, const int32_t *, size_t, size_t, float *) = {
        cddpi_nn_cross_entropy, cddpi_nn_mse, cddpi_nn_binary_cross_entropy};
    const int32_t *label = exec->batch->label;
    size_t rows = (size_t)exec->batch->count;
    size_t columns = (size_t)exec->model->classes;
    const float *x = cddpi_exec_input(exec, 0);
    float *derivative = exec->plan->training ? cddpi_exec_buffer(exec, state->derivative) : NULL;

    if (exec->model->real_targets) {
        const float *targets = (const float *)exec->batch->label;

        exec->result->loss_sum = (exec->model->loss == CDDPI_LOSS_L1 ? cddpi_nn_absolute_error
                                                                     : cddpi_nn_squared_error)(
            x, targets, rows, columns, derivative);
        return;
    }
    exec->result->loss_sum = losses[exec->model->loss](x, label, rows, columns, derivative);
    exec->result->correct = exec->model->loss == CDDPI_LOSS_BINARY_CROSS_ENTROPY && columns == 1
                                ? cddpi_nn_count_correct_signs(x, label, rows)
                                : cddpi_nn_count_correct(x, label, rows, columns);
}

static cddp_status forward(struct cddpi_exec *exec)
{
    (exec->model->tokens_in ? forward_tokens : forward_images)(exec, exec->state);
    cddpi_exact_add(&exec->model->sums.now->losses, exec->result->loss_sum);
    exec->model->sums.now->correct += exec->result->correct;
    return CDDP_OK;
}

static cddp_status backward(struct cddpi_exec *exec)
{
    struct loss_state *state = exec->state;
    size_t columns = (size_t)exec->model->classes;
    const float *made = state->derivative < 0 ? cddpi_exec_input(exec, 0)
                                              : cddpi_exec_buffer(exec, state->derivative);

    if (exec->model->tokens_in) {
        cddpi_transformer_kernels()->softmax->backward(
            made, exec->batch->label, cddpi_exec_buffer(exec, state->inverse), (float)exec->scale,
            rows_of(exec->plan), columns, cddpi_exec_grad_input(exec, 0));
    } else {
        cddpi_nn_scale(made, (float)exec->scale, cddpi_exec_grad_input(exec, 0),
                       rows_of(exec->plan) * columns);
    }
    return CDDP_OK;
}

/* On a device in training, backward computes the loss, since it knows the scale: one pass over the
 * outputs replaces them by their gradient and adds up the sums. */
struct loss_cuda_state {
    int scratch; /* buffer */
};

static cddp_status plan_cuda(struct cddpi_plan *plan, int index)
{
    struct loss_cuda_state *state = plan->ops[index].state;
    size_t scratch = plan->model->cuda->kernels->loss_scratch(rows_of(plan));

    plan->ops[index].flags = is_output_needed(plan, index) ? CDDPI_NEEDS_INPUT : CDDPI_TAKES_INPUT;
    state->scratch = cddpi_plan_buffer(plan, index, scratch,
                                       plan->training ? CDDPI_IN_BACKWARD : CDDPI_IN_FORWARD);
    return CDDP_OK;
}

static cddp_status compute_cuda(const struct cddpi_exec *exec, const struct loss_cuda_state *state,
                                void *outputs)
{
    const struct cddpi_cuda_kernels *kernels = cddpi_exec_kernels(exec);
    struct cddpi_device *device = exec->model->device;
    enum cddpi_loss loss = exec->model->loss;
    size_t stride = exec->plan->values[exec->op->inputs[0]].stride;

    if (stride > 0) {
        return kernels->cross_entropy_strided(
            device, exec->model->type, outputs, exec->batch->label, rows_of(exec->plan),
            (size_t)exec->model->classes, stride, exec->plan->training, (float)exec->scale,
            exec->model->loss_scale, exec->model->sums.now,
            cddpi_exec_buffer(exec, state->scratch));
    }
    if (exec->model->real_targets) {
        return kernels->real_error(
            device, exec->model->type, outputs, (const float *)exec->batch->label,
            loss == CDDPI_LOSS_L1, rows_of(exec->plan), (size_t)exec->model->classes,
            exec->plan->training, (float)exec->scale, exec->model->loss_scale,
            exec->model->sums.now, cddpi_exec_buffer(exec, state->scratch));
    }
    return (loss == CDDPI_LOSS_MSE                    ? kernels->squared_error
            : loss == CDDPI_LOSS_BINARY_CROSS_ENTROPY ? kernels->binary_cross_entropy
                                                      : kernels->cross_entropy)(
        device, exec->model->type, outputs, exec->batch->label, rows_of(exec->plan),
        (size_t)exec->model->classes, exec->plan->training, (float)exec->scale,
        exec->model->loss_scale, exec->model->sums.now, cddpi_exec_buffer(exec, state->scratch));
}

static cddp_status forward_cuda(struct cddpi_exec *exec)
{
    return exec->plan->training ? CDDP_OK
                                : compute_cuda(exec, exec->state, cddpi_exec_taken_input(exec));
}

static cddp_status backward_cuda(struct cddpi_exec *exec)
{
    struct cddpi_device *device = exec->model->device;
    const struct cddpi_plan_value *value = &exec->plan->values[exec->op->inputs[0]];
    void *outputs = cddpi_exec_taken_input(exec);
    void *grad = cddpi_exec_grad_input(exec, 0);

    if (grad != outputs) { /* the layer before also reads the outputs */
        CDDPI_TRY(device->ops->copy(device, CDDPI_STREAM_COMPUTE, grad, outputs,
                                    value->elements * cddp_type_bytes(value->type)));
    }
    return compute_cuda(exec, exec->state, grad);
}

const struct cddpi_op_kernels cddpi_cuda_loss = {.state_bytes = sizeof(struct loss_cuda_state),
                                                 .plan = plan_cuda,
                                                 .forward = forward_cuda,
                                                 .backward = backward_cuda};

static const struct cddpi_op_kernels cpu = {.state_bytes = sizeof(struct loss_state),
                                            .plan = plan_loss,
                                            .forward = forward,
                                            .backward = backward};

const struct cddpi_op_ops cddpi_op_loss = {
    .name = "loss", .on = {[CDDPI_DEVICE_CPU] = &cpu, [CDDPI_DEVICE_CUDA] = &cddpi_cuda_loss}};
