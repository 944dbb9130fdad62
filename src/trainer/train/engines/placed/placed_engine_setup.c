/* placed_engine_setup.c - decides which layers are on which device of a rank (parallel.placement,
 * parallel.stages, or stages of equal time), builds the segments there, and prints the dry run's
 * table of them. */
#include "base/alloc.h"
#include "base/env.h"
#include "base/error.h"
#include "base/shape.h"
#include "group/group_info.h"
#include "parallel/divide.h"
#include "train/batch_sizes.h"
#include "train/engines/placed/placed_engine.h"

#include <string.h>

/* Assign layers by parallel.placement. */
static cddp_status put_places(const struct cddpi_config *config, const cddp_devices *devices,
                              struct cddpi_placement *placement)
{
    const char *text = config->parallel.placement;
    struct cddpi_device_place place;

    while (cddpi_device_place_next(&text, &place)) {
        int device = 0;

        CDDPI_TRY(cddpi_device_place_check(config, &place));
        while (device < devices->count && strcmp(devices->cores[device].name, place.device) != 0) {
            device++;
        }
        if (device == devices->count) {
            return cddpi_config_fail(config, "parallel.placement",
                                     "%s, the device of \"%s\", is not one of train.devices",
                                     place.device, place.layer);
        }
        CDDPI_TRY(cddpi_config_name_key(
            config, "parallel.placement",
            cddpi_placement_put(placement, place.layer, place.layer, device)));
    }
    return CDDP_OK;
}

static cddp_status check_stage_count(const struct cddpi_config *config, int stages, int devices)
{
    return stages == devices
               ? CDDP_OK
               : cddpi_config_fail(config, "parallel.stages",
                                   "are %d, but train.devices are %d: one stage a device", stages,
                                   devices);
}

/* Assign layers by parallel.stages with first and last layers. */
static cddp_status put_stages(const struct cddpi_config *config, const cddp_devices *devices,
                              struct cddpi_placement *placement)
{
    const struct cddpi_stage_names *stages = &config->parallel.stages;

    CDDPI_TRY(check_stage_count(config, stages->count / 2, devices->count));
    for (int s = 0; s < devices->count; s++) {
        CDDPI_TRY(cddpi_config_name_key(
            config, "parallel.stages",
            cddpi_placement_put(placement, stages->values[2 * s], stages->values[2 * s + 1], s)));
    }
    return CDDP_OK;
}

/* Make the segments of a placement that the configuration gives layer by layer. */
static cddp_status from_places(const struct cddpi_config *config,
                               const struct cddpi_model_spec *spec, const cddp_devices *devices,
                               struct cddpi_segment **out, int *out_count)
{
    bool pairs = config->parallel.stages.pairs;
    const char *key = pairs ? "parallel.stages" : "parallel.placement";
    struct cddpi_placement placement;
    cddp_status status;

    CDDPI_TRY_GOTO(end, status, cddpi_placement_init(spec, &placement));
    CDDPI_TRY_GOTO(end, status,
                   pairs ? put_stages(config, devices, &placement)
                         : put_places(config, devices, &placement));
    status = cddpi_config_name_key(config, key,
                                   cddpi_placement_segments(&placement, out, out_count));
end:
    cddpi_placement_fini(&placement);
    return status;
}

/* Make one stage per device, in order, beginning where the configuration says; otherwise rank 0
 * measures for all ranks. */
static cddp_status divide_layers(const struct cddpi_config *config,
                                 const struct cddpi_model_spec *spec, cddp_group *group,
                                 int samples, int count, struct cddpi_layer_range *ranges)
{
    const struct cddpi_stage_names *stages = &config->parallel.stages;

    if (cddpi_config_names_stages(config)) {
        CDDPI_TRY(check_stage_count(config, stages->count + 1, count));
        return cddpi_config_name_key(
            config, "parallel.stages",
            cddpi_stages_from_names(spec, stages->values, count - 1, ranges));
    }
    if (group == NULL || cddp_group_rank(group) == 0) {
        CDDPI_TRY(cddpi_config_name_key(config, "train.devices",
                                        cddpi_stages_measured(spec, samples, count, ranges)));
    }
    return group != NULL
               ? cddp_broadcast(group, ranges, (size_t)count * sizeof *ranges, CDDP_U8, 0, NULL)
               : CDDP_OK;
}

