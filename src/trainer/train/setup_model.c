/* setup_model.c - builds a trainer's model, reducer and optimizer from the configuration. */
#include "train/setup_model.h"

#include "base/alloc.h"
#include "base/error.h"
#include "ddp/copies.h"
#include "nn/weights/weights.h"
#include "train/config/config_write.h"
#include "train/device/device_step.h"
#include "train/device/step_graphs.h"
#include "train/engines/engine.h"

#include <stdio.h>

struct cddpi_model_spec cddpi_trainer_model_spec(const struct cddpi_config *config,
                                                 const struct cddpi_dataset *data)
{
    bool tokens = data->kind == CDDPI_DATASET_TOKENS;

    return (struct cddpi_model_spec){
        .preset = config->model.type == CDDPI_MODEL_LAYERS
                      ? NULL
                      : cddpi_config_word(config, "model.type"),
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
        .matmul = (enum cddpi_matmul_mode)config->train.products,
        .size = config->model.size,
        .blocks = config->model.blocks,
        .heads = config->model.heads,
        .embed = config->model.embed,
        .recompute = config->model.recompute,
        .tied = config->model.tied,
        .any_order = !config->ddp.deterministic,
        .latent = config->model.latent,
        .generator_units = config->model.generator_units,
        .discriminator_units = config->model.discriminator_units,
        .towers = config->model.towers,
    };
}

/* Check that the weights are of a model of that size, before each rank finds a mismatch in a
 * tensor's shape. The file itself was checked before. */
static cddp_status check_weights_size(const struct cddpi_config *config,
                                      const struct cddpi_model_spec *spec)
{
    const char *path = config->model.weights;
    const struct cddpi_gpt2_shape *shape;
    struct cddpi_weights *weights = NULL;
    cddp_status status = cddpi_weights_open(path, &weights);

    if (status != CDDP_OK) {
        return status;
    }
    shape = cddpi_weights_shape(weights);
    if (shape->blocks != spec->blocks || shape->embed != spec->embed ||
        (shape->heads > 0 && shape->heads != spec->heads)) {
        char heads[32] = "heads that it does not tell";
        char own[64] = "no size yet";

        if (spec->blocks > 0) {
            snprintf(own, sizeof own, "%d, %d and %d", spec->blocks, spec->heads, spec->embed);
        }
        if (shape->heads > 0) {
            snprintf(heads, sizeof heads, "%lld heads", (long long)shape->heads);
        }
        status = cddpi_config_fail(
            config, "model.weights",
            "%s has %lld blocks, %s and an embed size of %lld, but the model %s: set "
            "model.blocks, model.heads and model.embed, or model.size, to those of the file",
            path, (long long)shape->blocks, heads, (long long)shape->embed, own);
    }
    cddpi_weights_close(weights);
    return status;
}

cddp_status cddpi_trainer_check_model(const struct cddpi_config *config)
{
    struct cddpi_dataset data = {.kind = CDDPI_DATASET_TOKENS,
                                 .context = config->model.context,
                                 .classes = config->model.vocab > 0 ? config->model.vocab : 2};
    bool has_weights = config->model.type == CDDPI_MODEL_GPT2 && config->model.weights[0] != '\0';
    struct cddpi_model_spec spec;
    cddp_status status;

    if (!cddpi_config_is_language_model(config)) { /* for images, their size decides */
        return CDDP_OK;
    }
    spec = cddpi_trainer_model_spec(config, &data);
    if (has_weights && spec.size[0] == '\0' && spec.blocks == 0) {
        status = check_weights_size(config, &spec); /* its error text says which key to set */
        if (status != CDDP_OK) {
            return status;
        }
    }
    status = cddpi_model_check_layers(&spec);
    if (status == CDDP_OK) {
        status = cddpi_model_spec_complete(&spec);
    }
    if (status != CDDP_OK) {
        return status == CDDP_ERR_CONFIG ? cddpi_fail_prefix(status, "%s", config->path) : status;
    }
    return has_weights ? check_weights_size(config, &spec) : CDDP_OK;
}

cddp_status cddpi_trainer_build_model(struct cddpi_trainer *trainer)
{
    const struct cddpi_config *config = trainer->config;
    struct cddpi_model_spec spec = cddpi_trainer_model_spec(config, &trainer->train.data);

    CDDPI_TRY(cddpi_trainer_name_config(trainer, cddpi_model_spec_complete(&spec)));
    spec.device = trainer->device;
    CDDPI_TRY(trainer->engine->build(trainer, &spec));
    trainer->predictions = cddpi_trainer_is_text(trainer) ? trainer->train.data.context : 1;
    if (trainer->rank == 0 && cddpi_model_precision_note(trainer->model) != NULL) {
        cddpi_trainer_warn(trainer, "train.precision: %s",
                           cddpi_model_precision_note(trainer->model));
    }
    trainer->heads = config->model.type == CDDPI_MODEL_GPT2 ? spec.heads : 0;
    return config->model.weights[0] != '\0' ? trainer->engine->load_weights(trainer) : CDDP_OK;
}

