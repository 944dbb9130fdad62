/* setup.c - puts a trainer together from its configuration, and takes it apart. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "group/device.h"
#include "nn/weights.h"
#include "train/device_step.h"
#include "train/step_graphs.h"
#include "train/trainer.h"

#include <errno.h>
#include <string.h>

int64_t cddpi_trainer_micro_batch(const struct cddpi_config *config, int world_size)
{
    int64_t share = (config->train.batch_size + world_size - 1) / world_size;

    return (share + config->train.accumulate - 1) / config->train.accumulate;
}

static cddp_status check_batch(const struct cddpi_config *config, int world_size)
{
    int64_t share = config->train.batch_size / world_size;

    if (share < 1) {
        return cddpi_config_fail(config, "train.batch_size",
                                 "%lld samples cannot be divided among a world size of %d: each "
                                 "rank needs at least one",
                                 (long long)config->train.batch_size, world_size);
    }
    if (config->train.accumulate > share) {
        return cddpi_config_fail(
            config, "train.accumulate",
            "a rank's share of train.batch_size = %lld is %lld in a world size of %d, which cannot "
            "be cut into %lld micro-batches: accumulate at most %lld, or let the batch have at "
            "least %lld samples",
            (long long)config->train.batch_size, (long long)share, world_size,
            (long long)config->train.accumulate, (long long)share,
            (long long)config->train.accumulate * world_size);
    }
    return CDDP_OK;
}

cddp_status cddpi_trainer_validate(const struct cddpi_config *config, int world_size)
{
    cddp_status status = check_batch(config, world_size);

    return status == CDDP_OK ? cddpi_trainer_check_files(config) : status;
}

cddp_status cddpi_trainer_join(struct cddpi_trainer *trainer, cddp_group_options *options)
{
    static const char *const devices[] = {NULL, "cpu", "cuda"}; /* NULL: as $CDDP_DEVICE says */
    cddp_status status;

    options->device = devices[trainer->config->train.device];
    options->deterministic = trainer->config->ddp.deterministic;
    status = cddp_group_create(options, &trainer->group);
    if (status != CDDP_OK) {
        return status;
    }
    trainer->device = cddpi_group_on_device(trainer->group);
    if (trainer->device == NULL) {
        trainer->device = cddpi_device_cpu();
    }
    trainer->rank = cddp_group_rank(trainer->group);
    trainer->world_size = cddp_group_world_size(trainer->group);
    return CDDP_OK;
}

static cddp_status join_group(struct cddpi_trainer *trainer)
{
    const struct cddpi_config *config = trainer->config;
    cddp_group_options options = CDDP_GROUP_OPTIONS_INIT;
    cddp_status status;

    options.timeout_ms = (uint32_t)(config->train.timeout * 1000.0);
    if (options.timeout_ms == 0 && config->train.timeout > 0.0) {
        options.timeout_ms = 1;
    }
    status = cddpi_trainer_join(trainer, &options);
    if (status != CDDP_OK) {
        return status;
    }
    cddpi_progress_init(&trainer->progress, trainer->rank != 0);
    return check_batch(config, trainer->world_size);
}

static cddp_status open_data(struct cddpi_trainer *trainer)
{
    return cddpi_trainer_open_data(trainer->config, trainer->group, &trainer->train_data,
                                   &trainer->test_data);
}

struct cddpi_model_spec cddpi_trainer_model_spec(const struct cddpi_config *config,
                                                 const struct cddpi_dataset *data)
{
    static const char *const presets[] = {"mlp", "cnn", "resnet20", "resnet50", "gpt2", NULL};
    bool tokens = data->kind == CDDPI_DATASET_TOKENS;

    return (struct cddpi_model_spec){
        .preset = presets[config->model.type],
        .hidden = config->model.hidden.values,
        .hidden_count = config->model.hidden.count,
        .dropout = config->model.dropout,
        .sync_batch_norm = config->model.sync_batch_norm,
        .layers = config->model.layers.values,
        .layer_count = (size_t)config->model.layers.count,
        .loss = (enum cddpi_loss)config->model.loss,
        .channels = data->channels,
        .height = data->height,
        .width = data->width,
        .classes = data->classes,
        .context = tokens ? data->context : 0,
        .vocab = tokens ? data->classes : 0,
        .precision = (enum cddpi_precision)config->train.precision,
        .products = (enum cddpi_products)config->train.products,
        .size = config->model.size,
        .blocks = config->model.blocks,
        .heads = config->model.heads,
        .embed = config->model.embed,
        .recompute = config->model.recompute,
        .any_order = !config->ddp.deterministic,
    };
}

