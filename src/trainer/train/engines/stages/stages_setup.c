/* stages_setup.c - builds the groups of a pipeline run, the division of its model, and this rank's
 * part. */
#include "base/alloc.h"
#include "base/env.h"
#include "base/error.h"
#include "group/watch/group_trace.h"
#include "train/batch_sizes.h"
#include "train/engines/single/single.h"
#include "train/engines/stages/stages_state.h"

#include <string.h>

static cddp_status join(struct cddpi_trainer *trainer)
{
    const struct cddpi_config *config = trainer->config;
    int count = config->parallel.pipeline;
    struct cddpi_stages *stages;

    if (cddpi_device_is_async(trainer->device)) {
        CDDPI_TRY(cddpi_stages_check_gpu(config));
    }
    if (cddpi_env(CDDPI_ENV_ARRIVALS) != NULL) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE,
                          "CDDP_ARRIVALS: gradients of a pipeline arrive in the order of its "
                          "schedule, which is not written down; unset it");
    }
    stages = cddpi_zalloc(sizeof *stages);
    CDDPI_TRY_MEMORY(stages != NULL, "pipeline: no memory for %zu bytes", sizeof *stages);
    trainer->engine_state = stages;
    stages->count = count;
    stages->stage = trainer->rank % count;
    trainer->data.reads_samples = stages->stage == 0;
    trainer->replicas.rank = trainer->rank / count;
    trainer->replicas.count = trainer->world_size / count;
    trainer->replicas.group = NULL;
    CDDPI_TRY(
        cddp_group_split(trainer->group, trainer->replicas.rank, trainer->rank, &stages->group));
    CDDPI_TRY(
        cddp_group_split(trainer->group, stages->stage, trainer->rank, &trainer->replicas.group));
    cddpi_trace_lend(trainer->replicas.group, trainer->group);
    return CDDP_OK;
}

/* Divide the model; rank 0 measures for all ranks. */
static cddp_status divide_model(struct cddpi_trainer *trainer)
{
    const struct cddpi_config *config = trainer->config;
    struct cddpi_stages *stages = cddpi_stages_of(trainer);
    int count = stages->count * config->parallel.chunks;
    int samples = (int)cddpi_trainer_micro_batch(config, trainer->replicas.count);
    bool named = cddpi_config_names_stages(config);

    stages->ranges = cddpi_zalloc_array((size_t)count, sizeof *stages->ranges);
    CDDPI_TRY_MEMORY(stages->ranges != NULL, "pipeline: no memory for %d stages", count);
    if (named || trainer->rank == 0) {
        CDDPI_TRY(cddpi_stages_divide(config, &stages->spec, trainer->replicas.count, samples,
                                      stages->ranges));
    }
    return named ? CDDP_OK
                 : cddp_broadcast(trainer->group, stages->ranges,
                                  (size_t)count * sizeof *stages->ranges, CDDP_U8, 0, NULL);
}

/* Join the tensors of all chunks in one list. */
static cddp_param *join_tensors(const struct cddpi_trainer *trainer, bool buffers,
                                size_t *out_count)
{
    cddp_param *all = NULL;

    for (int pass = 0; pass < 2; pass++) {
        *out_count = 0;
        for (int m = 0; m < trainer->models.count; m++) {
            size_t count;
            const cddp_param *own = buffers
                                        ? cddpi_model_buffers(trainer->models.list[m].model, &count)
                                        : cddpi_model_params(trainer->models.list[m].model, &count);

            if (all != NULL && count > 0) {
                memcpy(all + *out_count, own, count * sizeof *all);
            }
            *out_count += count;
        }
        all = pass == 0 ? cddpi_zalloc_array(*out_count + 1, sizeof *all) : all;
        if (all == NULL) {
            return NULL;
        }
    }
    return all;
}