static cddp_status from_division(const struct cddpi_config *config,
                                 const struct cddpi_model_spec *spec, cddp_group *group,
                                 int samples, int count, struct cddpi_segment **out)
{
    struct cddpi_layer_range *ranges = cddpi_zalloc_array((size_t)count, sizeof *ranges);
    struct cddpi_segment *segments = cddpi_zalloc_array((size_t)count, sizeof *segments);
    cddp_status status = ranges != NULL && segments != NULL
                             ? divide_layers(config, spec, group, samples, count, ranges)
                             : cddpi_fail(CDDP_ERR_NO_MEMORY, "parallel: no memory for %d stages",
                                          count);

    for (int s = 0; status == CDDP_OK && s < count; s++) {
        segments[s] = (struct cddpi_segment){ranges[s], s};
    }
    cddpi_free(ranges);
    if (status != CDDP_OK) {
        cddpi_free(segments);
        return status;
    }
    *out = segments;
    return CDDP_OK;
}

/* Put all layers on the first device. */
static cddp_status put_all(const struct cddpi_model_spec *spec, struct cddpi_segment **out,
                           int *out_count)
{
    struct cddpi_segment *segment = cddpi_zalloc(sizeof *segment);
    bool has_params;
    cddp_status status = segment != NULL
                             ? cddpi_model_layer_has_params(spec, 0, &has_params,
                                                            &segment->layers.end)
                             : cddpi_fail(CDDP_ERR_NO_MEMORY, "parallel: no memory for a segment");

    if (status != CDDP_OK) {
        cddpi_free(segment);
        return status;
    }
    *out = segment;
    *out_count = 1;
    return CDDP_OK;
}

/* Open the configured devices, and decide which layers are on which of them.
 * @param group    If nothing is configured, rank 0 measures for the group; NULL: this rank
 *                 measures.
 * @param samples  Of a micro-batch, for measuring.
 * @param devices  Release with cddp_devices_destroy(), also after a failure.
 * @param out      Release with cddpi_free(). */
static cddp_status find_placement(const struct cddpi_config *config,
                                  const struct cddpi_model_spec *spec, cddp_group *group,
                                  int samples, cddp_devices **devices, struct cddpi_segment **out,
                                  int *out_count)
{
    CDDPI_TRY(cddpi_own_devices_open(config, group, devices));
    if (config->train.offload_optimizer) {
        return put_all(spec, out, out_count);
    }
    if (config->parallel.placement[0] != '\0' || config->parallel.stages.pairs) {
        return from_places(config, spec, *devices, out, out_count);
    }
    *out_count = (*devices)->count;
    return from_division(config, spec, group, samples, *out_count, out);
}

/* --- building --- */

/* Refuse what segments on a GPU cannot do. */
static cddp_status check_gpus(const struct cddpi_config *config,
                              const struct cddpi_placed_engine *placed)
{
    if (!cddpi_devices_have_gpu(placed->own.devices)) {
        return CDDP_OK;
    }
    if (cddpi_config_has_sync(config)) {
        return cddpi_config_fail(config, "parallel.type",
                                 "several devices of a rank, of which one is a GPU, cannot take "
                                 "statistics of batch_norm over all ranks (sync)");
    }
    return placed->pipelined && config->parallel.schedule == CDDPI_PIPELINE_ZERO_BUBBLE
               ? cddpi_config_fail(
                     config, "parallel.schedule",
                     "zero_bubble is for CPUs: if one device is a GPU, choose 1f1b or gpipe")
               : CDDP_OK;
}

/* Whether each device has one stage, in their order. */
static bool is_chain(const struct cddpi_segment *segments, int count)
{
    for (int s = 0; s < count; s++) {
        if (segments[s].device != s) {
            return false;
        }
    }
    return count > 1;
}

/* How many micro-batches of a step are under way at once, or pass through the devices one after
 * another (1). By position, that does not change results, so it is done where the schedule can. */
static int micro_batches_of(const struct cddpi_trainer *trainer,
                            const struct cddpi_segment *segments, int count)
{
    const struct cddpi_config *config = trainer->config;
    int64_t all = cddpi_trainer_micro_batches(config, trainer->replicas.count);
    bool in_order = config->parallel.schedule == CDDPI_PIPELINE_GPIPE;

    if (!cddpi_trainer_by_position(config)) {
        return config->parallel.micro_batches > 1 ? (int)all : 1;
    }
    return (in_order && count > 1 && all <= CDDPI_MODEL_SLOTS) ||
                   (!in_order && is_chain(segments, count))
               ? (int)all
               : 1;
}

