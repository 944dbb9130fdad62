/* linear_cuda.c - owns a linear layer on a device: products with the bias and a fused relu or gelu.
 *
 * The logits of a vocabulary in 16 bits are padded to a multiple of 128 outputs (few tokens: of 8),
 * because products with odd row lengths are slow. The padding weights are 0, so their logits are 0
 * too, and nothing reads them; their gradients are dropped.
 *
 * With a gelu, forward saves its input. The gelu's derivative is applied where the gradient of its
 * output is computed: by the product of the next linear layer if that is the only reader, otherwise
 * in this layer's backward. */
#include "base/error.h"
#include "nn/cuda/model_cuda.h"

struct linear_cuda_state {
    struct cddpi_cuda_linear shape;
    int aux;     /* buffer: the gelu's input; training only */
    int scratch; /* buffer, if the bias's gradient is summed in a separate pass; otherwise -1 */
    int grad;    /* buffer for the weight's gradient with padded outputs; -1: no padding */
};

static bool derived_by_reader(const struct cddpi_graph *graph, const struct cddpi_op *op)
{
    const struct cddpi_op *reader = cddpi_sole_reader(graph, op->output);

    return op->gelu && reader != NULL && reader->ops == &cddpi_op_linear;
}

size_t cddpi_linear_outputs(const struct cddpi_model *model, const struct cddpi_op *op)
{
    const struct cddpi_op *reader = cddpi_sole_reader(&model->graph, op->output);
    size_t outputs = (size_t)op->out.channels;
    size_t multiple = outputs >= 1024 ? 128 : 8;

    if (model->type == CDDP_F32 || !model->tokens_in || op->params[1] >= 0 || op->relu ||
        op->gelu || reader == NULL || reader->ops != &cddpi_op_loss ||
        model->loss != CDDPI_LOSS_CROSS_ENTROPY) {
        return outputs;
    }
    return (outputs + multiple - 1) / multiple * multiple;
}

/* What backward reads to include the gradient of the GELU before it. NULL: there is none to
 * include; the input's gradient is wanted as it is. */
static const void *gelu_aux(const struct cddpi_exec *exec)
{
    const struct cddpi_graph *graph = &exec->model->graph;
    int producer = graph->values[exec->op->inputs[0]].producer;

    if (producer < 0 || graph->ops[producer].ops != &cddpi_op_linear ||
        !derived_by_reader(graph, &graph->ops[producer])) {
        return NULL;
    }
    return cddpi_exec_buffer(
        exec, ((const struct linear_cuda_state *)exec->plan->ops[producer].state)->aux);
}

static void plan_training(struct cddpi_plan *plan, int index, struct linear_cuda_state *state)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    const struct cddpi_cuda_linear *shape = &state->shape;
    unsigned *flags = &plan->ops[index].flags;

    if (op->relu) {
        *flags |= CDDPI_NEEDS_OUTPUT | CDDPI_MAKES_PREACT_GRAD;
    }
    if (op->gelu) {
        *flags |= derived_by_reader(&plan->model->graph, op) ? 0u : CDDPI_MAKES_PREACT_GRAD;
        state->aux = cddpi_plan_buffer(plan, index,
                                       shape->rows * shape->outputs * cddp_type_bytes(shape->type),
                                       CDDPI_IN_BOTH);
    }
    if (op->layer.tied != NULL && op->params[1] >= 0) {
        state->scratch = cddpi_plan_buffer(plan, index,
                                           plan->model->cuda->kernels->sums_scratch(
                                               plan->model->device, shape->rows, shape->outputs),
                                           CDDPI_IN_BACKWARD);
    }
    if (shape->outputs != (size_t)op->out.channels) {
        state->grad = cddpi_plan_buffer(plan, index, shape->outputs * shape->inputs * sizeof(float),
                                        CDDPI_IN_BACKWARD);
    }
}

static cddp_status plan_linear(struct cddpi_plan *plan, int index)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    struct linear_cuda_state *state = plan->ops[index].state;

    state->scratch = state->grad = -1;
    state->shape = (struct cddpi_cuda_linear){.type = plan->model->type,
                                              .rows = cddpi_plan_rows(plan, op),
                                              .inputs = (size_t)op->in.channels,
                                              .outputs = cddpi_linear_outputs(plan->model, op),
                                              .epilogue = op->relu   ? CDDPI_EPILOGUE_RELU
                                                          : op->gelu ? CDDPI_EPILOGUE_GELU
                                                                     : CDDPI_EPILOGUE_NONE,
                                              .any_order = plan->model->cuda->any_order};
    cddpi_plan_output(plan, index, op->in.sequence ? op->out.channels : 1);
    if (state->shape.outputs != (size_t)op->out.channels) {
        plan->values[op->output].stride = state->shape.outputs;
        plan->values[op->output].elements = state->shape.rows * state->shape.outputs;
    }
    plan->ops[index].flags = CDDPI_NEEDS_INPUT;
    if (plan->training) {
        plan_training(plan, index, state);
    }
    return CDDP_OK;
}

