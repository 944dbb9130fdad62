/* own_devices_open.c - opens the devices that train.conf names: train.devices, parallel.devices or
 * parallel.placement. */
#include "base/alloc.h"
#include "base/error.h"
#include "train/engines/own_devices.h"

#include <string.h>

static void copy_trimmed(const char *from, size_t length, char out[CDDPI_PLACE_NAME_BYTES])
{
    while (length > 0 && *from == ' ') {
        from++;
        length--;
    }
    while (length > 0 && from[length - 1] == ' ') {
        length--;
    }
    length = length < CDDPI_PLACE_NAME_BYTES ? length : CDDPI_PLACE_NAME_BYTES - 1;
    memcpy(out, from, length);
    out[length] = '\0';
}

bool cddpi_device_place_next(const char **text, struct cddpi_device_place *out)
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

cddp_status cddpi_device_place_check(const struct cddpi_config *config,
                                     const struct cddpi_device_place *place)
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
struct device_names {
    char *values[CDDP_PARALLEL_DEVICES];
    int count;
};

static void fini_names(struct device_names *names)
{
    for (int i = 0; i < names->count; i++) {
        cddpi_free(names->values[i]);
    }
}

static cddp_status add_name(const struct cddpi_config *config, const char *key, const char *name,
                            struct device_names *out)
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

static cddp_status collect_names(const struct cddpi_config *config, struct device_names *out)
{
    const struct cddpi_text_list *devices = named_devices(config);
    const char *text = config->parallel.placement;
    struct cddpi_device_place place;
    cddp_status status = CDDP_OK;

    out->count = 0;
    if (config->train.offload_optimizer) { /* there is no list of devices then */
        return add_name(config, "train.device", "cuda", out);
    }
    for (int i = 0; status == CDDP_OK && i < devices->count; i++) {
        status = add_name(config, devices_key(config), devices->values[i], out);
    }
    while (status == CDDP_OK && devices->count == 0 && cddpi_device_place_next(&text, &place)) {
        status = cddpi_device_place_check(config, &place);
        if (status == CDDP_OK && find_name(out->values, out->count, place.device) == out->count) {
            status = add_name(config, "parallel.placement", place.device, out);
        }
    }
    return status;
}

cddp_status cddpi_own_devices_open(const struct cddpi_config *config, const cddp_group *group,
                                   cddp_devices **out)
{
    const char *key = devices_key(config);
    struct cddpi_devices_place place = {-1, 1, 0, 1};
    struct device_names names = {.count = 0};
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