/* What model.weights names: cddp's own file, or for a gpt2 also those of others. */
static cddp_status load_weights(struct cddpi_trainer *trainer)
{
    const char *path = trainer->config->model.weights;
    size_t count = trainer->param_count + trainer->buffer_count;
    cddp_status status = cddpi_trainer_fetch(trainer);
    cddp_tensor *tensors = status == CDDP_OK ? cddpi_trainer_model_tensors(trainer) : NULL;

    if (status != CDDP_OK) {
        return status;
    }
    if (tensors == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "model: no memory");
    }
    if (trainer->heads > 0) {
        status = cddpi_weights_load(path, trainer->heads, tensors, count);
    } else {
        status = cddp_safetensors_load(path, tensors, count);
    }
    cddpi_free(tensors);
    return status == CDDP_OK ? cddpi_trainer_send(trainer)
                             : cddpi_fail_prefix(status, "model.weights");
}

cddp_status cddpi_trainer_build_model(struct cddpi_trainer *trainer)
{
    const struct cddpi_config *config = trainer->config;
    struct cddpi_model_spec spec = cddpi_trainer_model_spec(config, &trainer->train_data);
    cddp_status status = cddpi_model_spec_complete(&spec);

    spec.device = cddpi_is_cuda(trainer->device) ? trainer->device : NULL;
    if (status == CDDP_OK) {
        status = cddpi_model_create(&spec, (uint64_t)config->train.seed, trainer->group,
                                    &trainer->model);
    }
    if (status != CDDP_OK) {
        return status == CDDP_ERR_CONFIG ? cddpi_fail_prefix(status, "%s", config->path) : status;
    }
    trainer->predictions = cddpi_trainer_is_text(trainer) ? trainer->train_data.context : 1;
    if (trainer->rank == 0 && cddpi_model_precision_note(trainer->model) != NULL) {
        cddpi_trainer_warn(trainer, "train.precision: %s",
                           cddpi_model_precision_note(trainer->model));
    }
    trainer->params = cddpi_model_params(trainer->model, &trainer->param_count);
    trainer->buffers = cddpi_model_buffers(trainer->model, &trainer->buffer_count);
    trainer->heads = config->model.type == CDDPI_MODEL_GPT2 ? spec.heads : 0;
    if (config->model.weights[0] == '\0' || trainer->rank != 0) {
        return CDDP_OK; /* the other ranks get rank 0's by the reducer's broadcast */
    }
    return load_weights(trainer);
}

cddp_ddp_options cddpi_trainer_ddp_options(const struct cddpi_config *config,
                                           const struct cddpi_model *model, const char *text)
{
    static const cddp_hook_fn hooks[] = {NULL, cddp_hook_bf16, cddp_hook_fp16};
    cddp_ddp_options options = CDDP_DDP_OPTIONS_INIT;

    options.first_bucket_bytes = (size_t)config->ddp.first_bucket_bytes;
    options.bucket_bytes = (size_t)config->ddp.bucket_bytes;
    options.ready_order = cddpi_model_ready_order(model);
    options.allow_unused = config->ddp.allow_unused;
    options.hook = hooks[config->ddp.wire];
    options.shard = config->ddp.shard_optimizer;
    options.reduce_late = config->ddp.shard_optimizer && config->train.clip_norm == 0;
    options.config = text;
    return options;
}

static cddp_status param_wait(void *context, size_t index)
{
    return cddp_ddp_param_wait(((struct cddpi_trainer *)context)->ddp, index);
}

/* Where the reducer has put the parameters, so that ranks can update parts of them. */
static cddp_status bind_params(struct cddpi_trainer *trainer)
{
    void **data = cddpi_zalloc_array(trainer->param_count, sizeof *data);

    if (data == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "ddp: no memory");
    }
    for (size_t i = 0; i < trainer->param_count; i++) {
        data[i] = cddp_ddp_param(trainer->ddp, i);
    }
    cddpi_model_bind_params(trainer->model, data);
    cddpi_model_on_param(trainer->model, param_wait, trainer);
    cddpi_free(data);
    return CDDP_OK;
}

