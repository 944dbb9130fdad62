/* placed_engine_placement.c - turns train.conf into devices and the layers on each: train.devices,
 * parallel.devices, parallel.placement and parallel.stages. */
#include "base/alloc.h"
#include "base/error.h"
#include "parallel/divide.h"
#include "train/engines/placed/placed_engine.h"
#include "train/engines/stages/division.h"

#include <string.h>

enum { NAME_BYTES = 200 };

/* One entry of parallel.placement: "layer1=cpu:0". */
struct placed_engine_placement_place {
    char layer[NAME_BYTES], device[NAME_BYTES];
};

static void copy_trimmed(const char *from, size_t length, char out[NAME_BYTES])
{
    while (length > 0 && *from == ' ') {
        from++;
        length--;
    }
    while (length > 0 && from[length - 1] == ' ') {
        length--;
    }
    length = length < NAME_BYTES ? length : NAME_BYTES - 1;
    memcpy(out, from, length);
    out[length] = '\0';
}

/* Read the entry at *@p text, and move *@p text past it. Returns false if there are no more
 * entries. */
static bool next_place(const char **text, struct placed_engine_placement_place *out)
{
    size_t length = strcspn(*text, ",");
    size_t layer = strcspn(*text, "=");

    if (length == 0 && **text == '\0') {
        return false;
    }
    layer = layer < length ? layer : length;
    copy_trimmed(*text, layer, out->layer);
    copy_trimmed(*text + layer + (layer < length ? 1 : 0),
                 length - layer - (layer < length ? 1 : 0), out->device);
    *text += length + ((*text)[length] == ',' ? 1 : 0);
    return true;
}

static cddp_status check_place(const struct cddpi_config *config,
                               const struct placed_engine_placement_place *place)
{
    return place->layer[0] != '\0' && place->device[0] != '\0'
               ? CDDP_OK
               : cddpi_config_fail(
                     config, "parallel.placement",
                     "\"%s%s%s\" is no LAYER=DEVICE, as in \"layer1=cpu:0, fc=cpu:1\"",
                     place->layer, place->device[0] != '\0' ? "=" : "", place->device);
}

static int find_name(char *const *names, int count, const char *name)
{
    int i = 0;

    while (i < count && strcmp(names[i], name) != 0) {
        i++;
    }
    return i;
}

/* The devices' names, from parallel.devices or train.devices, or else from parallel.placement. */
struct placed_engine_placement_names {
    char *values[CDDP_PARALLEL_DEVICES];
    int count;
};

static void fini_names(struct placed_engine_placement_names *names)
{
    for (int i = 0; i < names->count; i++) {
        cddpi_free(names->values[i]);
    }
}

static cddp_status add_name(const struct cddpi_config *config, const char *key, const char *name,
                            struct placed_engine_placement_names *out)
{
    if (out->count == CDDP_PARALLEL_DEVICES) {
        return cddpi_config_fail(config, key, "names more than %d devices", CDDP_PARALLEL_DEVICES);
    }
    out->values[out->count] = cddpi_strdup(name);
    if (out->values[out->count] == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "parallel: no memory for the names of devices");
    }
    out->count++;
    return CDDP_OK;
}

/* The list of devices in the configuration; it may be empty. */
static const struct cddpi_text_list *named_devices(const struct cddpi_config *config)
{
    return config->parallel.devices.count > 0 ? &config->parallel.devices : &config->train.devices;
}

static const char *devices_key(const struct cddpi_config *config)
{
    if (config->train.offload_optimizer) {
        return "train.device";
    }
    if (config->parallel.devices.count > 0) {
        return "parallel.devices";
    }
    return config->train.devices.count > 0 ? "train.devices" : "parallel.placement";
}

/* Check that parallel.devices is a subset of train.devices. */
static cddp_status check_subset(const struct cddpi_config *config)
{
    const struct cddpi_text_list *all = &config->train.devices;
    const struct cddpi_text_list *some = &config->parallel.devices;

    for (int i = 0; all->count > 0 && i < some->count; i++) {
        if (find_name(all->values, all->count, some->values[i]) == all->count) {
            return cddpi_config_fail(config, "parallel.devices",
                                     "\"%s\" is not one of train.devices", some->values[i]);
        }
    }
    return CDDP_OK;
}

static cddp_status collect_names(const struct cddpi_config *config,
                                 struct placed_engine_placement_names *out)
{
    const struct cddpi_text_list *devices = named_devices(config);
    const char *text = config->parallel.placement;
    struct placed_engine_placement_place place;
    cddp_status status = CDDP_OK;

    out->count = 0;
    if (config->train.offload_optimizer) { /* there is no list of devices then */
        return add_name(config, "train.device", "cuda", out);
    }
    for (int i = 0; status == CDDP_OK && i < devices->count; i++) {
        status = add_name(config, devices_key(config), devices->values[i], out);
    }
    while (status == CDDP_OK && devices->count == 0 && next_place(&text, &place)) {
        status = check_place(config, &place);
        if (status == CDDP_OK && find_name(out->values, out->count, place.device) == out->count) {
            status = add_name(config, "parallel.placement", place.device, out);
        }
    }
    return status;
}

cddp_status cddpi_trainer_open_devices(const struct cddpi_config *config, const cddp_group *group,
                                       cddp_devices **out)
{
    const char *key = devices_key(config);
    struct cddpi_devices_place place = {-1, 1, 0, 1};
    struct placed_engine_placement_names names = {.count = 0};
    cddp_status status = check_subset(config);

    if (status == CDDP_OK) {
        status = collect_names(config, &names);
    }
    if (status == CDDP_OK && names.count == 0) {
        status = config->parallel.type == CDDPI_PARALLEL_DATA
                     ? cddpi_config_fail(config, "parallel.type",
                                         "\"data_parallel\" needs parallel.devices")
                     : cddpi_config_fail(config, "parallel.type",
                                         "\"model_parallel\" needs train.devices, or "
                                         "parallel.placement that names them");
    } else if (status == CDDP_OK) {
        if (group != NULL) {
            place = (struct cddpi_devices_place){
                cddp_group_rank(group), cddp_group_world_size(group), cddp_group_local_rank(group),
                cddp_group_local_world_size(group)};
        }
        status = cddpi_devices_open((const char *const *)names.values, names.count, &place, out);
        if (status == CDDP_ERR_ARGUMENT || status == CDDP_ERR_UNAVAILABLE) {
            status = cddpi_config_fail(config, key, "%s", cddp_last_error());
        }
    }
    fini_names(&names);
    return status;
}

/* Assign layers by parallel.placement. */
static cddp_status put_places(const struct cddpi_config *config, const cddp_devices *devices,
                              struct cddpi_placement *placement)
{
    const char *text = config->parallel.placement;
    struct placed_engine_placement_place place;
    cddp_status status = CDDP_OK;

    while (status == CDDP_OK && next_place(&text, &place)) {
        int device = 0;

        status = check_place(config, &place);
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
    cddp_status status = cddpi_trainer_open_devices(config, group, devices);

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