static cddp_status list_tensors(struct cddpi_trainer *trainer)
{
    struct cddpi_stages *stages = cddpi_stages_of(trainer);
    size_t first = 0;

    stages->params = join_tensors(trainer, false, &trainer->params.count);
    stages->buffers = join_tensors(trainer, true, &trainer->buffers.count);
    CDDPI_TRY_MEMORY(stages->params != NULL && stages->buffers != NULL,
                     "pipeline: no memory for %zu parameters", trainer->params.count);
    if (trainer->params.count == 0) {
        return cddpi_config_fail(trainer->config,
                                 trainer->config->parallel.stages.count > 0 ? "parallel.stages"
                                                                            : "parallel.pipeline",
                                 "rank %d would have no parameters: let its stage have a layer "
                                 "that learns",
                                 trainer->rank);
    }
    trainer->params.list = stages->params;
    trainer->buffers.list = stages->buffers;
    for (int m = 0; m < trainer->models.count; m++) {
        size_t count;

        cddpi_model_params(trainer->models.list[m].model, &count);
        trainer->models.list[m].first = first;
        first += count;
    }
    return CDDP_OK;
}

/* Binding changes the addresses of the models' parameters, so fill the trainer's list again. */
static void bind_params(struct cddpi_trainer *trainer, void *const *data, void *const *copies)
{
    cddpi_single_bind_params(trainer, data, copies);
    for (int m = 0; m < trainer->models.count; m++) {
        const struct cddpi_trainer_model *own = &trainer->models.list[m];
        size_t count;
        const cddp_param *params = cddpi_model_params(own->model, &count);

        for (size_t i = 0; i < count; i++) {
            cddpi_stages_of(trainer)->params[own->first + i].data = params[i].data;
        }
    }
}

static bool is_recomputed(const struct cddpi_config *config, int stage)
{
    const struct cddpi_int_list *list = &config->parallel.recompute;

    for (int i = 0; i < list->count; i++) {
        if (list->values[i] == stage) {
            return true;
        }
    }
    return false;
}

/* Check model.recompute for this rank's stages, after they are made. */
static cddp_status check_recompute(const struct cddpi_trainer *trainer)
{
    const struct cddpi_config *config = trainer->config;
    int samples = (int)cddpi_trainer_micro_batch(config, trainer->replicas.count);

    for (int m = 0; m < trainer->models.count; m++) {
        int stage = m * cddpi_stages_of(trainer)->count + cddpi_stages_of(trainer)->stage;
        struct cddpi_model_estimate estimate;

        if (!is_recomputed(config, stage)) {
            continue;
        }
        CDDPI_TRY(cddpi_model_estimate(trainer->models.list[m].model, samples, true, &estimate));
        if (!(estimate.extra_work > 0)) {
            return cddpi_config_fail(config, "parallel.recompute",
                                     "stage %d has nothing that can be recomputed: only blocks of "
                                     "a gpt2 or a resnet can, the latter without "
                                     "model.sync_batch_norm",
                                     stage);
        }
    }
    return CDDP_OK;
}

static cddp_status create_pipeline(struct cddpi_trainer *trainer,
                                   const struct cddpi_model_spec *spec)
{
    const struct cddpi_config *config = trainer->config;
    struct cddpi_stages *stages = cddpi_stages_of(trainer);
    struct cddpi_pipeline_options options = {
        .schedule = (enum cddpi_pipeline_schedule)config->parallel.schedule,
        .chunks = config->parallel.chunks,
        .stages = stages->ranges,
        .most_micro_batches = (int)cddpi_trainer_micro_batches(config, trainer->replicas.count),
        .group = stages->group,
        .replicas = trainer->replicas.group,
        .traced = trainer->group,
    };
    int count = stages->count * options.chunks;
    bool *recompute = cddpi_zalloc_array((size_t)count, sizeof *recompute);
    cddp_status status;

    CDDPI_TRY_MEMORY(recompute != NULL, "pipeline: no memory for %d stages", count);
    for (int s = 0; s < count; s++) {
        recompute[s] = is_recomputed(config, s);
    }
    options.recompute = recompute;
    if (options.chunks > 1) { /* a multiple of the ranks: the missing ones have no samples */
        options.most_micro_batches = (options.most_micro_batches + stages->count - 1) /
                                     stages->count * stages->count;
    }
    status = cddpi_pipeline_create(spec, (uint64_t)config->train.seed, &options, &stages->pipeline);
    cddpi_free(recompute);
    return status;
}

