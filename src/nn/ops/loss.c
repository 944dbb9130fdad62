/* loss.c - owns the last op: softmax cross-entropy or mean squared error against the labels.
 *
 * Of images the derivative is made along with the loss, and only scaled in backward. Tokens have
 * rows as long as the vocabulary, so that a second copy of them would be the largest buffer of all:
 * there forward leaves the powers of softmax in the place of the outputs, and backward makes their
 * gradient of them, again in place. */
#include "base/alloc.h"
#include "base/error.h"
#include "kernels/cpu/nn_gpt.h"
#include "kernels/cpu/nn_loss.h"
#include "nn/cuda.h"
#include "nn/model_state.h"

struct state {
    int derivative; /* buffer: of images; of tokens the powers; -1: these lie in the input */
    int inverse;    /* buffer: of tokens: what makes probabilities of a row of powers */
};

static size_t rows_of(const struct cddpi_plan *plan)
{
    return (size_t)plan->count * (size_t)plan->model->predictions;
}

/* Unless backward of the layer before reads its output. */
static bool takes_input(const struct cddpi_plan *plan, int index)
{
    int producer = plan->model->graph.values[cddpi_plan_op_of(plan, index)->inputs[0]].producer;

    return plan->model->tokens_in && (plan->ops[producer].flags & CDDPI_NEEDS_OUTPUT) == 0;
}

static cddp_status plan_loss(struct cddpi_plan *plan, int index, void **out)
{
    size_t bytes = cddpi_plan_input(plan, index, 0)->elements * sizeof(float);
    cddp_status status = CDDP_OK;
    struct state *state;

    if (!plan->training) {
        return CDDP_OK;
    }
    state = cddpi_zalloc(sizeof *state);
    if (state == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "loss: no memory for %zu bytes", sizeof *state);
    }
    *out = state;
    state->derivative = -1;
    if (takes_input(plan, index)) {
        plan->ops[index].flags = CDDPI_TAKES_INPUT;
    } else {
        status = cddpi_plan_buffer(plan, index, bytes, CDDPI_IN_BOTH, &state->derivative);
    }
    if (status == CDDP_OK && plan->model->tokens_in) {
        status = cddpi_plan_buffer(plan, index, rows_of(plan) * sizeof(float), CDDPI_IN_BOTH,
                                   &state->inverse);
    }
    return status;
}

static void unplan(void *state)
{
    cddpi_free(state);
}

static cddp_status forward_tokens(struct cddpi_run *run, const struct state *state)
{
    float *powers = NULL;
    float *inverse = NULL;

    if (state != NULL) {
        powers = state->derivative < 0 ? cddpi_run_taken_input(run)
                                       : cddpi_run_buffer(run, state->derivative);
        inverse = cddpi_run_buffer(run, state->inverse);
    }
    run->result->loss_sum = cddpi_gpt_kernels()->softmax->forward(
        cddpi_run_input(run, 0), run->batch->label, rows_of(run->plan), (size_t)run->model->classes,
        powers, inverse, &run->result->correct);
    return CDDP_OK;
}

static cddp_status forward(struct cddpi_run *run, void *opaque)
{
    struct state *state = opaque;
    const struct cddpi_batch *batch = run->batch;
    size_t rows = (size_t)batch->count;
    size_t columns = (size_t)run->model->classes;
    const float *x = cddpi_run_input(run, 0);
    float *derivative;

    if (run->model->tokens_in) {
        return forward_tokens(run, state);
    }
    derivative = state != NULL ? cddpi_run_buffer(run, state->derivative) : NULL;
    run->result->loss_sum = run->model->loss == CDDPI_LOSS_MSE
                                ? cddpi_nn_mse(x, batch->label, rows, columns, derivative)
                                : cddpi_nn_cross_entropy(x, batch->label, rows, columns,
                                                         derivative);
    run->result->correct = cddpi_nn_count_correct(x, batch->label, rows, columns);
    return CDDP_OK;
}

