/* model_passes.c - owns the functions of model.h that run a batch: forward, backward, and parameter
 * gradients if they are separate. */
#include "base/error.h"
#include "nn/model_state.h"

cddp_status cddpi_model_forward(struct cddpi_model *model, const struct cddpi_batch *batch,
                                bool training, struct cddpi_loss_result *out)
{
    struct cddpi_loss_result result = {.count = batch->count * model->predictions};
    struct cddpi_exec exec = {.model = model, .batch = batch, .result = &result};

    CDDPI_TRY(model->ops->check_batch(model, batch));
    if (training && model->statistics != NULL && batch->count > 0 && !(batch->weight > 0)) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "model: statistics are bound, but the batch's weight is %g",
                          batch->weight);
    }
    if (batch->count > 0) {
        CDDPI_TRY(cddpi_model_plan(model, batch->count, training, &exec.plan));
    }
    cddpi_model_forget_forward(model);
    model->last.batch = *batch;
    if (exec.plan != NULL) {
        CDDPI_TRY(cddpi_exec_forward(&exec));
    } else if (training) {
        CDDPI_TRY(cddpi_exec_idle_forward(&exec));
    }
    if (exec.plan != NULL && cddpi_model_has_loss(model) &&
        (!training || (model->ops->keeps_outputs && !model->tokens_in && !model->split))) {
        exec.op = &model->graph.ops[model->graph.op_count - 1];
        model->last.outputs = cddpi_exec_input(&exec, 0);
        model->last.outputs_stride = exec.plan->values[exec.op->inputs[0]].stride;
        if (model->last.outputs_stride == 0) {
            model->last.outputs_stride = (size_t)model->classes;
        }
    }
    model->last.pending = exec.plan;
    model->last.pending_backward = training;
    if (out != NULL) {
        *out = result;
    }
    return CDDP_OK;
}

int cddpi_model_batch_count(const struct cddpi_model *model)
{
    return model->last.batch.count;
}

/* Check that gradients are bound, and count none as arrived in this pass. */
static cddp_status begin_gradients(struct cddpi_model *model)
{
    for (size_t i = 0; i < model->params.count; i++) {
        struct cddpi_param_state *state = &model->param_states[i];

        if (state->grad == NULL) {
            return cddpi_fail(CDDP_ERR_STATE, "model: nothing is bound as the gradient of %s",
                              model->params.items[i].name);
        }
        state->grads_arrived = state->is_begun ? 1 : 0;
    }
    return CDDP_OK;
}

cddp_status cddpi_model_backward(struct cddpi_model *model, double scale, bool accumulate,
                                 cddpi_grad_ready_fn ready, void *context)
{
    struct cddpi_exec exec = {.model = model,
                              .plan = model->last.pending,
                              .batch = &model->last.batch,
                              .scale = scale,
                              .accumulate = accumulate,
                              .ready = ready,
                              .context = context};

    if (!model->last.pending_backward) {
        return cddpi_fail(CDDP_ERR_STATE,
                          "model: backward without a training forward before it, whose activations "
                          "are still there");
    }
    CDDPI_TRY(begin_gradients(model));
    if (model->split && exec.plan != NULL) {
        CDDPI_TRY(cddpi_model_grow_region(model, exec.plan, CDDPI_REGION_GRADS));
    }
    model->last.pending_backward = false; /* gradients overwrite activations */
    model->last.pending_weights = model->split;
    if (exec.plan == NULL) {
        /* if split, cddpi_model_weights() reports all gradients */
        exec.ready = model->split ? NULL : ready;
        return cddpi_exec_idle_gradients(&exec, true);
    }
    return cddpi_exec_backward(&exec);
}

cddp_status cddpi_model_weights(struct cddpi_model *model, bool accumulate,
                                cddpi_grad_ready_fn ready, void *context)
{
    struct cddpi_exec exec = {.model = model,
                              .plan = model->last.pending,
                              .batch = &model->last.batch,
                              .accumulate = accumulate,
                              .ready = ready,
                              .context = context};

    if (!model->last.pending_weights) {
        return cddpi_fail(CDDP_ERR_STATE,
                          "model: gradients of parameters without a backward before "
                          "them that has left them");
    }
    CDDPI_TRY(begin_gradients(model));
    if (exec.plan != NULL) {
        CDDPI_TRY(cddpi_model_grow_region(model, exec.plan, CDDPI_REGION_SCRATCH));
    }
    model->last.pending_weights = false;
    return exec.plan != NULL ? cddpi_exec_weights(&exec) : cddpi_exec_idle_gradients(&exec, false);
}
