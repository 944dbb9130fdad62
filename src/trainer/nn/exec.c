/* exec.c - owns the execution context, through which running ops reach the arena, parameters and
 * gradients; and runs the passes over the ops. */

#include "base/clock.h"
#include "base/error.h"
#include "kernels/cpu/elementwise.h"
#include "nn/cpu/threads.h"
#include "nn/model_state.h"

#include <string.h>

void *cddpi_exec_buffer(const struct cddpi_exec *exec, int buffer)
{
    const struct cddpi_arena_buffer *buffers = exec->plan->arena.buffers;

    if (exec->recomputed && buffers[buffer].recomputed >= 0) {
        buffer = buffers[buffer].recomputed;
    }
    return exec->model->regions[buffers[buffer].region].data + buffers[buffer].offset;
}

const void *cddpi_exec_input(const struct cddpi_exec *exec, int k)
{
    int buffer = exec->plan->values[exec->op->inputs[k]].activation;

    return buffer < 0 ? exec->model->last.batch.input : cddpi_exec_buffer(exec, buffer);
}

void *cddpi_exec_taken_input(const struct cddpi_exec *exec)
{
    return cddpi_exec_buffer(exec, exec->plan->values[exec->op->inputs[0]].activation);
}

void *cddpi_exec_output(const struct cddpi_exec *exec)
{
    return cddpi_exec_buffer(exec, exec->plan->values[exec->op->output].activation);
}

size_t cddpi_exec_output_elements(const struct cddpi_exec *exec)
{
    return exec->plan->values[exec->op->output].elements;
}

const void *cddpi_exec_converted(const struct cddpi_exec *exec, const void *x,
                                 const struct cddpi_nn_layout *from,
                                 const struct cddpi_nn_layout *to, int buffer)
{
    float *out;

    if (from->block == to->block) {
        return x;
    }
    out = cddpi_exec_buffer(exec, buffer);
    cddpi_nn_convert(x, from, out, to);
    return out;
}

void *cddpi_exec_grad_output(const struct cddpi_exec *exec, int k)
{
    int buffer = exec->plan->values[exec->op->output].grads[k];

    return buffer < 0 ? NULL : cddpi_exec_buffer(exec, buffer);
}

void *cddpi_exec_preact_grad(const struct cddpi_exec *exec)
{
    return cddpi_exec_buffer(exec, exec->plan->ops[exec->index].preact_grad);
}

void *cddpi_exec_grad_input(const struct cddpi_exec *exec, int k)
{
    int buffer = exec->plan->ops[exec->index].grad_inputs[k];

    return buffer < 0 ? NULL : cddpi_exec_buffer(exec, buffer);
}

float *cddpi_exec_param(const struct cddpi_exec *exec, int k)
{
    int param = exec->op->params[k];

    return param < 0 ? NULL : exec->model->params.items[param].data;
}

float *cddpi_exec_grad(const struct cddpi_exec *exec, int k)
{
    int param = exec->op->params[k];

    return param < 0 ? NULL : exec->model->param_states[param].grad;
}

float *cddpi_exec_running(const struct cddpi_exec *exec, int k)
{
    return exec->model->buffers.items[exec->op->buffers[k]].data;
}

float *cddpi_exec_statistics(const struct cddpi_exec *exec, int k)
{
    float *const *statistics = exec->model->statistics;

    return statistics != NULL ? statistics[exec->op->buffers[k]] : NULL;
}

bool cddpi_exec_adds(const struct cddpi_exec *exec, int k)
{
    return exec->accumulate || exec->model->param_states[exec->op->params[k]].grads_arrived > 0;
}

float *cddpi_exec_sums(const struct cddpi_exec *exec, int k)
{
    float *grad = cddpi_exec_grad(exec, k);

    if (grad != NULL && !cddpi_exec_adds(exec, k)) {
        memset(grad, 0,
               cddpi_tensor_elements(&exec->model->params.items[exec->op->params[k]]) *
                   sizeof *grad);
    }
    return grad;
}

cddp_status cddpi_exec_ready(struct cddpi_exec *exec, int k)
{
    int param = exec->op->params[k];
    struct cddpi_param_state *state;

    if (param < 0) {
        return CDDP_OK;
    }
    state = &exec->model->param_states[param];
    return ++state->grads_arrived < state->grads_expected || exec->ready == NULL
               ? CDDP_OK
               : exec->ready(exec->context, (size_t)param);
}