cddp_ddp_options cddpi_trainer_ddp_options(const struct cddpi_config *config,
                                           const struct cddpi_model *model, const char *text)
{
    static const cddp_hook_fn hooks[CDDPI_CHOICE_COUNT(CDDPI_WIRE_MAP)] = {
        [CDDPI_WIRE_BF16] = cddp_hook_bf16, [CDDPI_WIRE_F16] = cddp_hook_fp16};
    cddp_ddp_options options = CDDP_DDP_OPTIONS_INIT;

    options.first_bucket_bytes = (size_t)config->ddp.first_bucket_bytes;
    options.bucket_bytes = (size_t)config->ddp.bucket_bytes;
    options.part_bytes = (size_t)config->ddp.part_bytes;
    options.ready_order = cddpi_model_ready_order(model);
    options.allow_unused = config->ddp.allow_unused;
    options.hook = hooks[config->ddp.wire];
    options.shard = config->ddp.shard_optimizer;
    options.reduce_late = config->ddp.shard_optimizer && config->train.clip_norm == 0;
    options.config = text;
    return options;
}

static cddp_status create_ddp(struct cddpi_trainer *trainer, const char *text)
{
    cddp_ddp_options options = cddpi_trainer_ddp_options(trainer->config, trainer->model, text);
    size_t *counts = cddpi_zalloc_array(trainer->param_count, sizeof *counts);
    uint32_t *order = cddpi_zalloc_array(trainer->param_count + 1, sizeof *order);
    struct cddpi_ddp_copies copies = {cddpi_model_copy_type(trainer->model), counts,
                                      .follows = trainer->engine->remakes_shards};
    cddp_status status;

    if (counts == NULL || order == NULL) {
        cddpi_free(counts);
        cddpi_free(order);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "ddp: no memory");
    }
    trainer->engine->ready_order(trainer, order);
    options.ready_order = order;
    for (size_t i = 0; trainer->model_count == 1 && i < trainer->param_count; i++) {
        counts[i] = cddpi_model_param_copy_count(trainer->model, i);
    }
    status = cddpi_ddp_create_with_copies(trainer->replicas, trainer->params, trainer->param_count,
                                          trainer->buffers, trainer->buffer_count, &options,
                                          &copies, &trainer->ddp);
    cddpi_free(counts);
    cddpi_free(order);
    return status;
}

cddp_status cddpi_trainer_bind_params(struct cddpi_trainer *trainer)
{
    void **data = cddpi_zalloc_array(2 * trainer->param_count + 1, sizeof *data);
    void **copies = data != NULL ? data + trainer->param_count : NULL;

    if (data == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "ddp: no memory");
    }
    for (size_t i = 0; i < trainer->param_count; i++) {
        data[i] = cddp_ddp_param(trainer->ddp, i);
        copies[i] = cddpi_ddp_param_copy(trainer->ddp, i);
    }
    trainer->engine->bind_params(trainer, data, copies);
    cddpi_free(data);
    return CDDP_OK;
}

cddp_status cddpi_trainer_build_ddp(struct cddpi_trainer *trainer)
{
    char *text = cddpi_config_text(trainer->config, true);
    cddp_status status;

    trainer->grads = cddpi_zalloc_array(trainer->param_count, sizeof *trainer->grads);
    if (text == NULL || trainer->grads == NULL) {
        cddpi_free(text);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "ddp: no memory");
    }
    status = create_ddp(trainer, text);
    cddpi_free(text);
    if (status != CDDP_OK) {
        return status;
    }
    for (size_t i = 0; i < trainer->param_count; i++) {
        trainer->grads[i] = cddp_ddp_grad(trainer->ddp, i);
    }
    trainer->engine->bind_grads(trainer);
    return trainer->config->ddp.shard_optimizer ? cddpi_trainer_bind_params(trainer) : CDDP_OK;
}

cddp_status cddpi_trainer_build_optimizer(struct cddpi_trainer *trainer)
{
    struct cddpi_optim_spec spec = cddpi_trainer_optim_spec(trainer->config);
    bool *decays = cddpi_zalloc_array(trainer->param_count, sizeof *decays);
    cddp_status status;

    if (decays == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "optimizer: no memory");
    }
    for (size_t i = 0; i < trainer->param_count; i++) {
        decays[i] = trainer->engine->param_decays(trainer, i);
    }
    status = cddpi_optim_create(&spec, trainer->params, decays, trainer->param_count,
                                trainer->config->ddp.shard_optimizer ? trainer->replicas : NULL,
                                trainer->ddp, &trainer->optim);
    cddpi_free(decays);
    return status == CDDP_OK ? trainer->engine->optimizer_made(trainer) : status;
}

cddp_status cddpi_trainer_build_device(struct cddpi_trainer *trainer)
{
    bool scales = trainer->config->train.precision == CDDPI_PRECISION_FP16;
    cddp_status status;

    cddpi_loss_scale_init(&trainer->loss_scale);
    if (!cddpi_device_is_async(trainer->device)) {
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
