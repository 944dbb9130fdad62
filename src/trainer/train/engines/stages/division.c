/* division.c - owns the choice of stages: by name, by time or by memory. */
#include "train/engines/stages/division.h"

#include "base/alloc.h"
#include "base/error.h"
#include "parallel/divide.h"
#include "train/batch_sizes.h"
#include "train/trainer.h"

#include <string.h>

struct cddpi_pipeline_shape cddpi_stages_shape(const struct cddpi_config *config)
{
    int64_t micro_batches = cddpi_trainer_micro_batches(config);
    int64_t ranks = config->parallel.pipeline;

    if (config->parallel.chunks > 1) { /* a multiple of the ranks */
        micro_batches = (micro_batches + ranks - 1) / ranks * ranks;
    }
    return (struct cddpi_pipeline_shape){
        .schedule = (enum cddpi_pipeline_schedule)config->parallel.schedule,
        .ranks = config->parallel.pipeline,
        .chunks = config->parallel.chunks,
        .micro_batches = (int)micro_batches};
}

cddp_status cddpi_stages_count_slots(const struct cddpi_pipeline_shape *shape, int stage, int *out,
                                     int *out_kept)
{
    struct cddpi_pipeline_action *actions = NULL;
    size_t count = 0;
    cddp_status status = cddpi_pipeline_plan(shape, stage % shape->ranks, &actions, &count);

    if (status == CDDP_OK) {
        *out = cddpi_pipeline_slots(actions, count, stage / shape->ranks, out_kept);
    }
    cddpi_free(actions);
    return status;
}

bool cddpi_stages_are_named(const struct cddpi_config *config)
{
    const struct cddpi_stage_names *stages = &config->parallel.stages;

    return stages->count > 0 && !(stages->count == 1 && strcmp(stages->values[0], "auto") == 0);
}

/* How often a stage's memory holds each parameter: with gradient and optimizer state. */
static int parameter_copies(const struct cddpi_config *config)
{
    struct cddpi_optim_spec spec = cddpi_trainer_optim_spec(config);

    return 2 + (spec.type == CDDPI_OPTIM_ADAMW ? 2 : spec.momentum > 0 ? 1 : 0);
}

/* Check that no rank needs more memory for its @p layers than parallel.memory_bytes. */
static cddp_status check_fit(const struct cddpi_config *config, const struct cddpi_model_spec *spec,
                             const struct cddpi_layer_bytes *layers,
                             const struct cddpi_stage_memory *memory,
                             const struct cddpi_layer_range *ranges)
{
    int ranks = config->parallel.pipeline;
    int64_t most = config->parallel.memory_bytes;

    for (int s = 0; s < ranks && most > 0; s++) {
        char first[64] = "";
        size_t bytes = 0;

        for (int c = 0; c < config->parallel.chunks; c++) {
            int stage = c * ranks + s;

            bytes += cddpi_stage_bytes(layers, ranges[stage], &memory[stage]);
        }
        if (bytes > (uint64_t)most) {
            cddp_status status = cddpi_model_layer_name(spec, ranges[s].first, first, sizeof first);

            return status != CDDP_OK
                       ? status
                       : cddpi_config_fail(config, "parallel.memory_bytes",
                                           "stage %d, which begins with \"%s\", alone takes %zu "
                                           "bytes, but a rank may take %lld: let there be more "
                                           "stages, or smaller micro-batches",
                                           s, first, bytes, (long long)most);
        }
    }
    return CDDP_OK;
}

/* Divide by the names in parallel.stages, or by measured time. */
static cddp_status divide_by_time(const struct cddpi_config *config,
                                  const struct cddpi_model_spec *spec, int samples, int stages,
                                  struct cddpi_layer_range *out)
{
    return cddpi_stages_are_named(config)
               ? cddpi_stages_from_names(spec, config->parallel.stages.values, stages - 1, out)
               : cddpi_stages_measured(spec, samples, stages, out);
}

static cddp_status divide(const struct cddpi_config *config, const struct cddpi_model_spec *spec,
                          int samples, struct cddpi_stage_memory *memory, int stages,
                          struct cddpi_layer_range *out)
{
    struct cddpi_pipeline_shape shape = cddpi_stages_shape(config);
    bool by_memory = config->parallel.balance == CDDPI_BALANCE_MEMORY;
    struct cddpi_layer_bytes *layers = NULL;
    int count = 0;
    cddp_status status = CDDP_OK;

    for (int s = 0; status == CDDP_OK && s < stages; s++) {
        int slots = 0;

        memory[s].parameter_copies = parameter_copies(config);
        status = cddpi_stages_count_slots(&shape, s, &slots, &memory[s].micro_batches);
    }
    if (status == CDDP_OK && (by_memory || config->parallel.memory_bytes > 0)) {
        status = cddpi_model_layer_bytes(spec, samples, &layers, &count);
    }
    if (status == CDDP_OK) {
        status = by_memory ? cddpi_divide_by_memory(layers, count, memory, stages, out)
                           : divide_by_time(config, spec, samples, stages, out);
    }
    if (status == CDDP_ERR_CONFIG) {
        status = cddpi_config_fail(
            config, cddpi_stages_are_named(config) ? "parallel.stages" : "parallel.pipeline", "%s",
            cddp_last_error());
    }
    if (status == CDDP_OK) {
        status = check_fit(config, spec, layers, memory, out);
    }
    cddpi_free(layers);
    return status;
}

cddp_status cddpi_stages_divide(const struct cddpi_config *config,
                                const struct cddpi_model_spec *spec, int samples,
                                struct cddpi_layer_range *out)
{
    int stages = config->parallel.pipeline * config->parallel.chunks;
    struct cddpi_stage_memory *memory = cddpi_zalloc_array((size_t)stages, sizeof *memory);
    cddp_status status;

    if (memory == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "pipeline: no memory for %d stages", stages);
    }
    status = divide(config, spec, samples, memory, stages, out);
    cddpi_free(memory);
    return status;
}
