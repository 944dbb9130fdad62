/* setup_model.c - builds a trainer's model, reducer, optimizer and data loaders from the
 * configuration. */
#include "train/setup_model.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/machine.h"
#include "ddp/copies.h"
#include "group/group_info.h"
#include "train/auto_micro_batch.h"
#include "train/batch_sizes.h"
#include "train/device/device_step.h"
#include "train/device/step_graphs.h"
#include "train/engines/engine.h"
#include "train/model_spec.h"

cddp_status cddpi_trainer_check_model(const struct cddpi_config *config)
{
    struct cddpi_dataset data = {.kind = CDDPI_DATASET_TOKENS,
                                 .context = config->model.context,
                                 .classes = config->model.vocab > 0 ? config->model.vocab : 2};
    struct cddpi_model_spec spec;
    cddp_status status;

    if (!cddpi_config_is_language_model(config)) { /* for images, their size decides */
        return CDDP_OK;
    }
    spec = cddpi_trainer_model_spec(config, &data);
    status = cddpi_model_check_layers(&spec);
    status = status == CDDP_OK ? cddpi_model_spec_complete(&spec) : status;
    return cddpi_config_name_file(config, status);
}

cddp_status cddpi_trainer_build_model(struct cddpi_trainer *trainer)
{
    const struct cddpi_config *config = trainer->config;
    struct cddpi_model_spec spec = cddpi_trainer_model_spec(config, &trainer->data.train.data);

    CDDPI_TRY(cddpi_config_name_file(trainer->config, cddpi_model_spec_complete(&spec)));
    spec.device = trainer->device;
    CDDPI_TRY(trainer->engine->build(trainer, &spec));
    trainer->models.predictions = cddpi_trainer_is_text(trainer) ? trainer->data.train.data.context
                                                                 : 1;
    if (trainer->rank == 0 && cddpi_model_precision_note(trainer->model) != NULL) {
        cddpi_trainer_warn(trainer, "train.precision: %s",
                           cddpi_model_precision_note(trainer->model));
    }
    trainer->models.heads = config->model.type == CDDPI_MODEL_GPT2 ? spec.heads : 0;
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
    options.may_move_grads = true; /* see cddpi_trainer_bind_again() */
    options.config = text;
    return options;
}

/* Whether the models' copies of parameters are where the reducer's are. */
static bool has_copies(const struct cddpi_trainer *trainer)
{
    return trainer->models.count <= 1 || cddpi_device_is_async(trainer->device);
}

static cddp_status create_ddp(struct cddpi_trainer *trainer, const char *text)
{
    cddp_ddp_options options = cddpi_trainer_ddp_options(trainer->config, trainer->model, text);
    size_t *counts = cddpi_zalloc_array(trainer->params.count, sizeof *counts);
    size_t *order = cddpi_zalloc_array(trainer->params.count + 1, sizeof *order);
    struct cddpi_ddp_copies copies = {cddpi_model_copy_type(trainer->model), counts,
                                      .follows = trainer->engine->remakes_shards,
                                      .reduce_late = trainer->config->ddp.shard_optimizer &&
                                                     trainer->config->train.clip_norm == 0};
    cddp_status status;

    if (counts == NULL || order == NULL) {
        cddpi_free(counts);
        cddpi_free(order);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "ddp: no memory");
    }
    trainer->engine->ready_order(trainer, order);
    options.ready_order = order;
    for (size_t i = 0; has_copies(trainer) && i < trainer->params.count; i++) {
        size_t own;
        const struct cddpi_model *model = cddpi_trainer_model_of(trainer, i, &own);

        counts[i] = cddpi_model_param_copy_count(model, own);
    }
    status = cddpi_ddp_create_with_copies(trainer->replicas.group, trainer->params.list,
                                          trainer->params.count, trainer->buffers.list,
                                          trainer->buffers.count, &options, &copies, &trainer->ddp);
    cddpi_free(counts);
    cddpi_free(order);
    return status;
}

cddp_status cddpi_trainer_bind_params(struct cddpi_trainer *trainer)
{
    void **data = cddpi_zalloc_array(2 * trainer->params.count + 1, sizeof *data);
    void **copies = data != NULL ? data + trainer->params.count : NULL;

    CDDPI_TRY_MEMORY(data != NULL, "ddp: no memory");
    for (size_t i = 0; i < trainer->params.count; i++) {
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

    trainer->step.grads = cddpi_zalloc_array(trainer->params.count, sizeof *trainer->step.grads);
    if (text == NULL || trainer->step.grads == NULL) {
        cddpi_free(text);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "ddp: no memory");
    }
    status = create_ddp(trainer, text);
    cddpi_free(text);
    CDDPI_TRY(status);
    for (size_t i = 0; i < trainer->params.count; i++) {
        trainer->step.grads[i] = cddp_ddp_grad(trainer->ddp, i);
    }
    trainer->engine->bind_grads(trainer);
    return trainer->config->ddp.shard_optimizer ? cddpi_trainer_bind_params(trainer) : CDDP_OK;
}

