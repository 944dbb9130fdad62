/* single.c - owns the engine's row for a whole model on one device per rank, and its checks,
 * building and computing. */
#include "train/engines/single/single.h"

#include "base/error.h"
#include "parallel/pipeline/pipeline_schedule.h"
#include "train/batch_sizes.h"
#include "train/update.h"

static bool fits(const struct cddpi_config *config)
{
    (void)config;
    return true;
}

cddp_status cddpi_single_check_stage_names(const struct cddpi_config *config)
{
    return !config->parallel.stages.pairs
               ? CDDP_OK
               : cddpi_config_fail(config, "parallel.stages",
                                   "stages over ranks are given by the first layer of each but "
                                   "the first, as [\"layer3\"]; first and last layers are for "
                                   "parallel.type = \"model_parallel\"");
}

/* Refuse keys that only a pipeline reads. The check looks at values, not at whether a key was
 * given: a run writes all keys to its train.conf, which must load again. */
cddp_status cddpi_single_check(const struct cddpi_config *config, int world_size)
{
    const char *key = config->parallel.schedule != CDDPI_PIPELINE_1F1B ? "parallel.schedule"
                      : config->parallel.chunks > 1                    ? "parallel.chunks"
                      : config->parallel.stages.count > 0              ? "parallel.stages"
                      : config->parallel.balance != 0                  ? "parallel.balance"
                      : config->parallel.memory_bytes > 0              ? "parallel.memory_bytes"
                      : config->parallel.recompute.count > 0           ? "parallel.recompute"
                                                                       : NULL;

    (void)world_size;
    CDDPI_TRY(cddpi_single_check_stage_names(config));
    if (config->parallel.micro_batches > 1) {
        return cddpi_config_fail(config, "parallel.micro_batches",
                                 "is for pipelines (parallel.pipeline); without one, "
                                 "train.accumulate makes micro-batches");
    }
    return key == NULL ? CDDP_OK
                       : cddpi_config_fail(config, key,
                                           "is for pipelines, but parallel.pipeline is 1: raise "
                                           "it, or leave this out");
}

cddp_status cddpi_single_check_batch(const struct cddpi_config *config, int replicas)
{
    return cddpi_trainer_check_batch(config, replicas, "a world size");
}

cddp_status cddpi_single_describe(const struct cddpi_config *config,
                                  const struct cddpi_model_spec *spec, int samples, FILE *file)
{
    (void)config;
    (void)spec;
    (void)samples;
    (void)file;
    return CDDP_OK;
}

cddp_status cddpi_single_nothing(struct cddpi_trainer *trainer)
{
    (void)trainer;
    return CDDP_OK;
}

void cddpi_single_begin(struct cddpi_trainer *trainer)
{
    (void)trainer;
}

cddp_status cddpi_single_create_model(struct cddpi_trainer *trainer,
                                      const struct cddpi_model_spec *spec)
{
    CDDPI_TRY(cddpi_model_create(spec, (uint64_t)trainer->config->train.seed, trainer->group,
                                 &trainer->model));
    trainer->models[0] = (struct cddpi_trainer_model){trainer->model, 0, trainer};
    trainer->model_count = 1;
    trainer->params = cddpi_model_params(trainer->model, &trainer->param_count);
    trainer->buffers = cddpi_model_buffers(trainer->model, &trainer->buffer_count);
    return CDDP_OK;
}

static cddp_status build(struct cddpi_trainer *trainer, const struct cddpi_model_spec *spec)
{
    return cddpi_trainer_name_config(trainer, cddpi_single_create_model(trainer, spec));
}

static void destroy(struct cddpi_trainer *trainer)
{
    cddpi_model_destroy(trainer->model);
}

cddp_status cddpi_single_compute(struct cddpi_trainer *trainer, struct cddpi_train_step *step)
{
    return cddpi_trainer_each_micro_batch(trainer, step, cddpi_trainer_compute_micro_batch);
}

static cddp_status forward(struct cddpi_trainer *trainer, const struct cddpi_batch *batch,
                           bool training, struct cddpi_loss_result *out)
{
    return cddpi_model_forward(trainer->model, batch, training, out);
}

static cddp_status backward(struct cddpi_trainer *trainer, double scale, bool accumulate,
                            cddpi_grad_ready_fn ready, void *context, struct cddpi_loss_result *out)
{
    (void)out; /* forward has returned all of it */
    return cddpi_model_backward(trainer->model, scale, accumulate, ready, context);
}

cddp_status cddpi_single_update(struct cddpi_trainer *trainer, const struct cddpi_train_step *step,
                                double *out_norm)
{
    return cddpi_trainer_update(trainer, step, true, out_norm);
}

cddp_status cddpi_single_square_sum(struct cddpi_trainer *trainer, const double *known, double *out)
{
    *out = known != NULL ? *known : cddpi_optim_square_sum(trainer->optim, trainer->grads);
    return trainer->config->ddp.shard_optimizer
               ? cddp_all_reduce(trainer->group, out, out, 1, CDDP_F64, CDDP_OP_SUM, NULL)
               : CDDP_OK;
}

cddp_status cddpi_single_take_result(struct cddpi_trainer *trainer, uint64_t step,
                                     struct cddpi_loss_result *out)
{
    (void)step;
    return cddpi_model_result(trainer->model, out);
}

cddp_status cddpi_single_evaluate(struct cddpi_trainer *trainer, const struct cddpi_batch *batch,
                                  struct cddpi_loss_result *out)
{
    return trainer->engine->forward(trainer, batch, false, out);
}

const struct cddpi_engine cddpi_engine_single = {
    .fits = fits,
    .check = cddpi_single_check,
    .check_batch = cddpi_single_check_batch,
    .describe = cddpi_single_describe,
    .replays = true,
    .join = cddpi_single_nothing,
    .build = build,
    .load_weights = cddpi_single_load_weights,
    .optimizer_made = cddpi_single_nothing,
    .complete = cddpi_single_nothing,
    .begin = cddpi_single_begin,
    .destroy = destroy,
    .bind_grads = cddpi_single_bind_grads,
    .bind_params = cddpi_single_bind_params,
    .param_decays = cddpi_single_param_decays,
    .ready_order = cddpi_single_ready_order,
    .remakes_shards = true,
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
    .device_count = cddpi_single_device_count,
    .name_device = cddpi_single_name_device,
    .add_memory = cddpi_single_add_memory,
    .list_tensors = cddpi_single_list_tensors,
    .prepare_save = cddpi_single_prepare_save,
    .end_save = cddpi_single_nothing,
    .load = cddpi_single_load,
    .scatter = cddpi_single_nothing,
};