static cddp_status build_model(struct cddpi_trainer *trainer, const struct cddpi_model_spec *spec)
{
    struct cddpi_stages *stages = cddpi_stages_of(trainer);

    stages->spec = *spec;
    CDDPI_TRY(divide_model(trainer));
    CDDPI_TRY(create_pipeline(trainer, spec));
    trainer->models.count = trainer->config->parallel.chunks;
    for (int m = 0; m < trainer->models.count; m++) {
        trainer->models.list[m] = (struct cddpi_trainer_model){
            .model = cddpi_pipeline_model(stages->pipeline, m), .trainer = trainer};
    }
    trainer->model = trainer->models.list[0].model;
    CDDPI_TRY(check_recompute(trainer));
    CDDPI_TRY(list_tensors(trainer));
    CDDPI_TRY(cddpi_stages_find_tied(trainer));
    return cddpi_stages_exchange_lists(trainer, CDDPI_STAGES_MODEL_FILE);
}

static cddp_status build(struct cddpi_trainer *trainer, const struct cddpi_model_spec *spec)
{
    return cddpi_config_name_file(trainer->config, build_model(trainer, spec));
}

static cddp_status optimizer_made(struct cddpi_trainer *trainer)
{
    return cddpi_stages_exchange_lists(trainer, CDDPI_STAGES_OPTIMIZER_FILE);
}

static bool owns_param(const struct cddpi_trainer *trainer, size_t index)
{
    return cddpi_stages_owner(trainer, index) == cddpi_stages_of(trainer)->stage;
}

static void destroy(struct cddpi_trainer *trainer)
{
    struct cddpi_stages *stages = cddpi_stages_of(trainer);

    if (stages == NULL) {
        return;
    }
    cddpi_stages_close_source(stages);
    cddpi_stages_release_lists(stages);
    cddpi_pipeline_destroy(stages->pipeline); /* waits for copies from the batches */
    cddpi_step_batches_fini(&stages->batches);
    cddpi_stages_release_table(stages);
    cddp_group_destroy(trainer->replicas.group);
    cddp_group_destroy(stages->group);
    cddpi_free(stages->ranges);
    cddpi_free(stages->params);
    cddpi_free(stages->buffers);
    cddpi_free(stages->tied);
    cddpi_free(stages->is_tied);
    cddpi_free(stages);
    trainer->engine_state = NULL;
}

static bool fits(const struct cddpi_config *config)
{
    return config->parallel.type == CDDPI_PARALLEL_RANKS && config->parallel.pipeline > 1;
}

const struct cddpi_engine cddpi_engine_stages = {
    .fits = fits,
    .check = cddpi_stages_check,
    .check_batch = cddpi_stages_check_batch,
    .describe = cddpi_stages_describe,
    .uploads = true,
    .join = join,
    .build = build,
    .load_weights = cddpi_stages_load_weights,
    .optimizer_made = optimizer_made,
    .complete = cddpi_stages_complete,
    .destroy = destroy,
    .bind_grads = cddpi_stages_bind_grads,
    .bind_params = bind_params,
    .param_decays = cddpi_single_param_decays,
    .ready_order = cddpi_stages_ready_order,
    .compute = cddpi_stages_compute,
    .update = cddpi_single_update,
    .square_sum = cddpi_stages_square_sum,
    .norm_group = cddpi_stages_norm_group,
    .take_result = cddpi_stages_take_result,
    .evaluate = cddpi_stages_evaluate,
    .show_evaluation = cddpi_single_show_evaluation,
    .print_result = cddpi_single_print_result,
    .reader = cddpi_single_reader,
    .device_count = cddpi_single_device_count,
    .name_device = cddpi_single_name_device,
    .add_memory = cddpi_stages_add_memory,
    .list_tensors = cddpi_stages_list_tensors,
    .prepare_save = cddpi_stages_prepare_save,
    .end_save = cddpi_stages_end_save,
    .load = cddpi_stages_load,
    .scatter = cddpi_stages_scatter,
    .owns_param = owns_param,
};
