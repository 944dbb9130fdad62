/* replicated_engine_setup.c - checks, builds and describes copies of a model on a rank's
 * devices. */
#include "base/alloc.h"
#include "base/error.h"
#include "parallel/placed/placement.h"
#include "train/engines/replicated/replicated_engine.h"

#include <string.h>

static cddp_status check_data_parallel(const struct cddpi_config *config)
{
    if (config->parallel.stages.count > 0) {
        return cddpi_config_fail(config, "parallel.stages",
                                 "with parallel.type = \"data_parallel\" each device has all "
                                 "layers");
    }
    if (config->parallel.micro_batches > 1) {
        return cddpi_config_fail(config, "parallel.micro_batches",
                                 "is for pipelines; with parallel.type = \"data_parallel\" "
                                 "train.accumulate makes micro-batches");
    }
    return cddpi_trainer_has_sync(config)
               ? cddpi_config_fail(config, "parallel.type",
                                   "\"data_parallel\" cannot take statistics of batch_norm over "
                                   "all devices (sync): start a rank for each device")
               : CDDP_OK;
}

cddp_status cddpi_replicated_engine_check(const struct cddpi_config *config, int world_size)
{
    (void)world_size;
    CDDPI_TRY(cddpi_own_devices_check(config));
    CDDPI_TRY(check_data_parallel(config));
    return cddpi_own_devices_check_generate(config);
}

static cddp_status output_device_of(const struct cddpi_config *config, const cddp_devices *devices,
                                    int *out)
{
    const char *name = config->parallel.output_device;
    int device = 0;

    while (name[0] != '\0' && device < devices->count &&
           strcmp(devices->cores[device].name, name) != 0) {
        device++;
    }
    *out = device;
    if (device < devices->count && device > 0 && config->parallel.layers.count > 0) {
        return cddpi_config_fail(config, "parallel.output_device",
                                 "is \"%s\", but outputs of parallel.layers go to the other "
                                 "layers, which are on the first device: leave this out",
                                 name);
    }
    return device < devices->count
               ? CDDP_OK
               : cddpi_config_fail(config, "parallel.output_device",
                                   "\"%s\" is not one of parallel.devices", name);
}

static cddp_status copied_layers(const struct cddpi_config *config,
                                 const struct cddpi_model_spec *spec, struct cddpi_layer_range *out)
{
    const struct cddpi_text_list *names = &config->parallel.layers;
    cddp_status status = CDDP_OK;

    *out = (struct cddpi_layer_range){0, 0};
    if (names->count > 0) {
        status = cddpi_replicated_layers(spec, names->values, names->count, out);
    }
    return status == CDDP_ERR_CONFIG
               ? cddpi_config_fail(config, "parallel.layers", "%s", cddp_last_error())
               : status;
}

static cddp_status create_replicas(struct cddpi_trainer *trainer,
                                   const struct cddpi_model_spec *spec)
{
    const struct cddpi_config *config = trainer->config;
    struct cddpi_replicated_engine *own = cddpi_replicated_engine_of(trainer);
    struct cddpi_layer_range layers = {0, 0};
    int output_device = 0;
    cddp_status status;

    CDDPI_TRY(cddpi_own_devices_open(config, trainer->group, &own->own.devices));
    CDDPI_TRY(output_device_of(config, own->own.devices, &output_device));
    CDDPI_TRY(copied_layers(config, spec, &layers));
    status = cddpi_replicated_create(spec, (uint64_t)config->train.seed, own->own.devices,
                                     output_device, layers, &own->model);
    return status == CDDP_ERR_CONFIG
               ? cddpi_config_fail(config,
                                   config->parallel.layers.count > 0 ? "parallel.layers"
                                                                     : "parallel.type",
                                   "%s", cddp_last_error())
               : status;
}

cddp_status cddpi_replicated_engine_build(struct cddpi_trainer *trainer,
                                          const struct cddpi_model_spec *spec)
{
    struct cddpi_model *models[3];
    struct cddpi_replicated *replicated;

    trainer->engine_state = cddpi_zalloc(sizeof(struct cddpi_replicated_engine));
    if (trainer->engine_state == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "parallel: no memory for %zu bytes",
                          sizeof(struct cddpi_replicated_engine));
    }
    CDDPI_TRY(create_replicas(trainer, spec));
    replicated = cddpi_replicated_engine_of(trainer)->model;
    cddpi_replicated_trace(replicated, trainer->group);
    trainer->model_count = cddpi_replicated_models(replicated, models);
    for (int m = 0; m < trainer->model_count; m++) {
        trainer->models[m] = (struct cddpi_trainer_model){.model = models[m], .trainer = trainer};
    }
    trainer->model = models[0];
    trainer->params = cddpi_replicated_params(replicated, &trainer->param_count);
    trainer->buffers = cddpi_replicated_buffers(replicated, &trainer->buffer_count);
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

    CDDPI_TRY(output_device_of(config, devices, &output_device));
    CDDPI_TRY(copied_layers(config, spec, &layers));
    if (layers.end == 0) {
        fprintf(file,
                "devices of each rank: %d, each with a copy of the model and up to %d samples; "
                "their outputs come together on %s\n",
                devices->count, each, devices->cores[output_device].name);
        return CDDP_OK;
    }
    CDDPI_TRY(cddpi_model_layer_name(spec, layers.first, first, sizeof first));
    CDDPI_TRY(cddpi_model_layer_name(spec, layers.end - 1, last, sizeof last));
    fprintf(file,
            "devices of each rank: %d, each with a copy of %s to %s and up to %d samples; "
            "the other layers are on %s\n",
            devices->count, first, last, each, devices->cores[0].name);
    return CDDP_OK;
}

cddp_status cddpi_replicated_engine_describe(const struct cddpi_config *config,
                                             const struct cddpi_model_spec *spec, int samples,
                                             FILE *file)
{
    cddp_devices *devices = NULL;
    cddp_status status;

    CDDPI_TRY(cddpi_own_devices_open(config, NULL, &devices));
    status = print_copies(config, spec, devices, samples, file);
    cddp_devices_destroy(devices);
    return status;
}