cddp_status cddpi_exec_ready_both(struct cddpi_exec *exec)
{
    CDDPI_TRY(cddpi_exec_ready(exec, 1));
    return cddpi_exec_ready(exec, 0);
}

const float *cddpi_exec_mask_relu(struct cddpi_exec *exec)
{
    const float *first = cddpi_exec_grad_output(exec, 0);
    const float *second = cddpi_exec_grad_output(exec, 1);
    size_t count = cddpi_exec_output_elements(exec);

    if ((exec->plan->ops[exec->index].flags & CDDPI_MAKES_PREACT_GRAD) == 0) {
        return first;
    }
    if (second != NULL) {
        cddpi_nn_relu_backward_sum(first, second, cddpi_exec_output(exec),
                                   cddpi_exec_preact_grad(exec), count);
    } else {
        cddpi_nn_relu_backward(first, cddpi_exec_output(exec), cddpi_exec_preact_grad(exec), count);
    }
    return cddpi_exec_preact_grad(exec);
}

const float *cddpi_exec_masked(const struct cddpi_exec *exec)
{
    return (exec->plan->ops[exec->index].flags & CDDPI_MAKES_PREACT_GRAD) != 0
               ? cddpi_exec_preact_grad(exec)
               : cddpi_exec_grad_output(exec, 0);
}

bool cddpi_exec_defers(const struct cddpi_exec *exec)
{
    return exec->plan->ops[exec->index].weights != exec->plan->ops[exec->index].backward;
}

typedef cddp_status (*work_fn)(struct cddpi_exec *exec);

/* Measures only this op's work: the device is idle before and after it. */
static cddp_status measured(struct cddpi_exec *exec, work_fn work)
{
    struct cddpi_device *device = exec->model->device;
    int64_t begun;

    CDDPI_TRY(device->ops->finish(device, exec->model->timeout_ms));
    begun = cddpi_now_ns();
    CDDPI_TRY(work(exec));
    CDDPI_TRY(device->ops->finish(device, exec->model->timeout_ms));
    exec->model->op_seconds[exec->index] += (double)(cddpi_now_ns() - begun) * 1e-9;
    return CDDP_OK;
}

enum exec_pass { FORWARD, BACKWARD, WEIGHTS };

static cddp_status step(struct cddpi_exec *exec, int index, enum exec_pass pass)
{
    const struct cddpi_op *op = &exec->model->graph.ops[index];
    struct cddpi_device *device = exec->model->device;
    size_t team = cddpi_team_size();
    work_fn work = pass == FORWARD    ? op->kernels->forward
                   : pass == BACKWARD ? op->kernels->backward
                                      : op->kernels->weights;
    cddp_status status;

    exec->index = index;
    exec->op = op;
    exec->state = exec->plan->ops[index].state;
    device->ops->range_push(device, op->layer.name);
    CDDPI_TRY_GOTO(done, status, cddpi_exec_refresh_copies(exec));
    if (exec->plan->ops[index].one_thread) {
        cddpi_team_resize(1);
    }
    status = exec->model->op_seconds == NULL ? work(exec) : measured(exec, work);
    if (exec->plan->ops[index].one_thread) {
        cddpi_team_resize(team);
    }
done:
    device->ops->range_pop(device);
    return status == CDDP_OK ? CDDP_OK : cddpi_fail_prefix(status, "layer \"%s\"", op->layer.name);
}

/* Wait for pending updates of the op's parameters. */
static cddp_status await_params(const struct cddpi_exec *exec, int index)
{
    const struct cddpi_model *model = exec->model;
    const struct cddpi_op *op = &model->graph.ops[index];

    for (int k = 0; model->param_wait != NULL && k < CDDPI_OP_PARAMS; k++) {
        if (op->params[k] >= 0) {
            CDDPI_TRY(model->param_wait(model->param_wait_context, (size_t)op->params[k]));
        }
    }
    return CDDP_OK;
}

cddp_status cddpi_exec_forward(struct cddpi_exec *exec)
{
    const struct cddpi_graph *graph = &exec->model->graph;

    if (exec->model->ops->data != NULL) {
        CDDPI_TRY(exec->model->ops->data(exec));
    }
    for (int i = 0; i < graph->op_count; i++) {
        if ((exec->plan->ops[i].flags & CDDPI_FORWARD_VIEW) == 0) {
            CDDPI_TRY(await_params(exec, i));
            CDDPI_TRY(step(exec, i, FORWARD));
        }
    }
    return CDDP_OK;
}

