/* lstm_cuda.c - owns one LSTM layer on a device, with the parameters and gates of lstm_op.c. One
 * product computes the inputs' contribution to all gates. Each step then takes a product with the
 * previous step's outputs, and one pass that computes gates, cells and outputs.
 *
 * Backward runs through the steps from the last one on, and then computes the gradients of inputs
 * and weights from those of all gates at once. The operands of one step's product are stored
 * separately, without the gaps that the sequences' other steps would leave. */
#include "base/error.h"
#include "nn/cuda/model_cuda.h"

struct lstm_cuda_state {
    struct cddpi_cuda_lstm shape;
    /* products: of all inputs, of one step's outputs, and of all outputs for the gradient */
    struct cddpi_cuda_linear inputs, step, outputs;
    /* buffers: all gates, which backward replaces by their gradients; cells; the outputs of one
     * step, or their gradient; the gates of one step, or their gradients */
    int gates, cells, last, step_gates;
    int before, carried_cell, sums; /* buffers, in backward: the outputs that each step started
                                       from, the gradient of cells, scratch for the biases */
};

static void plan_buffers(struct cddpi_plan *plan, int index, struct lstm_cuda_state *state)
{
    const struct cddpi_cuda_lstm *shape = &state->shape;
    size_t element = cddp_type_bytes(plan->model->type);
    size_t step = shape->rows * shape->units;
    size_t all = step * shape->length;

    state->gates = cddpi_plan_buffer(plan, index, CDDPI_LSTM_GATES * all * element, CDDPI_IN_BOTH);
    state->cells = cddpi_plan_buffer(plan, index, all * sizeof(float), CDDPI_IN_BOTH);
    state->last = cddpi_plan_buffer(plan, index, step * element, CDDPI_IN_BOTH);
    state->step_gates = cddpi_plan_buffer(plan, index, CDDPI_LSTM_GATES * step * element,
                                          CDDPI_IN_BOTH);
    if (!plan->training) {
        return;
    }
    plan->ops[index].flags = CDDPI_NEEDS_INPUT | CDDPI_NEEDS_OUTPUT;
    state->before = cddpi_plan_buffer(plan, index, all * element, CDDPI_IN_BACKWARD);
    state->carried_cell = cddpi_plan_buffer(plan, index, step * sizeof(float), CDDPI_IN_BACKWARD);
    if (cddpi_plan_op_of(plan, index)->params[CDDPI_LSTM_BIAS_IH] >= 0) {
        state->sums = cddpi_plan_buffer(
            plan, index,
            plan->model->cuda->kernels->sums_scratch(
                plan->model->device, shape->rows * shape->length, CDDPI_LSTM_GATES * shape->units),
            CDDPI_IN_BACKWARD);
    }
}

static cddp_status plan_lstm(struct cddpi_plan *plan, int index)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    struct lstm_cuda_state *state = plan->ops[index].state;
    struct cddpi_cuda_lstm *shape = &state->shape;

    *shape = (struct cddpi_cuda_lstm){.type = plan->model->type,
                                      .rows = (size_t)plan->count,
                                      .length = (size_t)op->in.height,
                                      .units = (size_t)op->out.channels};
    state->inputs = (struct cddpi_cuda_linear){.type = shape->type,
                                               .rows = shape->rows * shape->length,
                                               .inputs = (size_t)op->in.channels,
                                               .outputs = CDDPI_LSTM_GATES * shape->units,
                                               .epilogue = CDDPI_EPILOGUE_NONE,
                                               .any_order = plan->model->cuda->any_order};
    state->outputs = state->inputs;
    state->outputs.inputs = shape->units;
    state->step = state->outputs;
    state->step.rows = shape->rows;
    cddpi_plan_output(plan, index, cddpi_plan_input(plan, index, 0)->block);
    plan_buffers(plan, index, state);
    return CDDP_OK;
}

static cddp_status forward(struct cddpi_exec *exec)
{
    const struct lstm_cuda_state *state = exec->state;
    const struct cddpi_cuda_kernels *kernels = cddpi_exec_kernels(exec);
    struct cddpi_device *device = exec->model->device;
    void *gates = cddpi_exec_buffer(exec, state->gates);
    void *last = cddpi_exec_buffer(exec, state->last);
    void *recurrent = cddpi_exec_buffer(exec, state->step_gates);

    CDDPI_TRY(kernels->linear(device, &state->inputs, cddpi_exec_input(exec, 0),
                              cddpi_exec_copy(exec, CDDPI_LSTM_WEIGHT_IH), NULL, gates, NULL));
    for (size_t t = 0; t < state->shape.length; t++) {
        if (t > 0) {
            CDDPI_TRY(kernels->linear(device, &state->step, last,
                                      cddpi_exec_copy(exec, CDDPI_LSTM_WEIGHT_HH), NULL, recurrent,
                                      NULL));
        }
        CDDPI_TRY(kernels->lstm(
            device, &state->shape, t, cddpi_exec_param(exec, CDDPI_LSTM_BIAS_IH),
            cddpi_exec_param(exec, CDDPI_LSTM_BIAS_HH), t > 0 ? recurrent : NULL, gates,
            cddpi_exec_buffer(exec, state->cells), cddpi_exec_output(exec), last));
    }
    return CDDP_OK;
}

