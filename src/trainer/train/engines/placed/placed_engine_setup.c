/* placed_engine_setup.c - owns the model of a run with several devices a rank, and the table that a
 * dry run prints of it. */
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

/* What segments on a GPU do not do. */
static cddp_status check_gpus(const struct cddpi_config *config,
                              const struct cddpi_trainer_placed *placed)
{
    if (!cddpi_devices_have_gpu(placed->devices)) {
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

static cddp_status create(struct cddpi_trainer *trainer, const struct cddpi_model_spec *spec,
                          const struct cddpi_segment *segments, int count)
{
    const struct cddpi_config *config = trainer->config;
    struct cddpi_trainer_placed *placed = trainer->placed;
    struct cddpi_placed_options options = {
        .devices = placed->devices,
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

/* A segment on each device or more of them. */
static cddp_status build_segments(struct cddpi_trainer *trainer,
                                  const struct cddpi_model_spec *spec)
{
    const struct cddpi_config *config = trainer->config;
    int samples = (int)cddpi_trainer_micro_batch(config, trainer->replica_count);
    struct cddpi_trainer_placed *placed = trainer->placed;
    struct cddpi_segment *segments = NULL;
    int count = 0;
    cddp_status status;

    placed->pipelined = config->parallel.micro_batches > 1;
    status = cddpi_trainer_placement(config, spec, trainer->group, samples, &placed->devices,
                                     &segments, &count);
    if (status == CDDP_OK) {
        status = create(trainer, spec, segments, count);
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

static cddp_status create_replicas(struct cddpi_trainer *trainer,
                                   const struct cddpi_model_spec *spec)
{
    const struct cddpi_config *config = trainer->config;
    struct cddpi_trainer_placed *placed = trainer->placed;
    struct cddpi_layer_range layers = {0, 0};
    int output_device = 0;
    cddp_status status = cddpi_trainer_open_devices(config, trainer->group, &placed->devices);

    if (status == CDDP_OK) {
        status = cddpi_trainer_output_device(config, placed->devices, &output_device);
    }
    if (status == CDDP_OK) {
        status = cddpi_trainer_copied_layers(config, spec, &layers);
    }
    if (status == CDDP_OK) {
        status = cddpi_replicated_create(spec, (uint64_t)config->train.seed, placed->devices,
                                         output_device, layers, &placed->replicated);
        if (status == CDDP_ERR_CONFIG) {
            status = cddpi_config_fail(
                config, config->parallel.layers.count > 0 ? "parallel.layers" : "parallel.type",
                "%s", cddp_last_error());
        }
    }
    return status;
}

/* A copy on each device. */
static cddp_status build_replicas(struct cddpi_trainer *trainer,
                                  const struct cddpi_model_spec *spec)
{
    struct cddpi_model *models[3];
    const struct cddpi_replicated *replicated;
    cddp_status status = create_replicas(trainer, spec);

    if (status != CDDP_OK) {
        return status;
    }
    replicated = trainer->placed->replicated;
    cddpi_replicated_trace(trainer->placed->replicated, trainer->group);
    trainer->model_count = cddpi_replicated_models(replicated, models);
    for (int m = 0; m < trainer->model_count; m++) {
        trainer->models[m] = (struct cddpi_trainer_model){.model = models[m], .trainer = trainer};
    }
    trainer->model = models[0];
    trainer->params = cddpi_replicated_params(replicated, &trainer->param_count);
    trainer->buffers = cddpi_replicated_buffers(replicated, &trainer->buffer_count);
    return CDDP_OK;
}

cddp_status cddpi_trainer_build_placed(struct cddpi_trainer *trainer,
                                       const struct cddpi_model_spec *spec)
{
    cddp_status status = check_trainer(trainer);

    trainer->placed = cddpi_zalloc(sizeof *trainer->placed);
    if (status == CDDP_OK && trainer->placed == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "parallel: no memory for %zu bytes",
                            sizeof *trainer->placed);
    }
    if (status != CDDP_OK) {
        return status;
    }
    return trainer->config->parallel.type == CDDPI_PARALLEL_DATA ? build_replicas(trainer, spec)
                                                                 : build_segments(trainer, spec);
}

void cddpi_trainer_destroy_placed(struct cddpi_trainer *trainer)
{
    if (trainer->placed != NULL) {
        cddpi_step_batches_fini(&trainer->placed->batches);
        cddpi_placed_destroy(trainer->placed->model);
        cddpi_replicated_destroy(trainer->placed->replicated);
        cddp_devices_destroy(trainer->placed->devices);
        cddpi_free(trainer->placed);
        trainer->placed = NULL;
    }
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
    cddp_status status = cddpi_model_layer_name(spec, segment->layers.first, first, sizeof first);

    part.part = segment->layers;
    if (status == CDDP_OK) {
        status = cddpi_model_layer_name(spec, segment->layers.end - 1, last, sizeof last);
    }
    if (status == CDDP_OK) {
        status = cddpi_model_create(&part, 0, NULL, &model);
    }
    if (status != CDDP_OK) {
        return status;
    }
    params = cddpi_model_params(model, &count);
    for (size_t i = 0; i < count; i++) {
        elements += cddpi_elements(params[i].dims, params[i].shape);
    }
    fprintf(file, "  %s: %s to %s, %zu parameters\n", device, first, last, elements);
    cddpi_model_destroy(model);
    return CDDP_OK;
}

static cddp_status print_copies(const struct cddpi_config *config,
                                const struct cddpi_model_spec *spec, const cddp_devices *devices,
                                int samples, FILE *file)
{
    int each = (samples + devices->count - 1) / devices->count;
    struct cddpi_layer_range layers = {0, 0};
    char first[64] = "";
    char last[64] = "";
    int output_device = 0;
    cddp_status status = cddpi_trainer_output_device(config, devices, &output_device);

    if (status == CDDP_OK) {
        status = cddpi_trainer_copied_layers(config, spec, &layers);
    }
    if (status == CDDP_OK && layers.end == 0) {
        fprintf(file,
                "devices of each rank: %d, each with a copy of the model and up to %d samples; "
                "their outputs come together on %s\n",
                devices->count, each, devices->cores[output_device].name);
        return CDDP_OK;
    }
    if (status == CDDP_OK) {
        status = cddpi_model_layer_name(spec, layers.first, first, sizeof first);
    }
    if (status == CDDP_OK) {
        status = cddpi_model_layer_name(spec, layers.end - 1, last, sizeof last);
    }
    if (status == CDDP_OK) {
        fprintf(file,
                "devices of each rank: %d, each with a copy of %s to %s and up to %d samples; "
                "the other layers are on %s\n",
                devices->count, first, last, each, devices->cores[0].name);
    }
    return status;
}

static cddp_status describe_replicas(const struct cddpi_config *config,
                                     const struct cddpi_model_spec *spec, int samples, FILE *file)
{
    cddp_devices *devices = NULL;
    cddp_status status = cddpi_trainer_open_devices(config, NULL, &devices);

    if (status == CDDP_OK) {
        status = print_copies(config, spec, devices, samples, file);
    }
    cddp_devices_destroy(devices);
    return status;
}

cddp_status cddpi_trainer_describe_placed(const struct cddpi_config *config,
                                          const struct cddpi_model_spec *spec, int samples,
                                          FILE *file)
{
    struct cddpi_segment *segments = NULL;
    cddp_devices *devices = NULL;
    int count = 0;
    cddp_status status = CDDP_OK;

    if (config->parallel.type == CDDPI_PARALLEL_DATA) {
        return describe_replicas(config, spec, samples, file);
    }
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
