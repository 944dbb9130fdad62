/* stages_setup.c - owns the groups of a divided run, the division of its model, and this rank's
 * part. */
#include "base/alloc.h"
#include "base/env.h"
#include "base/error.h"
#include "train/batch_sizes.h"
#include "train/engines/placed/placed_engine.h"
#include "train/engines/stages/division.h"
#include "train/engines/stages/stages_state.h"

#include <string.h>

static cddp_status check_world(const struct cddpi_config *config, int world_size)
{
    if (world_size % config->parallel.pipeline != 0) {
        return cddpi_config_fail(config, "parallel.pipeline",
                                 "%d stages do not divide a world size of %d: start a multiple of "
                                 "%d ranks",
                                 config->parallel.pipeline, world_size, config->parallel.pipeline);
    }
    return CDDP_OK;
}

static cddp_status check_micro_batches(const struct cddpi_config *config)
{
    int64_t count = config->parallel.micro_batches;

    if (count > 0 && config->train.accumulate > 1 && config->train.accumulate != count) {
        return cddpi_config_fail(config, "parallel.micro_batches",
                                 "is %lld, but train.accumulate = %lld says another number of "
                                 "micro-batches: give one of the two",
                                 (long long)count, (long long)config->train.accumulate);
    }
    if (config->parallel.schedule != CDDPI_PIPELINE_GPIPE || count <= CDDPI_MODEL_SLOTS) {
        return CDDP_OK;
    }
    return cddpi_config_fail(config, "parallel.micro_batches",
                             "gpipe keeps all %lld micro-batches at once, and at most %d are "
                             "possible: use 1f1b",
                             (long long)count, CDDPI_MODEL_SLOTS);
}

/* What only a pipeline reads. Values count, not whether they were given: a run writes all keys
 * down, and must be able to read them again. */
static cddp_status check_whole(const struct cddpi_config *config)
{
    static const char *const words = "is for pipelines, but parallel.pipeline is 1: raise it, or "
                                     "leave this out";

    if (config->parallel.micro_batches > 1) {
        return cddpi_config_fail(config, "parallel.micro_batches",
                                 "is for pipelines (parallel.pipeline); without one, "
                                 "train.accumulate makes micro-batches");
    }
    if (config->parallel.schedule != CDDPI_PIPELINE_1F1B) {
        return cddpi_config_fail(config, "parallel.schedule", "%s", words);
    }
    if (config->parallel.chunks > 1) {
        return cddpi_config_fail(config, "parallel.chunks", "%s", words);
    }
    if (config->parallel.stages.count > 0) {
        return cddpi_config_fail(config, "parallel.stages", "%s", words);
    }
    if (config->parallel.balance != 0) {
        return cddpi_config_fail(config, "parallel.balance", "%s", words);
    }
    if (config->parallel.memory_bytes > 0) {
        return cddpi_config_fail(config, "parallel.memory_bytes", "%s", words);
    }
    if (config->parallel.recompute.count > 0) {
        return cddpi_config_fail(config, "parallel.recompute", "%s", words);
    }
    return CDDP_OK;
}

static cddp_status check_stages(const struct cddpi_config *config)
{
    int named = cddpi_stages_are_named(config) ? config->parallel.stages.count : 0;
    int stages = config->parallel.pipeline * config->parallel.chunks;

    if (config->parallel.chunks > 1 && config->parallel.schedule != CDDPI_PIPELINE_INTERLEAVED) {
        return cddpi_config_fail(config, "parallel.chunks",
                                 "only parallel.schedule = \"interleaved\" has several chunks a "
                                 "rank");
    }
    if (named > 0 && named != stages - 1) {
        return cddpi_config_fail(config, "parallel.stages",
                                 "names %d layers that begin a stage, but behind the first of %d "
                                 "stages there are %d",
                                 named, stages, stages - 1);
    }
    if (named > 0 && config->parallel.balance != 0) {
        return cddpi_config_fail(config, "parallel.balance",
                                 "is for stages that are chosen, but parallel.stages names them: "
                                 "leave one of the two out");
    }
    for (int i = 0; i < config->parallel.recompute.count; i++) {
        if (config->parallel.recompute.values[i] >= stages) {
            return cddpi_config_fail(config, "parallel.recompute",
                                     "there is no stage %d: stages are 0 to %d",
                                     config->parallel.recompute.values[i], stages - 1);
        }
    }
    return CDDP_OK;
}