static cddp_status backward(struct cddpi_run *run, void *opaque)
{
    struct state *state = opaque;
    size_t columns = (size_t)run->model->classes;
    const float *made = state->derivative < 0 ? cddpi_run_input(run, 0)
                                              : cddpi_run_buffer(run, state->derivative);

    if (run->model->tokens_in) {
        cddpi_gpt_kernels()->softmax->backward(
            made, run->batch->label, cddpi_run_buffer(run, state->inverse), (float)run->scale,
            rows_of(run->plan), columns, cddpi_run_grad_input(run, 0));
    } else {
        cddpi_nn_scale(made, (float)run->scale, cddpi_run_grad_input(run, 0),
                       rows_of(run->plan) * columns);
    }
    return CDDP_OK;
}

/* On a device the loss is made in training by backward, which knows the scale: one pass over the
 * outputs makes their gradient in their place, and the sums. */
struct cuda_state {
    int scratch; /* buffer */
};

static cddp_status plan_cuda(struct cddpi_plan *plan, int index, void **out)
{
    struct cuda_state *state = cddpi_zalloc(sizeof *state);
    int producer = plan->model->graph.values[cddpi_plan_op_of(plan, index)->inputs[0]].producer;

    if (state == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "loss: no memory for %zu bytes", sizeof *state);
    }
    *out = state;
    plan->ops[index].flags = (plan->ops[producer].flags & CDDPI_NEEDS_OUTPUT) == 0
                                 ? CDDPI_TAKES_INPUT
                                 : CDDPI_NEEDS_INPUT;
    return cddpi_plan_buffer(plan, index, plan->model->cuda->kernels->loss_scratch(rows_of(plan)),
                             plan->training ? CDDPI_IN_BACKWARD : CDDPI_IN_FORWARD,
                             &state->scratch);
}

static cddp_status compute_cuda(const struct cddpi_run *run, const struct cuda_state *state,
                                void *outputs)
{
    const struct cddpi_cuda_kernels *kernels = cddpi_run_kernels(run);
    const struct cddpi_model_cuda *cuda = run->model->cuda;
    bool mse = run->model->loss == CDDPI_LOSS_MSE;
    size_t stride = run->plan->values[run->op->inputs[0]].stride;

    if (stride > 0) {
        return kernels->cross_entropy_strided(
            cuda->device, cuda->type, outputs, run->batch->label, rows_of(run->plan),
            (size_t)run->model->classes, stride, run->plan->training, (float)run->scale,
            cuda->loss_scale, cuda->sums, cddpi_run_buffer(run, state->scratch));
    }
    return (mse ? kernels->squared_error : kernels->cross_entropy)(
        cuda->device, cuda->type, outputs, run->batch->label, rows_of(run->plan),
        (size_t)run->model->classes, run->plan->training, (float)run->scale, cuda->loss_scale,
        cuda->sums, cddpi_run_buffer(run, state->scratch));
}

static cddp_status forward_cuda(struct cddpi_run *run, void *state)
{
    return run->plan->training ? CDDP_OK : compute_cuda(run, state, cddpi_run_taken_input(run));
}

static cddp_status backward_cuda(struct cddpi_run *run, void *state)
{
    struct cddpi_device *device = cddpi_run_device(run);
    const struct cddpi_plan_value *value = &run->plan->values[run->op->inputs[0]];
    void *outputs = cddpi_run_taken_input(run);
    void *grad = cddpi_run_grad_input(run, 0);
    cddp_status status = CDDP_OK;

    if (grad != outputs) { /* which the layer before reads, too */
        status = device->ops->copy(device, CDDPI_STREAM_COMPUTE, grad, outputs,
                                   value->elements * cddp_type_bytes(value->type));
    }
    return status == CDDP_OK ? compute_cuda(run, state, grad) : status;
}

const struct cddpi_op_cuda cddpi_cuda_loss = {
    .plan = plan_cuda, .forward = forward_cuda, .backward = backward_cuda};

const struct cddpi_op_ops cddpi_op_loss = {.name = "loss",
                                           .plan = plan_loss,
                                           .unplan = unplan,
                                           .forward = forward,
                                           .backward = backward,
                                           .cuda = &cddpi_cuda_loss};