/* Replace all gates by their gradients, from the last step to the first. */
static cddp_status gate_gradients(const struct cddpi_exec *exec,
                                  const struct lstm_cuda_state *state)
{
    const struct cddpi_cuda_kernels *kernels = cddpi_exec_kernels(exec);
    struct cddpi_device *device = exec->model->device;
    void *carried = cddpi_exec_buffer(exec, state->last);
    void *step_grads = cddpi_exec_buffer(exec, state->step_gates);

    for (size_t t = state->shape.length; t-- > 0;) {
        CDDPI_TRY(kernels->lstm_grad(device, &state->shape, t, cddpi_exec_grad_output(exec, 0),
                                     t + 1 < state->shape.length ? carried : NULL,
                                     cddpi_exec_buffer(exec, state->carried_cell),
                                     cddpi_exec_buffer(exec, state->cells), cddpi_exec_output(exec),
                                     cddpi_exec_buffer(exec, state->gates), step_grads,
                                     cddpi_exec_buffer(exec, state->before)));
        if (t > 0) {
            CDDPI_TRY(kernels->linear_input(device, &state->step, step_grads,
                                            cddpi_exec_copy(exec, CDDPI_LSTM_WEIGHT_HH), NULL,
                                            carried));
        }
    }
    return CDDP_OK;
}

static cddp_status bias_gradient(struct cddpi_exec *exec, const struct lstm_cuda_state *state,
                                 int k)
{
    float *grad = cddpi_exec_grad(exec, k);

    if (grad == NULL) {
        return CDDP_OK;
    }
    CDDPI_TRY(cddpi_exec_kernels(exec)->column_sums(
        exec->model->device, state->shape.type, cddpi_exec_buffer(exec, state->gates),
        state->inputs.rows, state->inputs.outputs, cddpi_exec_adds(exec, k), grad,
        cddpi_exec_buffer(exec, state->sums)));
    return cddpi_exec_ready(exec, k);
}

/* The gradient of weight @p k, which multiplied @p from. */
static cddp_status weight_gradient(struct cddpi_exec *exec, const struct lstm_cuda_state *state,
                                   const struct cddpi_cuda_linear *shape, const void *from, int k)
{
    CDDPI_TRY(cddpi_exec_kernels(exec)->linear_weight(
        exec->model->device, shape, cddpi_exec_buffer(exec, state->gates), from,
        cddpi_exec_adds(exec, k), cddpi_exec_grad(exec, k), NULL));
    return cddpi_exec_ready(exec, k);
}

static cddp_status backward(struct cddpi_exec *exec)
{
    const struct lstm_cuda_state *state = exec->state;
    void *dx = cddpi_exec_grad_input(exec, 0);

    CDDPI_TRY(gate_gradients(exec, state));
    CDDPI_TRY(bias_gradient(exec, state, CDDPI_LSTM_BIAS_HH));
    CDDPI_TRY(bias_gradient(exec, state, CDDPI_LSTM_BIAS_IH));
    CDDPI_TRY(weight_gradient(exec, state, &state->inputs, cddpi_exec_input(exec, 0),
                              CDDPI_LSTM_WEIGHT_IH));
    if (dx != NULL) {
        CDDPI_TRY(cddpi_exec_kernels(exec)->linear_input(
            exec->model->device, &state->inputs, cddpi_exec_buffer(exec, state->gates),
            cddpi_exec_copy(exec, CDDPI_LSTM_WEIGHT_IH), NULL, dx));
    }
    return weight_gradient(exec, state, &state->outputs, cddpi_exec_buffer(exec, state->before),
                           CDDPI_LSTM_WEIGHT_HH);
}

static enum cddpi_copy copy(const struct cddpi_op *op, int k)
{
    (void)op;
    return k == CDDPI_LSTM_WEIGHT_IH || k == CDDPI_LSTM_WEIGHT_HH ? CDDPI_COPY_CAST
                                                                  : CDDPI_COPY_NONE;
}

const struct cddpi_op_kernels cddpi_cuda_lstm = {.state_bytes = sizeof(struct lstm_cuda_state),
                                                 .plan = plan_lstm,
                                                 .forward = forward,
                                                 .backward = backward,
                                                 .copy = copy};