static cddp_status build_ddp(struct cddpi_trainer *trainer)
{
    char *text = cddpi_config_text(trainer->config, true);
    cddp_ddp_options options = cddpi_trainer_ddp_options(trainer->config, trainer->model, text);
    cddp_status status;

    trainer->grads = cddpi_zalloc_array(trainer->param_count, sizeof *trainer->grads);
    if (text == NULL || trainer->grads == NULL) {
        cddpi_free(text);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "ddp: no memory");
    }
    status = cddp_ddp_create(trainer->group, trainer->params, trainer->param_count,
                             trainer->buffers, trainer->buffer_count, &options, &trainer->ddp);
    cddpi_free(text);
    if (status != CDDP_OK) {
        return status;
    }
    for (size_t i = 0; i < trainer->param_count; i++) {
        trainer->grads[i] = cddp_ddp_grad(trainer->ddp, i);
    }
    cddpi_model_bind_grads(trainer->model, trainer->grads);
    return trainer->config->ddp.shard_optimizer ? bind_params(trainer) : CDDP_OK;
}

static cddp_status build_optimizer(struct cddpi_trainer *trainer)
{
    const struct cddpi_config *config = trainer->config;
    struct cddpi_optim_spec spec = {
        .type = (enum cddpi_optim_type)config->optimizer.type,
        .momentum = config->optimizer.momentum,
        .nesterov = config->optimizer.nesterov,
        .weight_decay = config->optimizer.weight_decay,
        .decay_all = config->optimizer.decay_all,
        .beta1 = config->optimizer.beta1,
        .beta2 = config->optimizer.beta2,
        .epsilon = config->optimizer.epsilon,
    };
    bool *decays = cddpi_zalloc_array(trainer->param_count, sizeof *decays);
    cddp_status status;

    if (decays == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "optimizer: no memory");
    }
    for (size_t i = 0; i < trainer->param_count; i++) {
        decays[i] = cddpi_model_param_decays(trainer->model, i);
    }
    status = cddpi_optim_create_sharded(&spec, trainer->params, decays, trainer->param_count,
                                        config->ddp.shard_optimizer ? trainer->group : NULL,
                                        trainer->ddp, &trainer->optim);
    cddpi_free(decays);
    return status;
}

cddp_status cddpi_trainer_build_device(struct cddpi_trainer *trainer)
{
    bool scales = trainer->config->train.precision == CDDPI_PRECISION_FP16;
    cddp_status status;

    cddpi_loss_scale_init(&trainer->loss_scale);
    if (!cddpi_is_cuda(trainer->device)) {
        return cddpi_step_graphs_create(trainer, &trainer->graphs);
    }
    status = cddpi_optim_to_device(trainer->optim, trainer->device,
                                   cddp_group_timeout_ms(trainer->group));
    if (status == CDDP_OK) {
        status = cddpi_device_step_create(trainer, scales, &trainer->device_step);
    }
    if (status == CDDP_OK) {
        cddpi_model_bind_loss_scale(trainer->model,
                                    cddpi_device_step_loss_scale(trainer->device_step));
    }
    return status == CDDP_OK ? cddpi_step_graphs_create(trainer, &trainer->graphs) : status;
}

uint64_t cddpi_trainer_steps_left(const struct cddpi_config *config, uint64_t samples,
                                  const struct cddpi_cursor *cursor)
{
    uint64_t batch = (uint64_t)config->train.batch_size;
    uint64_t epochs = (uint64_t)config->train.epochs;
    uint64_t rest;

    if (cursor->epoch >= epochs) {
        return 0;
    }
    rest = samples - cursor->position;
    return (rest + batch - 1) / batch +
           (epochs - cursor->epoch - 1) * ((samples + batch - 1) / batch);
}

static void plan_steps(struct cddpi_trainer *trainer)
{
    const struct cddpi_config *config = trainer->config;
    uint64_t total = trainer->at.step +
                     cddpi_trainer_steps_left(config, trainer->train_data.count, &trainer->at);
    uint64_t most = (uint64_t)config->train.max_steps;
    int64_t of_schedule = config->optimizer.schedule.total_steps;

    trainer->schedule = (struct cddpi_schedule){
        .type = (enum cddpi_schedule_type)config->optimizer.schedule.type,
        .lr = config->optimizer.lr,
        .final_lr = config->optimizer.schedule.final_lr,
        .warmup_steps = config->optimizer.schedule.warmup_steps,
        .total_steps = of_schedule > 0 ? of_schedule : (int64_t)total,
        .step_size = config->optimizer.schedule.step_size,
        .gamma = config->optimizer.schedule.gamma,
        .decay_steps = config->optimizer.schedule.decay_steps,
        .decay = (enum cddpi_schedule_decay)config->optimizer.schedule.decay,
    };
    trainer->last_step = most > 0 && most < total ? most : total;
    trainer->first_step = trainer->at.step;
}

