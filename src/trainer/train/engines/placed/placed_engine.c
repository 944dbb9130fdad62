/* placed_engine.c - owns the engine's row: checks, computes and updates a model in segments on each
 * rank's devices. */
#include "train/engines/placed/placed_engine.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/launcher_report.h"
#include "ddp/copies.h"
#include "train/batch_sizes.h"
#include "train/statistics.h"

#include <string.h>

static struct cddpi_placed *model_of(const struct cddpi_trainer *trainer)
{
    return cddpi_placed_engine_of(trainer)->model;
}

/* Check a run with one GPU whose optimizer is in host memory. */
static cddp_status check_offload(const struct cddpi_config *config)
{
    static const char key[] = "train.offload_optimizer";
    const struct cddpi_config_rule rules[] = {
        {config->train.device != CDDPI_TRAIN_ON_CUDA, key,
         "is for ranks with a GPU each: it needs train.device = \"cuda\""},
        {config->model.type == CDDPI_MODEL_DCGAN, key,
         "dcgan's two optimizers are on its device: leave this out"},
        {cddpi_config_has_sync(config), key,
         "leaves ranks no exchange of statistics of batch_norm (sync): leave this out"},
    };

    return cddpi_config_check_rules(config, rules, sizeof rules / sizeof *rules);
}

static cddp_status check(const struct cddpi_config *config, int world_size)
{
    if (config->parallel.type == CDDPI_PARALLEL_RANKS) {
        CDDPI_TRY(check_offload(config));
        CDDPI_TRY(cddpi_own_devices_check_generate(config));
        return cddpi_single_check(config, world_size);
    }
    CDDPI_TRY(cddpi_own_devices_check(config));
    if (config->parallel.placement[0] != '\0' && config->parallel.stages.count > 0) {
        return cddpi_config_fail(config, "parallel.placement",
                                 "parallel.stages say where layers are, too: give one of the two");
    }
    CDDPI_TRY(cddpi_trainer_check_pipeline_batches(config));
    if (config->parallel.micro_batches > 1 && cddpi_config_has_sync(config)) {
        return cddpi_config_fail(config, "parallel.micro_batches",
                                 "with several micro-batches at the same time, batch_norm cannot "
                                 "take statistics over all ranks (sync)");
    }
    return cddpi_own_devices_check_generate(config);
}

/* By position: a micro-batch's gradient is ready. */
static cddp_status part_ready(void *context, size_t index)
{
    struct cddpi_trainer *trainer = context;

    return cddpi_ddp_run_grad_ready(trainer->ddp, index);
}

static cddp_status forwarded(void *context, int index)
{
    struct cddpi_trainer *trainer = context;

    return cddpi_statistics_forwarded(trainer->step.statistics, index);
}

static cddp_status run_pipeline(struct cddpi_trainer *trainer, const struct cddpi_step_batches *all)
{
    bool separate = all->of > 0;
    struct cddpi_placed_work work = {.batches = all->batches,
                                     .scales = all->scales,
                                     .count = all->count,
                                     .separate = separate,
                                     .ready = separate ? part_ready : cddpi_trainer_grad_ready,
                                     .forwarded = separate ? forwarded : NULL,
                                     .context = trainer};

    CDDPI_TRY(cddpi_step_batches_begin(trainer, all));
    if (all->count == 0) { /* other ranks have the step's micro-batches */
        return CDDP_OK;
    }
    CDDPI_TRY(cddpi_placed_step(model_of(trainer), &work, all->results));
    return cddpi_step_batches_note(trainer, all);
}

/* Run a step with all its micro-batches in a pipeline, and average the gradients over ranks. */
static cddp_status compute_pipeline(struct cddpi_trainer *trainer, struct cddpi_train_step *step)
{
    struct cddpi_step_batches *all = &cddpi_placed_engine_of(trainer)->batches;
    struct cddpi_moment begun, ended;
    cddp_status status;

    cddpi_launcher_report_alive();
    CDDPI_TRY(cddpi_step_batches_fetch(trainer, step, 1, true, all));
    begun = cddpi_moment_now(trainer);
    status = run_pipeline(trainer, all);
    ended = cddpi_moment_now(trainer);
    trainer->records.interval.backward_ns += cddpi_moment_work_ns(&begun, &ended);
    CDDPI_TRY(status);
    return cddpi_step_batches_wait(trainer, all);
}

static bool fits(const struct cddpi_config *config)
{
    return config->parallel.type == CDDPI_PARALLEL_MODEL || config->train.offload_optimizer;
}

static cddp_status compute(struct cddpi_trainer *trainer, struct cddpi_train_step *step)
{
    return cddpi_placed_engine_of(trainer)->pipelined ? compute_pipeline(trainer, step)
                                                      : cddpi_single_compute(trainer, step);
}

static cddp_status forward(struct cddpi_trainer *trainer, const struct cddpi_batch *batch,
                           bool training, struct cddpi_loss_result *out)
{
    return cddpi_placed_forward(model_of(trainer), batch, training, out);
}

static cddp_status backward(struct cddpi_trainer *trainer, double scale, bool accumulate,
                            cddpi_grad_ready_fn ready, void *context, struct cddpi_loss_result *out)
{
    CDDPI_TRY(cddpi_placed_backward(model_of(trainer), scale, accumulate, ready, context));
    return cddpi_own_devices_add_late(trainer, cddpi_placed_late(model_of(trainer)), out);
}

static void bind_grads(struct cddpi_trainer *trainer)
{
    cddpi_placed_bind_grads(model_of(trainer), trainer->step.grads);
}

/* Parameters are in host memory, and have no 16-bit copies there. */
static void bind_params(struct cddpi_trainer *trainer, void *const *data, void *const *copies)
{
    (void)copies;
    cddpi_placed_bind_params(model_of(trainer), data);
    cddpi_placed_on_param(model_of(trainer), cddpi_own_devices_param_wait, trainer->ddp);
}

static bool param_decays(const struct cddpi_trainer *trainer, size_t index)
{
    return cddpi_placed_param_decays(model_of(trainer), index);
}

static void ready_order(const struct cddpi_trainer *trainer, size_t *out)
{
    memcpy(out, cddpi_placed_ready_order(model_of(trainer)), trainer->params.count * sizeof *out);
}

static void add_memory(const struct cddpi_trainer *trainer, struct cddpi_held_memory *all)
{
    cddpi_placed_add_memory(model_of(trainer), all);
    for (size_t i = 0; i < trainer->params.count; i++) {
        cddpi_own_devices_add_param(trainer, i, cddpi_placed_param_device(model_of(trainer), i),
                                    all);
    }
}

static void destroy(struct cddpi_trainer *trainer)
{
    struct cddpi_placed_engine *placed = cddpi_placed_engine_of(trainer);

    if (placed != NULL) {
        cddpi_step_batches_fini(&placed->batches);
        cddpi_placed_destroy(placed->model);
        cddp_devices_destroy(placed->own.devices);
        cddpi_free(placed);
    }
    trainer->engine_state = NULL;
}

const struct cddpi_engine cddpi_engine_placed = {
    CDDPI_OWN_DEVICES_ROW,
    .fits = fits,
    .check = check,
    .describe = cddpi_placed_engine_describe,
    .build = cddpi_placed_engine_build,
    .destroy = destroy,
    .bind_grads = bind_grads,
    .bind_params = bind_params,
    .param_decays = param_decays,
    .ready_order = ready_order,
    .compute = compute,
    .forward = forward,
    .backward = backward,
    .add_memory = add_memory,
};
