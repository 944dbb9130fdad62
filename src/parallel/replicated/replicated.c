/* replicated.c - owns the life of a model that several devices of one process have copies of. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/shape.h"
#include "parallel/replicated/state.h"

#include <string.h>

void cddpi_replicated_bind_grads(struct cddpi_replicated *replicated, void *const *grads)
{
    memcpy(replicated->grads, grads, replicated->param_count * sizeof *grads);
}

void cddpi_replicated_on_param(struct cddpi_replicated *replicated, cddpi_param_wait_fn wait,
                               void *context)
{
    replicated->wait = wait;
    replicated->wait_context = context;
}

void cddpi_replicated_trace(struct cddpi_replicated *replicated, cddp_group *traced)
{
    replicated->traced = traced;
}

struct cddpi_model *cddpi_replicated_model(const struct cddpi_replicated *replicated)
{
    return replicated->replicas[0].model;
}

struct cddpi_model *cddpi_replicated_loss(const struct cddpi_replicated *replicated)
{
    return replicated->loss;
}

void cddpi_replicated_add_memory(const struct cddpi_replicated *replicated,
                                 struct cddpi_held_memory *out)
{
    size_t outputs = 2 * (size_t)replicated->room * replicated->output_elements * sizeof(float);
    size_t count;

    for (int d = 0; d < replicated->devices->count; d++) {
        const struct cddpi_model *model = replicated->replicas[d].model;
        const cddp_param *params = cddpi_model_params(model, &count);

        cddpi_held_memory_add_model(&out[d], model);
        out[d].gradients += cddpi_tensors_bytes(params, count);
    }
    cddpi_held_memory_add_model(&out[replicated->output_device], replicated->loss);
    out[replicated->output_device].outputs += outputs;
}

/* --- life --- */

/* What a device's thread is to make. */
struct making {
    struct cddpi_replicated *replicated;
    struct cddpi_model_spec spec;
    uint64_t seed;
    int device;
    struct cddpi_model **out;
};

static cddp_status make_on(int device, void *arg)
{
    const struct making *making = arg;

    return device == making->device
               ? cddpi_model_create(&making->spec, making->seed, NULL, making->out)
               : CDDP_OK;
}

static cddp_status make_grads(struct cddpi_replica *replica)
{
    size_t count;
    const cddp_param *params = cddpi_model_params(replica->model, &count);

    replica->grads = cddpi_zalloc_array(count + 1, sizeof *replica->grads);
    for (size_t i = 0; replica->grads != NULL && i < count; i++) {
        replica->grads[i] = cddpi_alloc_aligned(cddpi_elements(params[i].dims, params[i].shape) *
                                                sizeof(float));
        if (replica->grads[i] == NULL) {
            return cddpi_fail(CDDP_ERR_NO_MEMORY, "parallel: no memory for a gradient of %s",
                              params[i].name);
        }
    }
    if (replica->grads == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "parallel: no memory for %zu gradients", count);
    }
    cddpi_model_bind_grads(replica->model, replica->grads);
    return CDDP_OK;
}

/* One after the other: parts of the library choose their implementations meanwhile. */
static cddp_status make_models(struct cddpi_replicated *replicated,
                               const struct cddpi_model_spec *spec, uint64_t seed)
{
    struct making making = {.replicated = replicated, .spec = *spec, .seed = seed};
    bool has_params;
    cddp_status status = cddpi_model_layer_has_params(spec, 0, &has_params, &making.spec.part.end);

    making.spec.device = NULL;
    making.spec.part_loss = CDDPI_PART_WITHOUT_LOSS;
    for (int d = 0; status == CDDP_OK && d < replicated->devices->count; d++) {
        making.device = d;
        making.out = &replicated->replicas[d].model;
        status = cddpi_workers_run(replicated->workers, make_on, &making);
        if (status == CDDP_OK) {
            status = make_grads(&replicated->replicas[d]);
        }
    }
    making.device = replicated->output_device;
    making.spec.part_loss = CDDPI_PART_LOSS_ALONE;
    making.out = &replicated->loss;
    return status == CDDP_OK ? cddpi_workers_run(replicated->workers, make_on, &making) : status;
}

static cddp_status take_sizes(struct cddpi_replicated *replicated,
                              const struct cddpi_model_spec *spec)
{
    size_t count = 0;
    const struct cddpi_edge *edges = cddpi_model_edges(replicated->loss, CDDPI_EDGE_IN, &count);

    (void)cddpi_model_params(replicated->replicas[0].model, &replicated->param_count);
    (void)cddpi_model_buffers(replicated->replicas[0].model, &replicated->buffer_count);
    replicated->output_elements = edges[0].elements;
    replicated->input_elements = (size_t)spec->channels * (size_t)spec->height *
                                 (size_t)spec->width;
    replicated->grads = cddpi_zalloc_array(replicated->param_count + 1, sizeof *replicated->grads);
    return replicated->grads != NULL
               ? CDDP_OK
               : cddpi_fail(CDDP_ERR_NO_MEMORY, "parallel: no memory for %zu gradients",
                            replicated->param_count);
}

cddp_status cddpi_replicated_create(const struct cddpi_model_spec *spec, uint64_t seed,
                                    const cddp_devices *devices, int output_device,
                                    struct cddpi_replicated **out)
{
    struct cddpi_replicated *replicated = cddpi_zalloc(sizeof *replicated);
    cddp_status status = CDDP_OK;

    if (replicated == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "parallel: no memory for %zu bytes",
                          sizeof *replicated);
    }
    replicated->devices = devices;
    replicated->output_device = output_device;
    replicated->replicas = cddpi_zalloc_array((size_t)devices->count, sizeof *replicated->replicas);
    if (replicated->replicas == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "parallel: no memory for %d devices",
                            devices->count);
    }
    if (status == CDDP_OK) {
        status = cddpi_workers_create(devices, &replicated->workers);
    }
    if (status == CDDP_OK) {
        status = make_models(replicated, spec, seed);
    }
    if (status == CDDP_OK) {
        status = take_sizes(replicated, spec);
    }
    if (status != CDDP_OK) {
        cddpi_replicated_destroy(replicated);
        return status;
    }
    *out = replicated;
    return CDDP_OK;
}

static void destroy_replica(struct cddpi_replica *replica)
{
    size_t count = 0;

    if (replica->grads != NULL) {
        (void)cddpi_model_params(replica->model, &count);
    }
    for (size_t i = 0; i < count; i++) {
        cddpi_free(replica->grads[i]);
    }
    cddpi_free(replica->grads);
    cddpi_model_destroy(replica->model);
}

void cddpi_replicated_destroy(struct cddpi_replicated *replicated)
{
    if (replicated == NULL) {
        return;
    }
    for (int d = 0; replicated->replicas != NULL && d < replicated->devices->count; d++) {
        destroy_replica(&replicated->replicas[d]);
    }
    cddpi_model_destroy(replicated->loss);
    cddpi_workers_destroy(replicated->workers);
    cddpi_replicated_release_outputs(replicated);
    cddpi_free(replicated->replicas);
    cddpi_free(replicated->grads);
    cddpi_free(replicated);
}