cddp_status cddpi_stages_check(const struct cddpi_config *config, int world_size)
{
    cddp_status status = config->train.offload_optimizer ? cddpi_trainer_offload_check(config)
                                                         : CDDP_OK;

    if (status != CDDP_OK) {
        return status;
    }
    if (config->parallel.type != CDDPI_PARALLEL_RANKS) {
        return cddpi_trainer_placed_check(config);
    }
    if (config->parallel.stages.pairs) {
        return cddpi_config_fail(config, "parallel.stages",
                                 "stages over ranks are given by the first layer of each but the "
                                 "first, as [\"layer3\"]; first and last layers are for "
                                 "parallel.type = \"model_parallel\"");
    }
    if (config->parallel.pipeline == 1) {
        return check_whole(config);
    }
    status = check_world(config, world_size);
    if (status == CDDP_OK) {
        status = check_micro_batches(config);
    }
    if (status == CDDP_OK) {
        status = check_stages(config);
    }
    if (status == CDDP_OK && config->train.generate_steps > 0) {
        status = cddpi_config_fail(config, "train.generate_steps",
                                   "text cannot be generated on the way by a model that is divided "
                                   "into stages (parallel.pipeline); a checkpoint of it can: "
                                   "cddp-train --generate");
    }
    return status;
}

bool cddpi_trainer_is_first_stage(const struct cddpi_trainer *trainer)
{
    return trainer->stages == NULL || trainer->stages->stage == 0;
}

cddp_status cddpi_stages_join(struct cddpi_trainer *trainer)
{
    const struct cddpi_config *config = trainer->config;
    int count = config->parallel.pipeline;
    cddp_status status = cddpi_stages_check(config, trainer->world_size);

    if (status != CDDP_OK || count == 1) {
        return status;
    }
    if (cddpi_device_is_async(trainer->device)) {
        return cddpi_config_fail(config, "parallel.pipeline",
                                 "pipelines run on the processor only (train.device = \"cpu\")");
    }
    if (cddpi_env(CDDPI_ENV_ARRIVALS) != NULL) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE,
                          "CDDP_ARRIVALS: gradients of a pipeline arrive in the order of its "
                          "schedule, which is not written down; unset it");
    }
    trainer->stages = cddpi_zalloc(sizeof *trainer->stages);
    if (trainer->stages == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "pipeline: no memory for %zu bytes",
                          sizeof *trainer->stages);
    }
    trainer->stages->count = count;
    trainer->stages->stage = trainer->rank % count;
    trainer->replica = trainer->rank / count;
    trainer->replica_count = trainer->world_size / count;
    trainer->replicas = NULL;
    status = cddp_group_split(trainer->group, trainer->replica, trainer->rank,
                              &trainer->stages->group);
    return status == CDDP_OK ? cddp_group_split(trainer->group, trainer->stages->stage,
                                                trainer->rank, &trainer->replicas)
                             : status;
}

/* Rank 0 measures for all. */
static cddp_status divide(struct cddpi_trainer *trainer)
{
    const struct cddpi_config *config = trainer->config;
    struct cddpi_stages *stages = trainer->stages;
    int count = stages->count * config->parallel.chunks;
    int samples = (int)cddpi_trainer_micro_batch(config, trainer->replica_count);
    cddp_status status = CDDP_OK;

    stages->ranges = cddpi_zalloc_array((size_t)count, sizeof *stages->ranges);
    if (stages->ranges == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "pipeline: no memory for %d stages", count);
    }
    if (cddpi_stages_are_named(config)) {
        return cddpi_stages_divide(config, &stages->spec, samples, stages->ranges);
    }
    if (trainer->rank == 0) {
        status = cddpi_stages_divide(config, &stages->spec, samples, stages->ranges);
    }
    return status == CDDP_OK
               ? cddp_broadcast(trainer->group, stages->ranges,
                                (size_t)count * sizeof *stages->ranges, CDDP_U8, 0, NULL)
               : status;
}