cddp_status cddpi_trainer_build_optimizer(struct cddpi_trainer *trainer)
{
    struct cddpi_optim_spec spec = cddpi_trainer_optim_spec(trainer->config);
    bool *decays = cddpi_zalloc_array(trainer->params.count, sizeof *decays);
    cddp_status status;

    CDDPI_TRY_MEMORY(decays != NULL, "optimizer: no memory");
    for (size_t i = 0; i < trainer->params.count; i++) {
        decays[i] = trainer->engine->param_decays(trainer, i);
    }
    status = cddpi_optim_create(&spec, trainer->params.list, decays, trainer->params.count,
                                trainer->config->ddp.shard_optimizer ? trainer->replicas.group
                                                                     : NULL,
                                trainer->ddp, &trainer->step.optim);
    cddpi_free(decays);
    CDDPI_TRY(status);
    return cddpi_engine_call(trainer->engine->optimizer_made, trainer);
}

static void bind_loss_scale(const struct cddpi_trainer *trainer)
{
    const float *scale = cddpi_device_step_loss_scale(trainer->step.device);

    cddpi_model_bind_loss_scale(trainer->model, scale);
    for (int m = 1; m < trainer->models.count; m++) {
        cddpi_model_bind_loss_scale(trainer->models.list[m].model, scale);
    }
}

cddp_status cddpi_trainer_build_device(struct cddpi_trainer *trainer)
{
    bool scales = trainer->config->train.precision == CDDPI_PRECISION_FP16;

    cddpi_loss_scale_init(&trainer->step.loss_scale);
    if (cddpi_device_is_async(trainer->device)) {
        CDDPI_TRY(cddpi_optim_to_device(trainer->step.optim, trainer->device,
                                        cddpi_group_timeout_ms(trainer->group)));
    }
    CDDPI_TRY(cddpi_trainer_choose_micro_batch(trainer)); /* in the memory that these leave */
    if (cddpi_device_is_async(trainer->device)) {
        CDDPI_TRY(cddpi_device_step_create(trainer, scales, &trainer->step.device));
        bind_loss_scale(trainer);
    }
    return cddpi_step_graphs_create(trainer, &trainer->step.graphs);
}

/* A loader thread that shares its only core with compute costs more time than it saves. */
static int loader_threads(int wanted, int ranks)
{
    struct cddpi_processors processors;

    if (wanted >= 0) {
        return wanted;
    }
    cddpi_processors(&processors);
    return processors.allowed == 1 || (processors.quota > 0 && processors.count <= ranks) ? 0 : 1;
}

static cddp_status build_loader(const struct cddpi_trainer *trainer,
                                const struct cddpi_dataset *data, int64_t most,
                                struct cddpi_data_loader **out)
{
    const struct cddpi_config *config = trainer->config;
    struct cddpi_data_loader_options options = {
        .dataset = data,
        .transform = cddpi_trainer_transform(config),
        .skip_broken = config->data.on_error == CDDPI_DATA_SKIP,
        .seed = (uint64_t)config->train.seed,
        .max_count = (int)most,
        .by_position = cddpi_trainer_by_position(config),
        .threads = loader_threads(
            config->data.threads,
            trainer->group != NULL ? cddpi_group_local_world_size(trainer->group) : 1),
        .prefetch = config->data.prefetch,
        .device = trainer->device,
    };

    return cddpi_data_loader_create(&options, out);
}

/* Make the sampler, loader and prefetcher of @p set, for micro-batches of at most @p samples. */
static cddp_status build_set(struct cddpi_trainer *trainer, struct cddpi_trainer_set *set,
                             cddp_order order, int64_t samples)
{
    CDDPI_TRY(cddp_sampler_create(order, set->data.count, (uint64_t)trainer->config->train.seed,
                                  &set->sampler));
    CDDPI_TRY(build_loader(trainer, &set->data, samples, &set->loader));
    return cddpi_prefetcher_create(set->loader, trainer->engine->reader(trainer),
                                   trainer->engine->uploads ? NULL : trainer->device, &set->data,
                                   (int)samples, &set->prefetcher);
}

cddp_status cddpi_trainer_build_data(struct cddpi_trainer *trainer)
{
    const struct cddpi_config *config = trainer->config;
    int64_t trained = cddpi_trainer_micro_batch(config, trainer->replicas.count);
    int64_t evaluated = (config->train.eval_batch_size + trainer->replicas.count - 1) /
                        trainer->replicas.count;

    /* For tokens, the memory of a sequence has an output per vocabulary entry, so evaluation uses
     * no more than training does. */
    if (trainer->data.train.data.kind == CDDPI_DATASET_TOKENS && trained < evaluated) {
        evaluated = trained;
    }
    if (cddpi_trainer_by_position(config)) {
        evaluated = config->train.eval_batch_size < trained ? config->train.eval_batch_size
                                                            : trained;
    }
    CDDPI_TRY(build_set(trainer, &trainer->data.train, (cddp_order)config->data.order, trained));
    return build_set(trainer, &trainer->data.test, CDDP_ORDER_SEQUENTIAL, evaluated);
}
