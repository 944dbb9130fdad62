/* own_devices.c - owns the common part of engines whose ranks open several devices: checks of the
 * configuration, opening the devices that it names (train.devices, parallel.devices or
 * parallel.placement), and reports. */
#include "train/engines/own_devices.h"

#include "base/alloc.h"
#include "base/error.h"
#include "group/group_info.h"
#include "train/telemetry/train_report.h"

#include <string.h>

cddp_status cddpi_own_devices_check(const struct cddpi_config *config)
{
    const char *of_stages = "is for stages over ranks (parallel.pipeline): leave this out";
    const struct cddpi_config_rule rules[] = {
        {config->train.offload_optimizer, "train.offload_optimizer",
         "if a rank has several devices, the optimizer is always in CPU memory: "
         "leave this out"},
        {config->parallel.pipeline > 1, "parallel.pipeline",
         "is for stages over ranks, where parallel.type = \"ranks\""},
        {config->train.device == CDDPI_TRAIN_ON_CUDA, "train.device",
         "with parallel.type = \"model_parallel\" or \"data_parallel\" train.devices or "
         "parallel.placement name the GPUs: leave this out"},
        {config->parallel.balance != 0, "parallel.balance", of_stages},
        {config->parallel.memory_bytes > 0, "parallel.memory_bytes", of_stages},
        {config->parallel.recompute.count > 0, "parallel.recompute", of_stages},
    };

    return cddpi_config_check_rules(config, rules, sizeof rules / sizeof *rules);
}

cddp_status cddpi_own_devices_check_generate(const struct cddpi_config *config)
{
    return config->train.generate_steps > 0
               ? cddpi_config_fail(
                     config, "train.generate_steps",
                     "a model on several devices, or with its optimizer not on its GPU, cannot "
                     "generate text during training. Use cddp-train --generate with a checkpoint")
               : CDDP_OK;
}

cddp_status cddpi_own_devices_add_late(const struct cddpi_trainer *trainer,
                                       struct cddpi_loss_result late, struct cddpi_loss_result *out)
{
    out->loss_sum += late.loss_sum;
    out->correct += late.correct;
    return cddpi_trainer_check_loss(trainer, trainer->cursor.step + 1, late.loss_sum);
}

cddp_status cddpi_own_devices_param_wait(void *ddp, size_t index)
{
    return cddp_ddp_param_wait(ddp, index);
}

int cddpi_own_devices_count(const struct cddpi_trainer *trainer)
{
    const cddp_devices *devices = cddpi_own_devices_of(trainer);

    return devices->count + (cddpi_devices_have_gpu(devices) ? 1 : 0);
}

void cddpi_own_devices_name(const struct cddpi_trainer *trainer, int device, char *out,
                            size_t bytes)
{
    const cddp_devices *devices = cddpi_own_devices_of(trainer);

    snprintf(out, bytes, "%s", device == devices->count ? "process" : devices->cores[device].name);
}

/* A parameter is reduced and updated where it is. For a GPU, that is host memory, and the GPU has
 * only a copy. */
void cddpi_own_devices_add_param(const struct cddpi_trainer *trainer, size_t index, int device,
                                 struct cddpi_held_memory *all)
{
    const cddp_devices *devices = cddpi_own_devices_of(trainer);

    if (cddpi_device_is_async(devices->cores[device].device)) {
        device = devices->count;
        all[device].parameters += cddpi_tensors_bytes(&trainer->params.list[index], 1);
    }
    cddpi_trainer_add_param_memory(trainer, index, &all[device]);
}

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
                     "\"%s%s%s\" is not LAYER=DEVICE, as in \"layer1=cpu:0, fc=cpu:1\"",
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
    char *values[CDDP_MAX_PARALLEL_DEVICES];
    int count;
};

static cddp_status add_name(const struct cddpi_config *config, const char *key, const char *name,
                            struct device_names *out)
{
    if (out->count == CDDP_MAX_PARALLEL_DEVICES) {
        return cddpi_config_fail(config, key, "names more than %d devices",
                                 CDDP_MAX_PARALLEL_DEVICES);
    }
    out->values[out->count] = cddpi_strdup(name);
    CDDPI_TRY_MEMORY(out->values[out->count] != NULL,
                     "parallel: no memory for the names of devices");
    out->count++;
    return CDDP_OK;
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
                                 const struct cddpi_text_list *devices, const char *key,
                                 struct device_names *out)
{
    const char *text = config->parallel.placement;
    struct cddpi_device_place place;

    if (config->train.offload_optimizer) { /* there is no list of devices then */
        return add_name(config, "train.device", "cuda", out);
    }
    for (int i = 0; i < devices->count; i++) {
        CDDPI_TRY(add_name(config, key, devices->values[i], out));
    }
    while (devices->count == 0 && cddpi_device_place_next(&text, &place)) {
        CDDPI_TRY(cddpi_device_place_check(config, &place));
        if (find_name(out->values, out->count, place.device) == out->count) {
            CDDPI_TRY(add_name(config, "parallel.placement", place.device, out));
        }
    }
    return CDDP_OK;
}

cddp_status cddpi_own_devices_open(const struct cddpi_config *config, const cddp_group *group,
                                   cddp_devices **out)
{
    const struct cddpi_text_list *devices = config->parallel.devices.count > 0
                                                ? &config->parallel.devices
                                                : &config->train.devices;
    const char *key = devices_key(config);
    struct cddpi_devices_place place = {-1, 1, 0, 1};
    struct device_names names = {.count = 0};
    cddp_status status;

    CDDPI_TRY(check_subset(config));
    CDDPI_TRY_GOTO(end, status, collect_names(config, devices, key, &names));
    if (names.count == 0) {
        status = cddpi_config_fail(config, "parallel.type", "%s",
                                   config->parallel.type == CDDPI_PARALLEL_DATA
                                       ? "\"data_parallel\" needs parallel.devices"
                                       : "\"model_parallel\" needs train.devices, or "
                                         "parallel.placement that names them");
        goto end;
    }
    if (group != NULL) {
        place = (struct cddpi_devices_place){cddp_group_rank(group), cddp_group_world_size(group),
                                             cddpi_group_local_rank(group),
                                             cddpi_group_local_world_size(group)};
    }
    status = cddpi_devices_open((const char *const *)names.values, names.count, &place, out);
    if (status == CDDP_ERR_ARGUMENT || status == CDDP_ERR_UNAVAILABLE) {
        status = cddpi_config_prefix(config, key, CDDP_ERR_CONFIG);
    }
end:
    for (int i = 0; i < names.count; i++) {
        cddpi_free(names.values[i]);
    }
    return status;
}
