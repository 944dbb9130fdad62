/* placed_engine_setup.c - builds the segments of a rank's model on its devices, and prints the dry
 * run's table of them. */
#include "base/alloc.h"
#include "base/env.h"
#include "base/error.h"
#include "base/shape.h"
#include "train/batch_sizes.h"
#include "train/engines/placed/placed_engine.h"

static cddp_status check_trainer(const struct cddpi_trainer *trainer)
{
    if (cddpi_env(CDDPI_ENV_ARRIVALS) != NULL && trainer->config->parallel.micro_batches > 1) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE,
                          "CDDP_ARRIVALS: gradients of several devices arrive in an order that is "
                          "not the same in every run, and is not written down; unset it");
    }
    return CDDP_OK;
}

/* Refuse what segments on a GPU cannot do. */
static cddp_status check_gpus(const struct cddpi_config *config,
                              const struct cddpi_placed_engine *placed)
{
    if (!cddpi_devices_have_gpu(placed->own.devices)) {
        return CDDP_OK;
    }
    if (cddpi_trainer_has_sync(config)) {
        return cddpi_config_fail(config, "parallel.type",
                                 "several devices of a rank, of which one is a GPU, cannot take "
                                 "statistics of batch_norm over all ranks (sync)");
    }
    return placed->pipelined && config->parallel.schedule == CDDPI_PIPELINE_ZERO_BUBBLE
               ? cddpi_config_fail(config, "parallel.schedule",
                                   "zero_bubble is for processors: with a GPU among the devices "
                                   "there are 1f1b and gpipe")
               : CDDP_OK;
}

static cddp_status create_segments(struct cddpi_trainer *trainer,
                                   const struct cddpi_model_spec *spec,
                                   const struct cddpi_segment *segments, int count)
{
    const struct cddpi_config *config = trainer->config;
    struct cddpi_placed_engine *placed = cddpi_placed_engine_of(trainer);
    struct cddpi_placed_options options = {
        .devices = placed->own.devices,
        .segments = segments,
        .segment_count = count,
        .schedule = (enum cddpi_pipeline_schedule)config->parallel.schedule,
        .micro_batches = placed->pipelined ? (int)cddpi_trainer_micro_batches(config) : 1,
        .group = trainer->group,
        .timeout_ms = cddp_group_timeout_ms(trainer->group),
    };
    cddp_status status = check_gpus(config, placed);

    if (status != CDDP_OK) {
        return status;
    }
    if (count > CDDPI_TRAINER_CHUNKS) {
        return cddpi_config_fail(config, "parallel.placement",
                                 "goes %d times from device to device, and at most %d are possible",
                                 count - 1, CDDPI_TRAINER_CHUNKS - 1);
    }
    status = cddpi_placed_create(spec, (uint64_t)config->train.seed, &options, &placed->model);
    return status == CDDP_ERR_CONFIG
               ? cddpi_config_fail(config,
                                   placed->pipelined ? "parallel.schedule" : "parallel.type", "%s",
                                   cddp_last_error())
               : status;
}

/* Create the segments, at least one per device. */
static cddp_status build_segments(struct cddpi_trainer *trainer,
                                  const struct cddpi_model_spec *spec)
{
    const struct cddpi_config *config = trainer->config;
    int samples = (int)cddpi_trainer_micro_batch(config, trainer->replica_count);
    struct cddpi_placed_engine *placed = cddpi_placed_engine_of(trainer);
    struct cddpi_segment *segments = NULL;
    int count = 0;
    cddp_status status;

    placed->pipelined = config->parallel.micro_batches > 1;
    status = cddpi_trainer_placement(config, spec, trainer->group, samples, &placed->own.devices,
                                     &segments, &count);
    if (status == CDDP_OK) {
        status = create_segments(trainer, spec, segments, count);
    }
    cddpi_free(segments);
    if (status != CDDP_OK) {
        return status;
    }
    trainer->model_count = count;
    for (int s = 0; s < count; s++) {
        trainer->models[s] = (struct cddpi_trainer_model){
            .model = cddpi_placed_model(placed->model, s), .trainer = trainer};
    }
    trainer->model = trainer->models[0].model;
    trainer->params = cddpi_placed_params(placed->model, &trainer->param_count);
    trainer->buffers = cddpi_placed_buffers(placed->model, &trainer->buffer_count);
    return CDDP_OK;
}

cddp_status cddpi_placed_engine_build(struct cddpi_trainer *trainer,
                                      const struct cddpi_model_spec *spec)
{
    CDDPI_TRY(check_trainer(trainer));
    trainer->engine_state = cddpi_zalloc(sizeof(struct cddpi_placed_engine));
    return trainer->engine_state != NULL
               ? build_segments(trainer, spec)
               : cddpi_fail(CDDP_ERR_NO_MEMORY, "parallel: no memory for %zu bytes",
                            sizeof(struct cddpi_placed_engine));
}

/* --- for a dry run --- */

static cddp_status print_segment(const struct cddpi_model_spec *spec,
                                 const struct cddpi_segment *segment, const char *device,
                                 FILE *file)
{
    struct cddpi_model_spec part = *spec;
    struct cddpi_model *model = NULL;
    const cddp_param *params;
    char first[64] = "";
    char last[64] = "";
    size_t elements = 0;
    size_t count;

    CDDPI_TRY(cddpi_model_layer_name(spec, segment->layers.first, first, sizeof first));
    CDDPI_TRY(cddpi_model_layer_name(spec, segment->layers.end - 1, last, sizeof last));
    part.part = segment->layers;
    CDDPI_TRY(cddpi_model_create(&part, 0, NULL, &model));
    params = cddpi_model_params(model, &count);
    for (size_t i = 0; i < count; i++) {
        elements += cddpi_elements(params[i].dims, params[i].shape);
    }
    fprintf(file, "  %s: %s to %s, %zu parameters\n", device, first, last, elements);
    cddpi_model_destroy(model);
    return CDDP_OK;
}

cddp_status cddpi_placed_engine_describe(const struct cddpi_config *config,
                                         const struct cddpi_model_spec *spec, int samples,
                                         FILE *file)
{
    struct cddpi_segment *segments = NULL;
    cddp_devices *devices = NULL;
    int count = 0;
    cddp_status status = CDDP_OK;

    if (config->parallel.type == CDDPI_PARALLEL_MODEL) {
        status = cddpi_trainer_placement(config, spec, NULL, samples, &devices, &segments, &count);
    }
    if (status == CDDP_OK && count > 0) {
        fprintf(file, "devices of each rank: %d\n", devices->count);
    }
    for (int s = 0; status == CDDP_OK && s < count; s++) {
        status = print_segment(spec, &segments[s], devices->cores[segments[s].device].name, file);
    }
    cddpi_free(segments);
    cddp_devices_destroy(devices);
    return status;
}