static cddp_status forward(struct cddpi_exec *exec)
{
    const struct linear_cuda_state *state = exec->state;
    bool keeps = exec->op->gelu && exec->plan->training;

    return cddpi_exec_kernels(exec)->linear(exec->model->device, &state->shape,
                                            cddpi_exec_input(exec, 0), cddpi_exec_copy(exec, 0),
                                            cddpi_exec_copy(exec, 1), cddpi_exec_output(exec),
                                            keeps ? cddpi_exec_buffer(exec, state->aux) : NULL);
}

/* The gradient before the relu or gelu. */
static cddp_status derive(const struct cddpi_exec *exec, const struct linear_cuda_state *state,
                          const void **out)
{
    cddp_status status;

    if (!exec->op->gelu || derived_by_reader(&exec->model->graph, exec->op)) {
        return cddpi_cuda_mask_relu(exec, out);
    }
    status = cddpi_exec_kernels(exec)->pointwise_grad(
        exec->model->device, state->shape.type, CDDPI_POINTWISE_GELU, 0,
        cddpi_exec_grad_output(exec, 0), cddpi_exec_buffer(exec, state->aux),
        cddpi_exec_output_elements(exec), cddpi_exec_preact_grad(exec));
    *out = cddpi_exec_preact_grad(exec);
    return status;
}

/* The weight's gradient with padded outputs, which are then dropped. */
static cddp_status padded_gradient(const struct cddpi_exec *exec,
                                   const struct linear_cuda_state *state, const void *grad)
{
    const struct cddpi_cuda_kernels *kernels = cddpi_exec_kernels(exec);
    struct cddpi_device *device = exec->model->device;
    size_t count = (size_t)exec->op->out.channels * state->shape.inputs;
    float *made = cddpi_exec_buffer(exec, state->grad);
    float *wanted = cddpi_exec_grad(exec, 0);

    CDDPI_TRY(kernels->linear_weight(device, &state->shape, grad, cddpi_exec_input(exec, 0), false,
                                     made, NULL));
    return cddpi_exec_adds(exec, 0)
               ? kernels->add(device, CDDP_F32, wanted, made, false, count, wanted)
               : device->ops->copy(device, CDDPI_STREAM_COMPUTE, wanted, made,
                                   count * sizeof *wanted);
}

/* The product also sums the bias's gradient, unless exactly one of the two gradients already holds
 * a contribution. */
static cddp_status weight_gradient(const struct cddpi_exec *exec,
                                   const struct linear_cuda_state *state, const void *grad)
{
    const struct cddpi_cuda_kernels *kernels = cddpi_exec_kernels(exec);
    struct cddpi_device *device = exec->model->device;
    bool adds = cddpi_exec_adds(exec, 0);
    float *bias = cddpi_exec_grad(exec, 1);
    bool apart = bias != NULL && cddpi_exec_adds(exec, 1) != adds;

    CDDPI_TRY(kernels->linear_weight(device, &state->shape, grad, cddpi_exec_input(exec, 0), adds,
                                     cddpi_exec_grad(exec, 0), apart ? NULL : bias));
    if (apart) {
        CDDPI_TRY(kernels->column_sums(device, state->shape.type, grad, state->shape.rows,
                                       state->shape.outputs, cddpi_exec_adds(exec, 1), bias,
                                       cddpi_exec_buffer(exec, state->scratch)));
    }
    return CDDP_OK;
}

static cddp_status backward(struct cddpi_exec *exec)
{
    const struct linear_cuda_state *state = exec->state;
    void *grad_input = cddpi_exec_grad_input(exec, 0);
    const void *grad = NULL;

    CDDPI_TRY(derive(exec, state, &grad));
    CDDPI_TRY((state->grad >= 0 ? padded_gradient : weight_gradient)(exec, state, grad));
    /* before the input's gradient, so that its allreduce can start */
    CDDPI_TRY(cddpi_exec_ready_both(exec));
    if (grad_input == NULL) {
        return CDDP_OK;
    }
    return cddpi_exec_kernels(exec)->linear_input(exec->model->device, &state->shape, grad,
                                                  cddpi_exec_copy(exec, 0), gelu_aux(exec),
                                                  grad_input);
}

const struct cddpi_op_kernels cddpi_cuda_linear = {.fuses_gelu = true,
                                                   .state_bytes = sizeof(struct linear_cuda_state),
                                                   .plan = plan_linear,
                                                   .forward = forward,
                                                   .backward = backward,
                                                   .copy = cddpi_copy_cast};