static cddp_status check_arrivals(const struct cddpi_placed_engine *placed)
{
    return cddpi_env(CDDPI_ENV_ARRIVALS) != NULL && placed->pipelined
               ? cddpi_fail(CDDP_ERR_UNAVAILABLE,
                            "CDDP_ARRIVALS: gradients of several devices arrive in an order that "
                            "is not the same in every run, and is not written down; unset it")
               : CDDP_OK;
}

static cddp_status create_model(struct cddpi_trainer *trainer, const struct cddpi_model_spec *spec,
                                const struct cddpi_placed_options *options)
{
    const struct cddpi_config *config = trainer->config;
    struct cddpi_placed_engine *placed = cddpi_placed_engine_of(trainer);

    placed->pipelined = options->micro_batches > 1;
    CDDPI_TRY(check_arrivals(placed));
    CDDPI_TRY(check_gpus(config, placed));
    return cddpi_config_name_key(
        config, placed->pipelined ? "parallel.schedule" : "parallel.type",
        cddpi_placed_create(spec, (uint64_t)config->train.seed, options, &placed->model));
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
        .micro_batches = micro_batches_of(trainer, segments, count),
        .separate = cddpi_trainer_by_position(config),
        .group = trainer->group,
        .timeout_ms = cddpi_group_timeout_ms(trainer->group),
    };

    if (count > CDDPI_TRAINER_CHUNKS) {
        return cddpi_config_fail(config, "parallel.placement",
                                 "goes %d times from device to device, and at most %d are possible",
                                 count - 1, CDDPI_TRAINER_CHUNKS - 1);
    }
    CDDPI_TRY(create_model(trainer, spec, &options));
    if (!options.separate || !placed->pipelined || !cddpi_placed_is_tied(placed->model) ||
        (!cddpi_devices_have_gpu(placed->own.devices) &&
         options.schedule != CDDPI_PIPELINE_ZERO_BUBBLE)) {
        return CDDP_OK;
    }
    cddpi_placed_destroy(placed->model);
    placed->model = NULL;
    options.micro_batches = 1;
    return create_model(trainer, spec, &options);
}

cddp_status cddpi_placed_engine_build(struct cddpi_trainer *trainer,
                                      const struct cddpi_model_spec *spec)
{
    const struct cddpi_config *config = trainer->config;
    int samples = (int)cddpi_trainer_micro_batch(config, trainer->replicas.count);
    struct cddpi_placed_engine *placed;
    struct cddpi_segment *segments = NULL;
    int count = 0;
    cddp_status status;

    placed = cddpi_zalloc(sizeof *placed);
    CDDPI_TRY_MEMORY(placed != NULL, "parallel: no memory for %zu bytes", sizeof *placed);
    trainer->engine_state = placed;
    status = find_placement(config, spec, trainer->group, samples, &placed->own.devices, &segments,
                            &count);
    if (status == CDDP_OK) {
        status = create_segments(trainer, spec, segments, count);
    }
    cddpi_free(segments);
    CDDPI_TRY(status);
    trainer->models.count = count;
    for (int s = 0; s < count; s++) {
        trainer->models.list[s] = (struct cddpi_trainer_model){
            .model = cddpi_placed_model(placed->model, s), .trainer = trainer};
    }
    trainer->model = trainer->models.list[0].model;
    trainer->params.list = cddpi_placed_params(placed->model, &trainer->params.count);
    trainer->buffers.list = cddpi_placed_buffers(placed->model, &trainer->buffers.count);
    return CDDP_OK;
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
                                         const struct cddpi_model_spec *spec, int replicas,
                                         int samples, FILE *file)
{
    struct cddpi_segment *segments = NULL;
    cddp_devices *devices = NULL;
    int count = 0;
    cddp_status status;

    (void)replicas;
    if (config->parallel.type != CDDPI_PARALLEL_MODEL) {
        return CDDP_OK;
    }
    CDDPI_TRY_GOTO(end, status,
                   find_placement(config, spec, NULL, samples, &devices, &segments, &count));
    fprintf(file, "devices of each rank: %d\n", devices->count);
    for (int s = 0; s < count; s++) {
        const char *device = devices->cores[segments[s].device].name;

        CDDPI_TRY_GOTO(end, status, print_segment(spec, &segments[s], device, file));
    }
end:
    cddpi_free(segments);
    cddp_devices_destroy(devices);
    return status;
}
