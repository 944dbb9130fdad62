/* replicated_engine.c - owns the engine's row: a copy of the model on each of a rank's devices
 * (parallel.type = "data_parallel"). */
#include "train/engines/replicated/replicated_engine.h"

#include "base/alloc.h"
#include "base/error.h"
#include "train/engines/single/single.h"

static bool fits(const struct cddpi_config *config)
{
    return config->parallel.type == CDDPI_PARALLEL_DATA;
}

static cddp_status forward(struct cddpi_trainer *trainer, const struct cddpi_batch *batch,
                           bool training, struct cddpi_loss_result *out)
{
    return cddpi_replicated_forward(cddpi_replicated_engine_of(trainer)->model, batch, training,
                                    out);
}

static cddp_status backward(struct cddpi_trainer *trainer, double scale, bool accumulate,
                            cddpi_grad_ready_fn ready, void *context, struct cddpi_loss_result *out)
{
    CDDPI_TRY(cddpi_replicated_backward(cddpi_replicated_engine_of(trainer)->model, scale,
                                        accumulate, ready, context));
    return cddpi_own_devices_add_late(
        trainer, cddpi_replicated_late(cddpi_replicated_engine_of(trainer)->model), out);
}

static void bind_grads(struct cddpi_trainer *trainer)
{
    cddpi_replicated_bind_grads(cddpi_replicated_engine_of(trainer)->model, trainer->grads);
}

/* Parameters are in host memory, and have no 16-bit copies there. */
static void bind_params(struct cddpi_trainer *trainer, void *const *data, void *const *copies)
{
    (void)copies;
    cddpi_replicated_bind_params(cddpi_replicated_engine_of(trainer)->model, data);
    cddpi_replicated_on_param(cddpi_replicated_engine_of(trainer)->model,
                              cddpi_own_devices_param_wait, trainer->ddp);
}

static bool param_decays(const struct cddpi_trainer *trainer, size_t index)
{
    return cddpi_replicated_param_decays(cddpi_replicated_engine_of(trainer)->model, index);
}

static void ready_order(const struct cddpi_trainer *trainer, uint32_t *out)
{
    const uint32_t *order = cddpi_replicated_ready_order(
        cddpi_replicated_engine_of(trainer)->model);

    for (size_t i = 0; i < trainer->param_count; i++) {
        out[i] = order[i];
    }
}

static void add_memory(const struct cddpi_trainer *trainer, struct cddpi_held_memory *all)
{
    cddpi_replicated_add_memory(cddpi_replicated_engine_of(trainer)->model, all);
    for (size_t i = 0; i < trainer->param_count; i++) {
        cddpi_own_devices_add_param(trainer, i, 0, all);
    }
}

static void destroy(struct cddpi_trainer *trainer)
{
    struct cddpi_replicated_engine *replicated = cddpi_replicated_engine_of(trainer);

    if (replicated != NULL) {
        cddpi_replicated_destroy(replicated->model);
        cddp_devices_destroy(replicated->own.devices);
        cddpi_free(replicated);
    }
    trainer->engine_state = NULL;
}

const struct cddpi_engine cddpi_engine_replicated = {
    .fits = fits,
    .check = cddpi_replicated_engine_check,
    .check_batch = cddpi_single_check_batch,
    .describe = cddpi_replicated_engine_describe,
    .owns_devices = true,
    .replays = true,
    .join = cddpi_single_nothing,
    .build = cddpi_replicated_engine_build,
    .load_weights = cddpi_single_load_weights,
    .optimizer_made = cddpi_single_nothing,
    .complete = cddpi_single_nothing,
    .begin = cddpi_single_begin,
    .destroy = destroy,
    .bind_grads = bind_grads,
    .bind_params = bind_params,
    .param_decays = param_decays,
    .ready_order = ready_order,
    .compute = cddpi_single_compute,
    .forward = forward,
    .backward = backward,
    .update = cddpi_single_update,
    .square_sum = cddpi_single_square_sum,
    .update_finds_squares = true,
    .take_result = cddpi_single_take_result,
    .evaluate = cddpi_single_evaluate,
    .show_evaluation = cddpi_single_show_evaluation,
    .add_metrics = cddpi_single_add_metrics,
    .print_result = cddpi_single_print_result,
    .reader = cddpi_single_reader,
    .device_count = cddpi_own_devices_count,
    .name_device = cddpi_own_devices_name,
    .add_memory = add_memory,
    .list_tensors = cddpi_single_list_tensors,
    .prepare_save = cddpi_single_prepare_save,
    .end_save = cddpi_single_nothing,
    .load = cddpi_single_load,
    .scatter = cddpi_single_nothing,
};
