/* placed_engine_placement.c - decides which layers are on which device of a rank:
 * parallel.placement, parallel.stages, or stages of equal time. */
#include "base/alloc.h"
#include "base/error.h"
#include "parallel/divide.h"
#include "train/engines/placed/placed_engine.h"
#include "train/engines/stages/division.h"

#include <string.h>

/* Assign layers by parallel.placement. */
static cddp_status put_places(const struct cddpi_config *config, const cddp_devices *devices,
                              struct cddpi_placement *placement)
{
    const char *text = config->parallel.placement;
    struct cddpi_device_place place;
    cddp_status status = CDDP_OK;

    while (status == CDDP_OK && cddpi_device_place_next(&text, &place)) {
        int device = 0;

        status = cddpi_device_place_check(config, &place);
        while (device < devices->count && strcmp(devices->cores[device].name, place.device) != 0) {
            device++;
        }
        if (status == CDDP_OK && device == devices->count) {
            return cddpi_config_fail(config, "parallel.placement",
                                     "%s, the device of \"%s\", is not one of train.devices",
                                     place.device, place.layer);
        }
        if (status == CDDP_OK) {
            status = cddpi_placement_put(placement, place.layer, place.layer, device);
        }
    }
    return status == CDDP_ERR_CONFIG && place.layer[0] != '\0'
               ? cddpi_config_fail(config, "parallel.placement", "%s", cddp_last_error())
               : status;
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
    cddp_status status = check_stage_count(config, stages->count / 2, devices->count);

    if (status != CDDP_OK) {
        return status;
    }
    for (int s = 0; status == CDDP_OK && s < devices->count; s++) {
        status = cddpi_placement_put(placement, stages->values[2 * s], stages->values[2 * s + 1],
                                     s);
    }
    return status == CDDP_ERR_CONFIG
               ? cddpi_config_fail(config, "parallel.stages", "%s", cddp_last_error())
               : status;
}

/* Make the segments of a placement that the configuration gives layer by layer. */
static cddp_status from_places(const struct cddpi_config *config,
                               const struct cddpi_model_spec *spec, const cddp_devices *devices,
                               struct cddpi_segment **out, int *out_count)
{
    bool pairs = config->parallel.stages.pairs;
    struct cddpi_placement placement;
    cddp_status status = cddpi_placement_init(spec, &placement);

    if (status == CDDP_OK) {
        status = pairs ? put_stages(config, devices, &placement)
                       : put_places(config, devices, &placement);
    }
    if (status == CDDP_OK) {
        status = cddpi_placement_segments(&placement, out, out_count);
        if (status == CDDP_ERR_CONFIG) {
            status = cddpi_config_fail(config, pairs ? "parallel.stages" : "parallel.placement",
                                       "%s", cddp_last_error());
        }
    }
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
    bool named = cddpi_stages_are_named(config);
    cddp_status status = CDDP_OK;

    if (named) {
        status = check_stage_count(config, stages->count + 1, count);
        if (status != CDDP_OK) {
            return status;
        }
        status = cddpi_stages_from_names(spec, stages->values, count - 1, ranges);
    } else if (group == NULL || cddp_group_rank(group) == 0) {
        status = cddpi_stages_measured(spec, samples, count, ranges);
    }
    if (status == CDDP_ERR_CONFIG) {
        return cddpi_config_fail(config, named ? "parallel.stages" : "train.devices", "%s",
                                 cddp_last_error());
    }
    return status == CDDP_OK && !named && group != NULL
               ? cddp_broadcast(group, ranges, (size_t)count * sizeof *ranges, CDDP_U8, 0, NULL)
               : status;
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

cddp_status cddpi_trainer_placement(const struct cddpi_config *config,
                                    const struct cddpi_model_spec *spec, cddp_group *group,
                                    int samples, cddp_devices **devices, struct cddpi_segment **out,
                                    int *out_count)
{
    cddp_status status = cddpi_own_devices_open(config, group, devices);

    if (status != CDDP_OK) {
        return status;
    }
    if (config->train.offload_optimizer) {
        return put_all(spec, out, out_count);
    }
    if (config->parallel.placement[0] != '\0' || config->parallel.stages.pairs) {
        return from_places(config, spec, *devices, out, out_count);
    }
    *out_count = (*devices)->count;
    return from_division(config, spec, group, samples, *out_count, out);
}