/* The tensors of all chunks, one behind the other. */
static cddp_param *join_tensors(const struct cddpi_trainer *trainer, bool buffers,
                                size_t *out_count)
{
    cddp_param *all = NULL;

    for (int pass = 0; pass < 2; pass++) {
        *out_count = 0;
        for (int m = 0; m < trainer->model_count; m++) {
            size_t count;
            const cddp_param *own = buffers ? cddpi_model_buffers(trainer->models[m].model, &count)
                                            : cddpi_model_params(trainer->models[m].model, &count);

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

static cddp_status take_tensors(struct cddpi_trainer *trainer)
{
    struct cddpi_stages *stages = trainer->stages;
    size_t first = 0;

    stages->params = join_tensors(trainer, false, &trainer->param_count);
    stages->buffers = join_tensors(trainer, true, &trainer->buffer_count);
    if (stages->params == NULL || stages->buffers == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "pipeline: no memory for %zu parameters",
                          trainer->param_count);
    }
    if (trainer->param_count == 0) {
        return cddpi_config_fail(trainer->config,
                                 trainer->config->parallel.stages.count > 0 ? "parallel.stages"
                                                                            : "parallel.pipeline",
                                 "rank %d would have no parameters: let its stage have a layer "
                                 "that learns",
                                 trainer->rank);
    }
    trainer->params = stages->params;
    trainer->buffers = stages->buffers;
    for (int m = 0; m < trainer->model_count; m++) {
        size_t count;

        cddpi_model_params(trainer->models[m].model, &count);
        trainer->models[m].first = first;
        first += count;
    }
    return CDDP_OK;
}

void cddpi_stages_params_moved(struct cddpi_trainer *trainer)
{
    size_t count;

    for (int m = 0; trainer->stages != NULL && m < trainer->model_count; m++) {
        const struct cddpi_trainer_model *own = &trainer->models[m];
        const cddp_param *params = cddpi_model_params(own->model, &count);

        memcpy(trainer->stages->params + own->first, params, count * sizeof *params);
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

/* Of this rank's stages, which are made. */
static cddp_status check_recompute(const struct cddpi_trainer *trainer)
{
    const struct cddpi_config *config = trainer->config;
    int samples = (int)cddpi_trainer_micro_batch(config, trainer->replica_count);
    cddp_status status = CDDP_OK;

    for (int m = 0; status == CDDP_OK && m < trainer->model_count; m++) {
        int stage = m * trainer->stages->count + trainer->stages->stage;
        struct cddpi_model_estimate estimate;

        if (!is_recomputed(config, stage)) {
            continue;
        }
        status = cddpi_model_estimate(trainer->models[m].model, samples, true, &estimate);
        if (status == CDDP_OK && !(estimate.extra_work > 0)) {
            status = cddpi_config_fail(config, "parallel.recompute",
                                       "stage %d has nothing that can be recomputed: only blocks "
                                       "of a gpt2 or a resnet can, the latter without "
                                       "model.sync_batch_norm",
                                       stage);
        }
    }
    return status;
}

cddp_status cddpi_stages_build_model(struct cddpi_trainer *trainer,
                                     const struct cddpi_model_spec *spec)
{
    const struct cddpi_config *config = trainer->config;
    struct cddpi_stages *stages = trainer->stages;
    struct cddpi_pipeline_options options = {
        .schedule = (enum cddpi_pipeline_schedule)config->parallel.schedule,
        .chunks = config->parallel.chunks,
        .group = stages->group,
        .replicas = trainer->replicas,
        .traced = trainer->group,
    };
    int64_t micro_batches = cddpi_trainer_micro_batches(config);
    bool *recompute = cddpi_zalloc_array((size_t)stages->count * (size_t)options.chunks,
                                         sizeof *recompute);
    cddp_status status;

    if (recompute == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "pipeline: no memory for %d stages", stages->count);
    }
    stages->spec = *spec;
    status = divide(trainer);
    options.stages = stages->ranges;
    for (int s = 0; status == CDDP_OK && s < stages->count * options.chunks; s++) {
        recompute[s] = is_recomputed(config, s);
    }
    options.recompute = recompute;
    /* interleaved takes multiples: those that are missing have no samples */
    options.most_micro_batches = (int)((micro_batches + stages->count - 1) / stages->count *
                                       stages->count);
    if (config->parallel.chunks == 1) {
        options.most_micro_batches = (int)micro_batches;
    }
    if (status == CDDP_OK) {
        status = cddpi_pipeline_create(spec, (uint64_t)config->train.seed, &options,
                                       &stages->pipeline);
    }
    cddpi_free(recompute);
    if (status != CDDP_OK) {
        return status;
    }
    trainer->model_count = config->parallel.chunks;
    for (int m = 0; m < trainer->model_count; m++) {
        trainer->models[m] = (struct cddpi_trainer_model){
            .model = cddpi_pipeline_model(stages->pipeline, m), .trainer = trainer};
    }
    trainer->model = trainer->models[0].model;
    status = check_recompute(trainer);
    if (status == CDDP_OK) {
        status = take_tensors(trainer);
    }
    if (status == CDDP_OK) {
        status = cddpi_stages_find_tied(trainer);
    }
    return status == CDDP_OK ? cddpi_stages_exchange_lists(trainer, CDDPI_STAGES_MODEL_FILE)
                             : status;
}

cddp_status cddpi_stages_optimizer_made(struct cddpi_trainer *trainer)
{
    return trainer->stages != NULL
               ? cddpi_stages_exchange_lists(trainer, CDDPI_STAGES_OPTIMIZER_FILE)
               : CDDP_OK;
}

void cddpi_stages_destroy(struct cddpi_trainer *trainer)
{
    struct cddpi_stages *stages = trainer->stages;

    if (stages == NULL) {
        return;
    }
    cddpi_stages_close_source(stages);
    cddpi_stages_release_lists(stages);
    cddpi_step_batches_fini(&stages->batches);
    cddpi_pipeline_destroy(stages->pipeline);
    cddp_group_destroy(trainer->replicas);
    cddp_group_destroy(stages->group);
    cddpi_free(stages->ranges);
    cddpi_free(stages->params);
    cddpi_free(stages->buffers);
    cddpi_free(stages->tied);
    cddpi_free(stages->is_tied);
    cddpi_free(stages);
    trainer->stages = NULL;
}
