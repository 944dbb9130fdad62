/* placed_engine_model.c - owns the choice between the two kinds of models on several devices:
 * layers placed on them, or a copy on each. */
#include "train/engines/placed/placed_engine.h"

cddp_status cddpi_trainer_placed_forward(struct cddpi_trainer_placed *placed,
                                         const struct cddpi_batch *batch, bool training,
                                         struct cddpi_loss_result *out)
{
    return placed->replicated != NULL
               ? cddpi_replicated_forward(placed->replicated, batch, training, out)
               : cddpi_placed_forward(placed->model, batch, training, out);
}

cddp_status cddpi_trainer_placed_backward(struct cddpi_trainer_placed *placed, double scale,
                                          bool accumulate, cddpi_grad_ready_fn ready, void *context)
{
    return placed->replicated != NULL
               ? cddpi_replicated_backward(placed->replicated, scale, accumulate, ready, context)
               : cddpi_placed_backward(placed->model, scale, accumulate, ready, context);
}

struct cddpi_loss_result cddpi_trainer_placed_late(const struct cddpi_trainer_placed *placed)
{
    return placed->replicated != NULL ? cddpi_replicated_late(placed->replicated)
                                      : cddpi_placed_late(placed->model);
}

void cddpi_trainer_placed_bind_grads(struct cddpi_trainer_placed *placed, void *const *grads)
{
    if (placed->replicated != NULL) {
        cddpi_replicated_bind_grads(placed->replicated, grads);
    } else {
        cddpi_placed_bind_grads(placed->model, grads);
    }
}

void cddpi_trainer_placed_bind_params(struct cddpi_trainer_placed *placed, void *const *data,
                                      cddpi_param_wait_fn wait, void *context)
{
    if (placed->replicated != NULL) {
        cddpi_replicated_bind_params(placed->replicated, data);
        cddpi_replicated_on_param(placed->replicated, wait, context);
    } else {
        cddpi_placed_bind_params(placed->model, data);
        cddpi_placed_on_param(placed->model, wait, context);
    }
}

bool cddpi_trainer_placed_param_decays(const struct cddpi_trainer_placed *placed, size_t index)
{
    return placed->replicated != NULL ? cddpi_replicated_param_decays(placed->replicated, index)
                                      : cddpi_placed_param_decays(placed->model, index);
}

int cddpi_trainer_placed_param_device(const struct cddpi_trainer_placed *placed, size_t index)
{
    return placed->replicated != NULL ? 0 : cddpi_placed_param_device(placed->model, index);
}

const uint32_t *cddpi_trainer_placed_ready_order(const struct cddpi_trainer_placed *placed)
{
    return placed->replicated != NULL ? cddpi_replicated_ready_order(placed->replicated)
                                      : cddpi_placed_ready_order(placed->model);
}
