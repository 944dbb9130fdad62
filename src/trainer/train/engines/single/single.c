/* single.c - owns the engine for a whole model on one device per rank: its row, checks, building
 * and computing, its files, and its reports. Other engines use most of these functions. */
#include "train/engines/single/single.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/streams.h"
#include "nn/weights/weights.h"
#include "parallel/pipeline/pipeline_schedule.h"
#include "train/batch_sizes.h"
#include "train/checkpoint.h"
#include "train/device/host_copy.h"
#include "train/telemetry/train_report.h"

#include <math.h>

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
    const char *text = "is for pipelines, but parallel.pipeline is 1: raise it, or leave this out";
    const struct cddpi_config_rule rules[] = {
        {config->parallel.micro_batches > 1, "parallel.micro_batches",
         "is for pipelines (parallel.pipeline); without one, train.accumulate makes micro-batches"},
        {config->parallel.schedule != CDDPI_PIPELINE_1F1B, "parallel.schedule", text},
        {config->parallel.chunks > 1, "parallel.chunks", text},
        {config->parallel.stages.count > 0, "parallel.stages", text},
        {config->parallel.balance != 0, "parallel.balance", text},
        {config->parallel.memory_bytes > 0, "parallel.memory_bytes", text},
        {config->parallel.recompute.count > 0, "parallel.recompute", text},
    };

    (void)world_size;
    CDDPI_TRY(cddpi_single_check_stage_names(config));
    return cddpi_config_check_rules(config, rules, sizeof rules / sizeof *rules);
}

cddp_status cddpi_single_check_batch(const struct cddpi_config *config, int replicas)
{
    return cddpi_trainer_check_batch(config, replicas, "a world size");
}

cddp_status cddpi_single_create_model(struct cddpi_trainer *trainer,
                                      const struct cddpi_model_spec *spec)
{
    CDDPI_TRY(cddpi_model_create(spec, (uint64_t)trainer->config->train.seed, trainer->group,
                                 &trainer->model));
    trainer->models.list[0] = (struct cddpi_trainer_model){trainer->model, 0, trainer};
    trainer->models.count = 1;
    trainer->params.list = cddpi_model_params(trainer->model, &trainer->params.count);
    trainer->buffers.list = cddpi_model_buffers(trainer->model, &trainer->buffers.count);
    return CDDP_OK;
}

