/* run.c - owns what ops see while they run: pointers into the arena, parameters and gradients; and
 * the two passes over the ops. */
#include "nn/run.h"

#include "base/error.h"
#include "kernels/cpu/nn_elementwise.h"
#include "nn/cuda.h"
#include "nn/model_state.h"

static void *at(const struct cddpi_run *run, int buffer)
{
    const struct cddpi_buffer *buffers = run->plan->memory.buffers;

    if (run->again && buffers[buffer].again >= 0) {
        buffer = buffers[buffer].again;
    }
    return run->model->arena + buffers[buffer].offset;
}

void *cddpi_run_buffer(const struct cddpi_run *run, int buffer)
{
    return at(run, buffer);
}

const void *cddpi_run_input(const struct cddpi_run *run, int k)
{
    int buffer = run->plan->values[run->op->inputs[k]].activation;

    return buffer < 0 ? run->model->batch.input : at(run, buffer);
}

void *cddpi_run_taken_input(const struct cddpi_run *run)
{
    return at(run, run->plan->values[run->op->inputs[0]].activation);
}

void *cddpi_run_output(const struct cddpi_run *run)
{
    return at(run, run->plan->values[run->op->output].activation);
}

size_t cddpi_run_output_elements(const struct cddpi_run *run)
{
    return run->plan->values[run->op->output].elements;
}

void *cddpi_run_grad_output(const struct cddpi_run *run, int k)
{
    int buffer = run->plan->values[run->op->output].grads[k];

    return buffer < 0 ? NULL : at(run, buffer);
}

void *cddpi_run_masked(const struct cddpi_run *run)
{
    return at(run, run->plan->ops[run->index].masked);
}

void *cddpi_run_grad_input(const struct cddpi_run *run, int k)
{
    int buffer = run->plan->ops[run->index].grad_inputs[k];

    return buffer < 0 ? NULL : at(run, buffer);
}

float *cddpi_run_param(const struct cddpi_run *run, int k)
{
    int param = run->op->params[k];

    return param < 0 ? NULL : run->model->params.items[param].data;
}

float *cddpi_run_grad(const struct cddpi_run *run, int k)
{
    int param = run->op->params[k];

    return param < 0 ? NULL : run->model->grads[param];
}

float *cddpi_run_running(const struct cddpi_run *run, int k)
{
    return run->model->buffers.items[run->op->buffers[k]].data;
}

bool cddpi_run_adds(const struct cddpi_run *run, int k)
{
    return run->accumulate || run->model->given[run->op->params[k]] > 0;
}

cddp_status cddpi_run_ready(struct cddpi_run *run, int k)
{
    int param = run->op->params[k];

    if (param < 0 || ++run->model->given[param] < run->model->uses[param] || run->ready == NULL) {
        return CDDP_OK;
    }
    return run->ready(run->context, (size_t)param);
}

const float *cddpi_run_mask_relu(struct cddpi_run *run)
{
    const float *first = cddpi_run_grad_output(run, 0);
    const float *second = cddpi_run_grad_output(run, 1);
    size_t count = cddpi_run_output_elements(run);

    if ((run->plan->ops[run->index].flags & CDDPI_MASKS_GRAD) == 0) {
        return first;
    }
    if (second != NULL) {
        cddpi_nn_relu_backward_sum(first, second, cddpi_run_output(run), cddpi_run_masked(run),
                                   count);
    } else {
        cddpi_nn_relu_backward(first, cddpi_run_output(run), cddpi_run_masked(run), count);
    }
    return cddpi_run_masked(run);
}

typedef cddp_status (*work_fn)(struct cddpi_run *run, void *state);

static cddp_status step_on_device(struct cddpi_run *run, work_fn work)
{
    struct cddpi_device *device = run->model->cuda->device;
    cddp_status status;

    device->ops->range_push(device, run->op->layer.name);
    status = cddpi_cuda_refresh(run);
    if (status == CDDP_OK) {
        status = work(run, run->plan->ops[run->index].state);
    }
    device->ops->range_pop(device);
    return status;
}

static cddp_status step(struct cddpi_run *run, int index, bool forward)
{
    const struct cddpi_op *op = &run->model->graph.ops[index];
    cddp_status status;

    run->index = index;
    run->op = op;
    if (run->model->cuda != NULL) {
        status = step_on_device(run, forward ? op->ops->cuda->forward : op->ops->cuda->backward);
    } else {
        work_fn work = forward ? op->ops->forward : op->ops->backward;

        status = work(run, run->plan->ops[index].state);
    }
    return status == CDDP_OK ? CDDP_OK
                             : cddpi_fail_prefix(status, "layer \"%s\"", run->op->layer.name);
}

