/* replicated_engine.c - owns the engine for copies of the model on several devices of each rank
 * (parallel.type = "data_parallel"). */
#include "base/alloc.h"
#include "base/error.h"
#include "parallel/placed/placement.h"
#include "parallel/replicated/replicated.h"
#include "train/engines/own_devices.h"

#include <string.h>

struct replicated_engine {
    struct cddpi_own_devices own;
    struct cddpi_replicated *model;
};

static struct cddpi_replicated *model_of(const struct cddpi_trainer *trainer)
{
    return ((struct replicated_engine *)trainer->engine_state)->model;
}

static cddp_status check(const struct cddpi_config *config, int world_size)
{
    const struct cddpi_config_rule rules[] = {
        {config->parallel.stages.count > 0, "parallel.stages",
         "with parallel.type = \"data_parallel\" each device has all layers"},
        {config->parallel.micro_batches > 1, "parallel.micro_batches",
         "is for pipelines; with parallel.type = \"data_parallel\" train.accumulate makes "
         "micro-batches"},
        {cddpi_config_has_sync(config), "parallel.type",
         "\"data_parallel\" cannot take statistics of batch_norm over all devices (sync): start a "
         "rank for each device"},
    };

    (void)world_size;
    CDDPI_TRY(cddpi_own_devices_check(config));
    CDDPI_TRY(cddpi_config_check_rules(config, rules, sizeof rules / sizeof *rules));
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

/* @p out is zeroed: all layers. */
static cddp_status copied_layers(const struct cddpi_config *config,
                                 const struct cddpi_model_spec *spec, struct cddpi_layer_range *out)
{
    const struct cddpi_text_list *names = &config->parallel.layers;

    return names->count > 0 ? cddpi_config_name_key(
                                  config, "parallel.layers",
                                  cddpi_replicated_layers(spec, names->values, names->count, out))
                            : CDDP_OK;
}

static cddp_status create_replicas(struct cddpi_trainer *trainer,
                                   const struct cddpi_model_spec *spec)
{
    const struct cddpi_config *config = trainer->config;
    struct replicated_engine *state = trainer->engine_state;
    const char *key = config->parallel.layers.count > 0 ? "parallel.layers" : "parallel.type";
    struct cddpi_layer_range layers = {0, 0};
    int output_device = 0;

    CDDPI_TRY(cddpi_own_devices_open(config, trainer->group, &state->own.devices));
    CDDPI_TRY(output_device_of(config, state->own.devices, &output_device));
    CDDPI_TRY(copied_layers(config, spec, &layers));
    return cddpi_config_name_key(config, key,
                                 cddpi_replicated_create(spec, (uint64_t)config->train.seed,
                                                         state->own.devices, output_device, layers,
                                                         &state->model));
}

/* Copy the model to each device of this rank. */
static cddp_status build(struct cddpi_trainer *trainer, const struct cddpi_model_spec *spec)
{
    struct cddpi_model *models[3];
    struct cddpi_replicated *replicated;

    trainer->engine_state = cddpi_zalloc(sizeof(struct replicated_engine));
    CDDPI_TRY_MEMORY(trainer->engine_state != NULL, "parallel: no memory for %zu bytes",
                     sizeof(struct replicated_engine));
    CDDPI_TRY(create_replicas(trainer, spec));
    replicated = model_of(trainer);
    cddpi_replicated_trace(replicated, trainer->group);
    trainer->models.count = cddpi_replicated_models(replicated, models);
    for (int m = 0; m < trainer->models.count; m++) {
        trainer->models.list[m] = (struct cddpi_trainer_model){.model = models[m],
                                                               .trainer = trainer};
    }
    trainer->model = models[0];
    trainer->params.list = cddpi_replicated_params(replicated, &trainer->params.count);
    trainer->buffers.list = cddpi_replicated_buffers(replicated, &trainer->buffers.count);
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

static cddp_status describe(const struct cddpi_config *config, const struct cddpi_model_spec *spec,
                            int replicas, int samples, FILE *file)
{
    cddp_devices *devices = NULL;
    cddp_status status;

    (void)replicas;
    CDDPI_TRY(cddpi_own_devices_open(config, NULL, &devices));
    status = print_copies(config, spec, devices, samples, file);
    cddp_devices_destroy(devices);
    return status;
}

static bool fits(const struct cddpi_config *config)
{
    return config->parallel.type == CDDPI_PARALLEL_DATA;
}

static cddp_status forward(struct cddpi_trainer *trainer, const struct cddpi_batch *batch,
                           bool training, struct cddpi_loss_result *out)
{
    return cddpi_replicated_forward(model_of(trainer), batch, training, out);
}

static cddp_status backward(struct cddpi_trainer *trainer, double scale, bool accumulate,
                            cddpi_grad_ready_fn ready, void *context, struct cddpi_loss_result *out)
{
    CDDPI_TRY(cddpi_replicated_backward(model_of(trainer), scale, accumulate, ready, context));
    return cddpi_own_devices_add_late(trainer, cddpi_replicated_late(model_of(trainer)), out);
}

static void bind_grads(struct cddpi_trainer *trainer)
{
    cddpi_replicated_bind_grads(model_of(trainer), trainer->step.grads);
}

/* Parameters are in host memory, and have no 16-bit copies there. */
static void bind_params(struct cddpi_trainer *trainer, void *const *data, void *const *copies)
{
    (void)copies;
    cddpi_replicated_bind_params(model_of(trainer), data);
    cddpi_replicated_on_param(model_of(trainer), cddpi_own_devices_param_wait, trainer->ddp);
}

static bool param_decays(const struct cddpi_trainer *trainer, size_t index)
{
    return cddpi_replicated_param_decays(model_of(trainer), index);
}

static void ready_order(const struct cddpi_trainer *trainer, size_t *out)
{
    memcpy(out, cddpi_replicated_ready_order(model_of(trainer)),
           trainer->params.count * sizeof *out);
}

static void add_memory(const struct cddpi_trainer *trainer, struct cddpi_held_memory *all)
{
    cddpi_replicated_add_memory(model_of(trainer), all);
    for (size_t i = 0; i < trainer->params.count; i++) {
        cddpi_own_devices_add_param(trainer, i, 0, all);
    }
}

static void destroy(struct cddpi_trainer *trainer)
{
    struct replicated_engine *replicated = trainer->engine_state;

    if (replicated != NULL) {
        cddpi_replicated_destroy(replicated->model);
        cddp_devices_destroy(replicated->own.devices);
        cddpi_free(replicated);
    }
    trainer->engine_state = NULL;
}

const struct cddpi_engine cddpi_engine_replicated = {
    CDDPI_OWN_DEVICES_ROW,
    .fits = fits,
    .check = check,
    .describe = describe,
    .build = build,
    .destroy = destroy,
    .bind_grads = bind_grads,
    .bind_params = bind_params,
    .param_decays = param_decays,
    .ready_order = ready_order,
    .compute = cddpi_single_compute,
    .forward = forward,
    .backward = backward,
    .add_memory = add_memory,
};