static cddp_status open_sample_log(struct cddpi_trainer *trainer)
{
    const char *base = trainer->config->train.sample_log;
    size_t most = (size_t)(trainer->config->train.batch_size / trainer->world_size) + 1;
    char *path;
    cddp_status status = CDDP_OK;

    if (base[0] == '\0') {
        return CDDP_OK;
    }
    path = cddpi_format("%s.%d", base, trainer->rank);
    trainer->taken = cddpi_zalloc_array(most, sizeof *trainer->taken);
    if (path == NULL || trainer->taken == NULL) {
        cddpi_free(path);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "train.sample_log: no memory");
    }
    trainer->sample_log = fopen(path, "ae");
    if (trainer->sample_log == NULL) {
        status = cddpi_fail_errno(CDDP_ERR_IO, errno, "train.sample_log: %s", path);
    }
    cddpi_free(path);
    return status;
}

static cddp_status open_records(struct cddpi_trainer *trainer)
{
    const struct cddpi_config *config = trainer->config;

    if (trainer->rank != 0) {
        return CDDP_OK;
    }
    return cddpi_metrics_open(config->train.run_dir, trainer->at.step, config->train.tensorboard,
                              &trainer->metrics);
}

cddp_status cddpi_trainer_create(const struct cddpi_config *config, struct cddpi_trainer **out)
{
    /* in this order: what is collective comes in the same order on every rank */
    static cddp_status (*const parts[])(struct cddpi_trainer *) = {join_group,
                                                                   open_data,
                                                                   cddpi_trainer_build_model,
                                                                   cddpi_trainer_prepare_text,
                                                                   build_ddp,
                                                                   build_optimizer,
                                                                   cddpi_trainer_build_device,
                                                                   cddpi_trainer_find_peak,
                                                                   cddpi_trainer_build_data,
                                                                   cddpi_trainer_resume,
                                                                   open_sample_log,
                                                                   open_records};
    struct cddpi_trainer *trainer = cddpi_zalloc(sizeof *trainer);
    cddp_status status = CDDP_OK;

    *out = trainer;
    if (trainer == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "trainer: no memory");
    }
    trainer->config = config;
    trainer->saved_step = ~(uint64_t)0;
    trainer->evaluated_step = ~(uint64_t)0;
    trainer->began_ns = cddpi_now_ns();
    trainer->saved_ns = trainer->began_ns;
    trainer->checkpoints = cddpi_format("%s/checkpoints", config->train.run_dir);
    if (trainer->checkpoints == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "trainer: no memory");
    }
    for (size_t i = 0; status == CDDP_OK && i < sizeof parts / sizeof parts[0]; i++) {
        status = parts[i](trainer);
    }
    if (status != CDDP_OK) {
        return status;
    }
    plan_steps(trainer);
    return CDDP_OK;
}

void cddpi_trainer_destroy(struct cddpi_trainer *trainer)
{
    if (trainer == NULL) {
        return;
    }
    if (trainer->sample_log != NULL) {
        fclose(trainer->sample_log);
    }
    cddpi_free(trainer->taken);
    cddpi_metrics_close(trainer->metrics);
    cddpi_tokenizer_close(trainer->tokenizer);
    cddpi_feed_destroy(trainer->test_feed);
    cddpi_feed_destroy(trainer->feed);
    cddpi_loader_destroy(trainer->test_loader);
    cddpi_loader_destroy(trainer->loader);
    cddp_sampler_destroy(trainer->test_sampler);
    cddp_sampler_destroy(trainer->sampler);
    cddpi_step_graphs_destroy(trainer->graphs);
    cddpi_device_step_destroy(trainer->device_step);
    cddpi_trainer_drop_mirror(trainer);
    cddpi_optim_destroy(trainer->optim);
    cddp_work_destroy(trainer->agreeing);
    cddp_ddp_destroy(trainer->ddp);
    cddpi_free(trainer->grads);
    cddpi_model_destroy(trainer->model);
    cddpi_dataset_close(&trainer->test_data);
    cddpi_dataset_close(&trainer->train_data);
    cddpi_free(trainer->checkpoints);
    cddp_group_destroy(trainer->group);
    if (trainer->run_dir_held != NULL) {
        closedir(trainer->run_dir_held);
    }
    cddpi_free(trainer);
}