/* Updates of the op's parameters may still be on their way. */
static cddp_status await_params(const struct cddpi_run *run, int index)
{
    const struct cddpi_model *model = run->model;
    const struct cddpi_op *op = &model->graph.ops[index];
    cddp_status status = CDDP_OK;

    for (int k = 0; status == CDDP_OK && model->param_wait != NULL && k < CDDPI_OP_PARAMS; k++) {
        if (op->params[k] >= 0) {
            status = model->param_wait(model->param_wait_context, (size_t)op->params[k]);
        }
    }
    return status;
}

cddp_status cddpi_run_forward(struct cddpi_run *run)
{
    const struct cddpi_graph *graph = &run->model->graph;
    cddp_status status = run->model->cuda != NULL ? cddpi_cuda_data(run) : CDDP_OK;

    for (int i = 0; status == CDDP_OK && i < graph->op_count; i++) {
        if ((run->plan->ops[i].flags & CDDPI_FORWARD_VIEW) == 0) {
            status = await_params(run, i);
            if (status == CDDP_OK) {
                status = step(run, i, true);
            }
        }
    }
    return status;
}

static cddp_status sum_grads(const struct cddpi_run *run, int value)
{
    const struct cddpi_plan *plan = run->plan;
    size_t count = plan->values[value].elements;
    cddp_status status = CDDP_OK;

    for (int i = 0; status == CDDP_OK && i < plan->sum_count; i++) {
        const struct cddpi_grad_sum *sum = &plan->sums[i];

        if (sum->value == value && run->model->cuda != NULL) {
            status = cddpi_run_kernels(run)->add(cddpi_run_device(run), cddpi_run_type(run),
                                                 at(run, sum->a), at(run, sum->b), false, count,
                                                 at(run, sum->out));
        } else if (sum->value == value) {
            cddpi_nn_add(at(run, sum->a), at(run, sum->b), at(run, sum->out), count);
        }
    }
    return status;
}

/* What backward needs of the segment that it enters at op @p index, if it does. */
static cddp_status run_again(struct cddpi_run *run, int index)
{
    cddp_status status = CDDP_OK;

    for (int i = cddpi_plan_segment_begin(run->plan, index); status == CDDP_OK && i <= index; i++) {
        const struct cddpi_plan_op *op = &run->plan->ops[i];

        if (op->again >= 0 && (op->flags & CDDPI_FORWARD_VIEW) == 0) {
            status = step(run, i, true);
        }
    }
    return status;
}

cddp_status cddpi_run_backward(struct cddpi_run *run)
{
    const struct cddpi_graph *graph = &run->model->graph;
    const unsigned nothing = CDDPI_GRAD_VIEW;
    cddp_status status = CDDP_OK;

    run->again = true;
    for (int i = graph->op_count - 1; status == CDDP_OK && i >= 0; i--) {
        int output = graph->ops[i].output;

        status = run_again(run, i);
        if (status != CDDP_OK) {
            return status;
        }

        if (output >= 0 && !graph->values[output].needs_grad) {
            continue;
        }
        if (output >= 0) {
            status = sum_grads(run, output);
        }
        if (status == CDDP_OK &&
            (run->plan->ops[i].flags & (CDDPI_GRAD_VIEW | CDDPI_MASKS_GRAD)) != nothing) {
            status = step(run, i, false);
        }
    }
    return status;
}

cddp_status cddpi_run_idle_forward(struct cddpi_run *run)
{
    const struct cddpi_graph *graph = &run->model->graph;
    cddp_status status = CDDP_OK;

    for (int i = 0; status == CDDP_OK && i < graph->op_count; i++) {
        run->index = i;
        run->op = &graph->ops[i];
        if (run->op->ops->idle_forward != NULL) {
            status = run->op->ops->idle_forward(run);
        }
    }
    return status;
}

static cddp_status zero_grad(const struct cddpi_run *run, int k)
{
    float *grad = cddpi_run_grad(run, k);
    size_t count;

    if (grad == NULL || cddpi_run_adds(run, k)) {
        return CDDP_OK;
    }
    count = cddpi_tensor_elements(&run->model->params.items[run->op->params[k]]);
    if (run->model->cuda != NULL) {
        struct cddpi_device *device = cddpi_run_device(run);

        return device->ops->clear(device, CDDPI_STREAM_COMPUTE, grad, count * sizeof *grad);
    }
    for (size_t i = 0; i < count; i++) {
        grad[i] = 0;
    }
    return CDDP_OK;
}

cddp_status cddpi_run_idle_backward(struct cddpi_run *run)
{
    const struct cddpi_graph *graph = &run->model->graph;
    cddp_status status = CDDP_OK;

    for (int i = graph->op_count - 1; status == CDDP_OK && i >= 0; i--) {
        run->index = i;
        run->op = &graph->ops[i];
        if (run->op->ops->idle_backward != NULL) {
            status = run->op->ops->idle_backward(run);
        }
        for (int k = CDDPI_OP_PARAMS - 1; status == CDDP_OK && k >= 0; k--) {
            status = zero_grad(run, k);
            if (status == CDDP_OK) {
                status = cddpi_run_ready(run, k);
            }
        }
    }
    return status;
}
