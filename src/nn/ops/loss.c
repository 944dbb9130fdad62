/* loss.c - owns the last op: softmax cross-entropy or mean squared error against the labels. The
 * derivative is made along with the loss and only scaled in backward. */
#include "base/alloc.h"
#include "base/error.h"
#include "kernels/cpu/nn_loss.h"
#include "nn/model_state.h"

struct state {
    int derivative; /* buffer */
};

static cddp_status plan_loss(struct cddpi_plan *plan, int index, void **out)
{
    struct state *state;

    if (!plan->training) {
        return CDDP_OK;
    }
    state = cddpi_zalloc(sizeof *state);
    if (state == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "loss: no memory for %zu bytes", sizeof *state);
    }
    *out = state;
    return cddpi_plan_buffer(plan, index,
                             cddpi_plan_input(plan, index, 0)->elements * sizeof(float),
                             CDDPI_IN_BOTH, &state->derivative);
}

static void unplan(void *state)
{
    cddpi_free(state);
}

static cddp_status forward(struct cddpi_run *run, void *opaque)
{
    struct state *state = opaque;
    const struct cddpi_batch *batch = run->batch;
    size_t rows = (size_t)batch->count;
    size_t columns = (size_t)run->model->classes;
    const float *x = cddpi_run_input(run, 0);
    float *derivative = state != NULL ? cddpi_run_buffer(run, state->derivative) : NULL;

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

    cddpi_nn_scale(cddpi_run_buffer(run, state->derivative), (float)run->scale,
                   cddpi_run_grad_input(run, 0),
                   (size_t)run->plan->count * (size_t)run->model->classes);
    return CDDP_OK;
}

const struct cddpi_op_ops cddpi_op_loss = {
    .name = "loss", .plan = plan_loss, .unplan = unplan, .forward = forward, .backward = backward};