static cddp_status build(struct cddpi_trainer *trainer, const struct cddpi_model_spec *spec)
{
    return cddpi_config_name_file(trainer->config, cddpi_single_create_model(trainer, spec));
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

cddp_status cddpi_single_add_parts(struct cddpi_trainer *trainer, cddp_group *group,
                                   struct cddpi_exact_sum *sum)
{
    int64_t begun_ns = cddpi_now_ns();
    cddp_status status = cddpi_interval_add_ranks(group, sum);

    trainer->records.interval.norm_ns += cddpi_now_ns() - begun_ns;
    return status;
}

cddp_status cddpi_single_square_sum(struct cddpi_trainer *trainer,
                                    const struct cddpi_exact_sum *known, double *out)
{
    struct cddpi_exact_sum sum = {{0}};

    if (known != NULL) {
        sum = *known;
    } else {
        cddpi_optim_add_squares(trainer->step.optim, trainer->step.grads, &sum);
    }
    if (trainer->config->ddp.shard_optimizer) {
        CDDPI_TRY(cddpi_single_add_parts(trainer, trainer->group, &sum));
    }
    *out = cddpi_exact_value(&sum);
    return CDDP_OK;
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

void cddpi_single_bind_grads(struct cddpi_trainer *trainer)
{
    for (int m = 0; m < trainer->models.count; m++) {
        cddpi_model_bind_grads(trainer->models.list[m].model,
                               trainer->step.grads + trainer->models.list[m].first);
    }
}

static cddp_status param_wait(void *context, size_t index)
{
    const struct cddpi_trainer_model *own = context;

    return cddp_ddp_param_wait(own->trainer->ddp, own->first + index);
}

void cddpi_single_bind_params(struct cddpi_trainer *trainer, void *const *data, void *const *copies)
{
    for (int m = 0; m < trainer->models.count; m++) {
        struct cddpi_trainer_model *own = &trainer->models.list[m];

        cddpi_model_bind_params(own->model, data + own->first);
        cddpi_model_bind_copies(own->model, copies + own->first);
        cddpi_model_on_param(own->model, param_wait, own);
    }
}

bool cddpi_single_param_decays(const struct cddpi_trainer *trainer, size_t index)
{
    int m = trainer->models.count - 1;

    while (trainer->models.list[m].first > index) {
        m--;
    }
    return cddpi_model_param_decays(trainer->models.list[m].model,
                                    index - trainer->models.list[m].first);
}

/* The last model's parameters come first. */
void cddpi_single_ready_order(const struct cddpi_trainer *trainer, size_t *out)
{
    for (int m = trainer->models.count - 1; m >= 0; m--) {
        const struct cddpi_trainer_model *own = &trainer->models.list[m];
        const size_t *inside = cddpi_model_ready_order(own->model);
        size_t count;

        cddpi_model_params(own->model, &count);
        for (size_t i = 0; i < count; i++) {
            *out++ = own->first + inside[i];
        }
    }
}

/* Read cddp's own file, or, for gpt2, a file of other programs. */
static cddp_status read_weights(const struct cddpi_trainer *trainer)
{
    const char *path = trainer->config->model.weights;
    size_t count = cddpi_trainer_model_tensor_count(trainer);
    cddp_param *tensors = cddpi_trainer_model_tensors(trainer);
    cddp_status status;

    CDDPI_TRY_MEMORY(tensors != NULL, "model: no memory");
    status = trainer->models.heads > 0
                 ? cddpi_weights_load(path, trainer->models.heads, tensors, count)
                 : cddp_safetensors_load(path, tensors, count);
    cddpi_free(tensors);
    return status == CDDP_OK ? CDDP_OK : cddpi_fail_prefix(status, "model.weights");
}

cddp_status cddpi_single_load_weights(struct cddpi_trainer *trainer)
{
    if (trainer->rank != 0) {
        return CDDP_OK;
    }
    CDDPI_TRY(cddpi_trainer_copy_to_host(trainer));
    CDDPI_TRY(read_weights(trainer));
    return cddpi_trainer_copy_to_device(trainer);
}

cddp_status cddpi_single_list_tensors(struct cddpi_trainer *trainer,
                                      struct cddpi_snapshot_params *out)
{
    size_t count = 0;
    const cddp_param *tensors = cddpi_optim_tensors(trainer->step.optim, &count);
    cddp_status status;

    *out = (struct cddpi_snapshot_params){.model = NULL};
    out->model = cddpi_trainer_model_tensors(trainer);
    out->model_count = cddpi_trainer_model_tensor_count(trainer);
    CDDPI_TRY_MEMORY(out->model != NULL, "checkpoint: no memory");
    CDDPI_TRY_GOTO(fail, status, cddpi_checkpoint_add_optimizer(out, tensors, count));
    if (cddpi_checkpoint_has_scale(trainer)) {
        tensors = cddpi_loss_scale_tensors(&trainer->step.loss_scale, &count);
        CDDPI_TRY_GOTO(fail, status, cddpi_checkpoint_add_optimizer(out, tensors, count));
    }
    return CDDP_OK;

fail:
    cddpi_checkpoint_release(out);
    return status;
}

cddp_status cddpi_single_load(struct cddpi_trainer *trainer, const char *path)
{
    struct cddpi_snapshot_params into;
    cddp_status status;

    CDDPI_TRY(trainer->engine->list_tensors(trainer, &into));
    status = cddp_snapshot_load(path, into.model, into.model_count, into.optimizer,
                                into.optimizer_count);
    cddpi_checkpoint_release(&into);
    return status;
}

cddp_status cddpi_single_show_evaluation(struct cddpi_trainer *trainer, uint64_t epoch)
{
    const struct cddpi_evaluation *found = &trainer->evaluation;
    unsigned long long step = trainer->cursor.step;
    long long epochs = trainer->config->train.epochs;

    if (cddpi_trainer_is_text(trainer)) {
        cddpi_progress_line(&trainer->records.progress,
                            "epoch %llu/%lld  step %llu/%llu  val loss %.4f  perplexity %.4g",
                            (unsigned long long)epoch, epochs, step,
                            (unsigned long long)trainer->plan.last_step, found->loss,
                            exp(found->loss));
    } else if (found->error_name != NULL) {
        cddpi_progress_line(
            &trainer->records.progress, "epoch %llu/%lld  step %llu  test loss %.4g  test %s %.4g",
            (unsigned long long)epoch, epochs, step, found->loss, found->error_name, found->error);
    } else {
        cddpi_progress_line(&trainer->records.progress,
                            "epoch %llu/%lld  step %llu  test loss %.4f  test accuracy %.2f %%",
                            (unsigned long long)epoch, epochs, step, found->loss,
                            found->accuracy * 100);
    }
    return CDDP_OK;
}

void cddpi_single_print_result(const struct cddpi_trainer *trainer, FILE *file)
{
    const struct cddpi_evaluation *found = &trainer->evaluation;
    unsigned long long step = trainer->cursor.step;

    if (cddpi_trainer_is_text(trainer)) {
        cddpi_say(file, "validation loss %.4f, perplexity %.4g after %llu steps; results: %s\n",
                  found->loss, exp(found->loss), step, cddpi_trainer_run_dir(trainer));
    } else if (found->error_name != NULL) {
        cddpi_say(file, "test loss %.4g, %s %.4g after %llu steps; results: %s\n", found->loss,
                  found->error_name, found->error, step, cddpi_trainer_run_dir(trainer));
    } else {
        cddpi_say(file, "test accuracy %.2f %% after %llu steps; results: %s\n",
                  found->accuracy * 100, step, cddpi_trainer_run_dir(trainer));
    }
}

struct cddpi_model *cddpi_single_reader(const struct cddpi_trainer *trainer)
{
    return trainer->model;
}

int cddpi_single_device_count(const struct cddpi_trainer *trainer)
{
    (void)trainer;
    return 1;
}

void cddpi_single_name_device(const struct cddpi_trainer *trainer, int device, char *out,
                              size_t bytes)
{
    (void)device;
    snprintf(out, bytes, "%s", cddpi_device_is_async(trainer->device) ? "cuda" : "cpu");
}

void cddpi_single_add_memory(const struct cddpi_trainer *trainer, struct cddpi_held_memory *all)
{
    for (int m = 0; m < trainer->models.count; m++) {
        cddpi_held_memory_add_model(all, trainer->models.list[m].model);
    }
    for (size_t i = 0; i < trainer->params.count; i++) {
        cddpi_trainer_add_param_memory(trainer, i, all);
    }
}

const struct cddpi_engine cddpi_engine_single = {
    .check = cddpi_single_check,
    .check_batch = cddpi_single_check_batch,
    .replays = true,
    .has_one_model = true,
    .build = build,
    .load_weights = cddpi_single_load_weights,
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
    .print_result = cddpi_single_print_result,
    .reader = cddpi_single_reader,
    .device_count = cddpi_single_device_count,
    .name_device = cddpi_single_name_device,
    .add_memory = cddpi_single_add_memory,
    .list_tensors = cddpi_single_list_tensors,
    .load = cddpi_single_load,
};
