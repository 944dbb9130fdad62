/* batch_norm_cuda.c - owns batch normalisation on a device, with the sum and the relu behind it in
 * the same pass. */
#include "base/alloc.h"
#include "base/error.h"
#include "nn/cuda.h"
#include "nn/model_state.h"
#include "nn/ops/batch_norm.h"

struct state {
    struct cddpi_cuda_sync_norm norm; /* without sync: of this rank's batch, and no rows */
    bool sync;
    int unwanted; /* buffer: for the input's gradient where nobody wants it */
};

static cddp_status plan_training(struct cddpi_plan *plan, int index, struct state *state)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    size_t bytes = (size_t)op->in.channels * sizeof(float);
    cddp_status status = cddpi_plan_buffer(plan, index, bytes, CDDPI_IN_BOTH, &state->norm.mean);

    plan->ops[index].flags = CDDPI_NEEDS_FIRST | (op->relu ? CDDPI_NEEDS_OUTPUT : 0u);
    if (status == CDDP_OK) {
        status = cddpi_plan_buffer(plan, index, bytes, CDDPI_IN_BOTH, &state->norm.inverse);
    }
    if (status == CDDP_OK && state->sync) {
        status = cddpi_plan_buffer(plan, index, sizeof(double), CDDPI_IN_BOTH, &state->norm.rows);
    }
    if (status == CDDP_OK && !cddpi_plan_wants_grad(plan, index, 0)) {
        const struct cddpi_plan_value *input = cddpi_plan_input(plan, index, 0);

        status = cddpi_plan_buffer(plan, index, input->elements * cddp_type_bytes(input->type),
                                   CDDPI_IN_BACKWARD, &state->unwanted);
    }
    return status;
}

static cddp_status plan_batch_norm(struct cddpi_plan *plan, int index, void **out)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    struct state *state = cddpi_zalloc(sizeof *state);

    if (state == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "batch_norm: no memory for %zu bytes", sizeof *state);
    }
    *out = state;
    state->sync = plan->training && cddpi_sync_norm_wanted(plan->model, op);
    state->norm.shape = (struct cddpi_cuda_norm){
        .type = plan->model->cuda->type,
        .rows = (size_t)plan->count * (size_t)op->in.height * (size_t)op->in.width,
        .channels = op->in.channels,
        .epsilon = (float)op->layer.epsilon,
        .momentum = (float)op->layer.momentum,
        .relu = op->relu};
    cddpi_plan_output(plan, index, cddpi_plan_input(plan, index, 0)->block);
    return plan->training ? plan_training(plan, index, state) : CDDP_OK;
}

static cddp_status forward(struct cddpi_run *run, void *opaque)
{
    const struct state *state = opaque;
    const struct cddpi_cuda_kernels *kernels = cddpi_run_kernels(run);
    struct cddpi_device *device = cddpi_run_device(run);
    const void *sum = run->op->input_count > 1 ? cddpi_run_input(run, 1) : NULL;

    if (state->sync) {
        return cddpi_cuda_sync_norm_forward(run, &state->norm);
    }
    if (!run->plan->training) {
        return kernels->batch_norm_eval(device, &state->norm.shape, cddpi_run_input(run, 0), sum,
                                        cddpi_run_param(run, 0), cddpi_run_param(run, 1),
                                        cddpi_run_running(run, 0), cddpi_run_running(run, 1),
                                        cddpi_run_output(run));
    }
    return kernels->batch_norm(device, &state->norm.shape, cddpi_run_input(run, 0), sum,
                               cddpi_run_param(run, 0), cddpi_run_param(run, 1),
                               cddpi_run_running(run, 0), cddpi_run_running(run, 1),
                               cddpi_run_buffer(run, state->norm.mean),
                               cddpi_run_buffer(run, state->norm.inverse), cddpi_run_output(run));
}

static cddp_status backward(struct cddpi_run *run, void *opaque)
{
    const struct state *state = opaque;
    void *grad_input = cddpi_run_grad_input(run, 0);
    cddp_status status;

    if (grad_input == NULL) {
        grad_input = cddpi_run_buffer(run, state->unwanted);
    }
    if (state->sync) {
        return cddpi_cuda_sync_norm_backward(run, &state->norm, grad_input);
    }
    status = cddpi_run_kernels(run)->batch_norm_grad(
        cddpi_run_device(run), &state->norm.shape, cddpi_run_grad_output(run, 0),
        cddpi_run_input(run, 0), cddpi_run_output(run), cddpi_run_param(run, 0),
        cddpi_run_buffer(run, state->norm.mean), cddpi_run_buffer(run, state->norm.inverse),
        cddpi_run_adds(run, 0), grad_input,
        run->op->input_count > 1 ? cddpi_run_grad_input(run, 1) : NULL, cddpi_run_grad(run, 0),
        cddpi_run_grad(run, 1));
    return status == CDDP_OK ? cddpi_run_ready_both(run) : status;
}

const struct cddpi_op_cuda cddpi_cuda_batch_norm = {
    .plan = plan_batch_norm, .forward = forward, .backward = backward};