static cddp_status sum_grads(const struct cddpi_exec *exec, int value)
{
    const struct cddpi_plan *plan = exec->plan;
    size_t count = plan->values[value].elements;

    for (int i = 0; i < plan->sum_count; i++) {
        const struct cddpi_grad_sum *sum = &plan->sums[i];

        if (sum->value == value) {
            CDDPI_TRY(exec->model->ops->add(exec->model, cddpi_exec_buffer(exec, sum->a),
                                            cddpi_exec_buffer(exec, sum->b), count,
                                            cddpi_exec_buffer(exec, sum->out)));
        }
    }
    return CDDP_OK;
}

/* Recompute the segment that backward enters at op @p index, if there is one. */
static cddp_status recompute_segment(struct cddpi_exec *exec, int index)
{
    for (int i = cddpi_plan_segment_begin(exec->plan, index); i <= index; i++) {
        const struct cddpi_plan_op *op = &exec->plan->ops[i];

        if (op->recompute_time >= 0 && (op->flags & CDDPI_FORWARD_VIEW) == 0) {
            CDDPI_TRY(step(exec, i, FORWARD));
        }
    }
    return CDDP_OK;
}

cddp_status cddpi_exec_backward(struct cddpi_exec *exec)
{
    const struct cddpi_graph *graph = &exec->model->graph;

    exec->recomputed = true;
    for (int i = graph->op_count - 1; i >= 0; i--) {
        const unsigned views = CDDPI_GRAD_VIEW | CDDPI_MAKES_PREACT_GRAD;
        int output = graph->ops[i].output;

        CDDPI_TRY(recompute_segment(exec, i));
        if (output >= 0 && !graph->values[output].needs_grad) {
            continue;
        }
        if (output >= 0) {
            CDDPI_TRY(sum_grads(exec, output));
        }
        if ((exec->plan->ops[i].flags & views) !=
            CDDPI_GRAD_VIEW) { /* else nothing is left to do */
            CDDPI_TRY(step(exec, i, BACKWARD));
        }
    }
    return CDDP_OK;
}

cddp_status cddpi_exec_weights(struct cddpi_exec *exec)
{
    exec->recomputed = true;
    for (int i = exec->model->graph.op_count - 1; i >= 0; i--) {
        if (exec->plan->ops[i].weights > exec->plan->end) {
            CDDPI_TRY(step(exec, i, WEIGHTS));
        }
    }
    return CDDP_OK;
}

cddp_status cddpi_exec_idle_forward(struct cddpi_exec *exec)
{
    const struct cddpi_graph *graph = &exec->model->graph;

    for (int i = 0; i < graph->op_count; i++) {
        exec->index = i;
        exec->op = &graph->ops[i];
        if (exec->op->kernels->idle_forward != NULL) {
            CDDPI_TRY(exec->op->kernels->idle_forward(exec));
        }
    }
    return CDDP_OK;
}

static cddp_status zero_grad(const struct cddpi_exec *exec, int k)
{
    struct cddpi_device *device = exec->model->device;
    float *grad = cddpi_exec_grad(exec, k);
    size_t count;

    if (grad == NULL || cddpi_exec_adds(exec, k)) {
        return CDDP_OK;
    }
    count = cddpi_tensor_elements(&exec->model->params.items[exec->op->params[k]]);
    return device->ops->clear(device, CDDPI_STREAM_COMPUTE, grad, count * sizeof *grad);
}

cddp_status cddpi_exec_idle_gradients(struct cddpi_exec *exec, bool backward)
{
    const struct cddpi_graph *graph = &exec->model->graph;

    for (int i = graph->op_count - 1; i >= 0; i--) {
        exec->index = i;
        exec->op = &graph->ops[i];
        if (backward && exec->op->kernels->idle_backward != NULL) {
            CDDPI_TRY(exec->op->kernels->idle_backward(exec));
        }
        for (int k = CDDPI_OP_PARAMS - 1; k >= 0; k--) {
            CDDPI_TRY(backward ? zero_grad(exec, k) : CDDP_OK);
            CDDPI_TRY(cddpi_exec_ready(exec, k));
        }
    }
    return CDDP_OK;
}

void cddpi_model_forget_forward(struct cddpi_model *model)
{
    model->last = (struct cddpi_last_forward){.outputs = NULL};
}
