/* linear_cuda.c - owns a linear layer on a device: products with the bias, and with the relu or
 * gelu behind it, in the same pass.
 *
 * Of a gelu, forward keeps what went into it. Its derivative is taken where the gradient of its
 * output is made: by the product of the linear layer that alone reads it, else in backward of this
 * one. */
#include "base/alloc.h"
#include "base/error.h"
#include "nn/cuda.h"
#include "nn/model_state.h"

struct state {
    struct cddpi_cuda_linear shape;
    int aux;     /* buffer: what went into the gelu; training only */
    int scratch; /* buffer: for a bias that is summed apart; -1: it is not */
};

static bool derived_by_reader(const struct cddpi_graph *graph, const struct cddpi_op *op)
{
    const struct cddpi_op *reader = cddpi_sole_reader(graph, op->output);

    return op->gelu && reader != NULL && reader->ops == &cddpi_op_linear;
}

const void *cddpi_linear_gelu_aux(const struct cddpi_run *run)
{
    const struct cddpi_graph *graph = &run->model->graph;
    int producer = graph->values[run->op->inputs[0]].producer;

    if (producer < 0 || graph->ops[producer].ops != &cddpi_op_linear ||
        !derived_by_reader(graph, &graph->ops[producer])) {
        return NULL;
    }
    return cddpi_run_buffer(run, ((const struct state *)run->plan->ops[producer].state)->aux);
}

static cddp_status plan_training(struct cddpi_plan *plan, int index, struct state *state)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    unsigned *flags = &plan->ops[index].flags;
    cddp_status status = CDDP_OK;

    if (op->relu) {
        *flags |= CDDPI_NEEDS_OUTPUT | CDDPI_MASKS_GRAD;
    }
    if (op->gelu) {
        *flags |= derived_by_reader(&plan->model->graph, op) ? 0u : CDDPI_MASKS_GRAD;
        status = cddpi_plan_buffer(plan, index,
                                   state->shape.rows * state->shape.outputs *
                                       cddp_type_bytes(state->shape.type),
                                   CDDPI_IN_BOTH, &state->aux);
    }
    if (status == CDDP_OK && op->layer.tied != NULL && op->params[1] >= 0) {
        status = cddpi_plan_buffer(
            plan, index,
            plan->model->cuda->kernels->sums_scratch(state->shape.rows, state->shape.outputs),
            CDDPI_IN_BACKWARD, &state->scratch);
    }
    return status;
}

static cddp_status plan_linear(struct cddpi_plan *plan, int index, void **out)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    struct state *state = cddpi_zalloc(sizeof *state);

    if (state == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "linear: no memory for %zu bytes", sizeof *state);
    }
    *out = state;
    state->scratch = -1;
    state->shape = (struct cddpi_cuda_linear){.type = plan->model->cuda->type,
                                              .rows = cddpi_plan_rows(plan, op),
                                              .inputs = (size_t)op->in.channels,
                                              .outputs = (size_t)op->out.channels,
                                              .epilogue = op->relu   ? CDDPI_EPILOGUE_RELU
                                                          : op->gelu ? CDDPI_EPILOGUE_GELU
                                                                     : CDDPI_EPILOGUE_NONE};
    cddpi_plan_output(plan, index, op->in.sequence ? op->out.channels : 1);
    plan->ops[index].flags = CDDPI_NEEDS_INPUT;
    return plan->training ? plan_training(plan, index, state) : CDDP_OK;
}

static cddp_status forward(struct cddpi_run *run, void *opaque)
{
    const struct state *state = opaque;
    bool keeps = run->op->gelu && run->plan->training;

    return cddpi_run_kernels(run)->linear(cddpi_run_device(run), &state->shape,
                                          cddpi_run_input(run, 0), cddpi_run_copy(run, 0),
                                          cddpi_run_copy(run, 1), cddpi_run_output(run),
                                          keeps ? cddpi_run_buffer(run, state->aux) : NULL);
}

/* The gradient in front of the relu or gelu. */
static cddp_status derive(const struct cddpi_run *run, const struct state *state, const void **out)
{
    cddp_status status;

    if (!run->op->gelu || derived_by_reader(&run->model->graph, run->op)) {
        return cddpi_cuda_mask_relu(run, out);
    }
    status = cddpi_run_kernels(run)->gelu_grad(
        cddpi_run_device(run), state->shape.type, false, cddpi_run_grad_output(run, 0),
        cddpi_run_buffer(run, state->aux), cddpi_run_output_elements(run), cddpi_run_masked(run));
    *out = cddpi_run_masked(run);
    return status;
}

/* The bias is summed along, unless just one of the two gradients is there already. */
static cddp_status weight_gradient(struct cddpi_run *run, const struct state *state,
                                   const void *grad)
{
    const struct cddpi_cuda_kernels *kernels = cddpi_run_kernels(run);
    struct cddpi_device *device = cddpi_run_device(run);
    bool adds = cddpi_run_adds(run, 0);
    float *bias = cddpi_run_grad(run, 1);
    bool apart = bias != NULL && cddpi_run_adds(run, 1) != adds;
    cddp_status status = kernels->linear_weight(device, &state->shape, grad,
                                                cddpi_run_input(run, 0), adds,
                                                cddpi_run_grad(run, 0), apart ? NULL : bias);

    if (status == CDDP_OK && apart) {
        status = kernels->column_sums(device, state->shape.type, grad, state->shape.rows,
                                      state->shape.outputs, cddpi_run_adds(run, 1), bias,
                                      cddpi_run_buffer(run, state->scratch));
    }
    return status;
}

static cddp_status backward(struct cddpi_run *run, void *opaque)
{
    const struct state *state = opaque;
    void *grad_input = cddpi_run_grad_input(run, 0);
    const void *grad = NULL;
    cddp_status status = derive(run, state, &grad);

    if (status == CDDP_OK) {
        status = weight_gradient(run, state, grad);
    }
    if (status == CDDP_OK) {
        status = cddpi_run_ready_both(run); /* before more work: its reduction can start */
    }
    if (status != CDDP_OK || grad_input == NULL) {
        return status;
    }
    return cddpi_run_kernels(run)->linear_input(cddpi_run_device(run), &state->shape, grad,
                                                cddpi_run_copy(run, 0), cddpi_linear_gelu_aux(run),
                                                grad_input);
}

static enum cddpi_copy copy(const struct cddpi_op *op, int k)
{
    (void)op;
    (void)k;
    return CDDPI_COPY_CAST;
}

const struct cddpi_op_cuda cddpi_cuda_linear = {
    .plan = plan_linear, .forward = forward, .backward = backward, .copy = copy};
