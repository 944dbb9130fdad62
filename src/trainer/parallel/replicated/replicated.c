/* replicated.c - owns the life of a model that is copied to several devices of one process. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/shape.h"
#include "parallel/replicated/replicated_state.h"

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

int cddpi_replicated_models(const struct cddpi_replicated *replicated, struct cddpi_model *out[3])
{
    int count = 0;

    if (replicated->head != NULL) {
        out[count++] = cddpi_device_model_inside(replicated->head);
    }
    out[count++] = cddpi_device_model_inside(replicated->replicas[0].model);
    out[count++] = cddpi_device_model_inside(replicated->tail);
    return count;
}

/* Bytes of the tail's parameters that the head shares: they are counted there. */
static size_t shared_bytes(const struct cddpi_replicated *replicated)
{
    size_t bytes = 0;
    size_t count;
    const cddp_param *params = cddpi_device_model_params(replicated->tail, &count);

    for (size_t i = 0; i < count; i++) {
        if (replicated->tail_numbers[i] < replicated->first_param) {
            bytes += cddpi_tensors_bytes(&params[i], 1);
        }
    }
    return bytes;
}

void cddpi_replicated_add_memory(const struct cddpi_replicated *replicated,
                                 struct cddpi_held_memory *out)
{
    const struct cddpi_model *copy = cddpi_device_model_inside(replicated->replicas[0].model);
    struct cddpi_held_memory *output = &out[replicated->output_device];
    size_t count;

    for (int d = 0; d < replicated->devices->count; d++) {
        cddpi_device_model_add_memory(replicated->replicas[d].model, &out[d]);
        if (!cddpi_device_model_is_on_gpu(replicated->replicas[d].model)) {
            out[d].gradients += cddpi_tensors_bytes(cddpi_model_params(copy, &count),
                                                    replicated->copied_params);
        }
    }
    if (replicated->head != NULL) {
        cddpi_device_model_add_memory(replicated->head, &out[0]);
    }
    cddpi_device_model_add_memory(replicated->tail, output);
    output->parameters -= shared_bytes(replicated);
    out[0].edges += cddpi_edge_buffers_bytes(cddpi_model_edges(copy, CDDPI_EDGE_IN, &count),
                                             replicated->in_count, replicated->room);
    output->outputs += cddpi_edge_buffers_bytes(cddpi_model_edges(copy, CDDPI_EDGE_OUT, &count),
                                                replicated->out_count, replicated->room);
}

/* --- life --- */

/* What a device's thread is to create. */
struct replicated_making {
    struct cddpi_replicated *replicated;
    struct cddpi_model_spec spec;
    uint64_t seed;
    int device;
    struct cddpi_device_model **out;
};

static cddp_status make_on(int device, void *arg)
{
    const struct replicated_making *making = arg;
    struct cddpi_model_spec spec = making->spec;

    spec.device = making->replicated->devices->cores[device].device;
    return device == making->device
               ? cddpi_device_model_create(&spec, making->seed, NULL, making->out)
               : CDDP_OK;
}

static cddp_status make_grads(struct cddpi_replica *replica)
{
    size_t count;
    const cddp_param *params = cddpi_device_model_params(replica->model, &count);

    replica->grads = cddpi_zalloc_array(count + 1, sizeof *replica->grads);
    for (size_t i = 0; replica->grads != NULL && i < count; i++) {
        replica->grads[i] = cddpi_alloc_aligned(cddpi_elements(params[i].dims, params[i].shape) *
                                                sizeof(float));
        CDDPI_TRY_MEMORY(replica->grads[i] != NULL, "parallel: no memory for a gradient of %s",
                         params[i].name);
    }
    CDDPI_TRY_MEMORY(replica->grads != NULL, "parallel: no memory for %zu gradients", count);
    cddpi_device_model_bind_grads(replica->model, replica->grads);
    return CDDP_OK;
}

static cddp_status make_one(struct cddpi_replicated *replicated, struct replicated_making *making,
                            int device, struct cddpi_layer_range part,
                            struct cddpi_device_model **out)
{
    making->device = device;
    making->spec.part = part;
    making->out = out;
    return cddpi_workers_run(replicated->workers, make_on, making);
}

/* Create the layers before @p copied and after it. If no layers come after, the tail is only the
 * loss. */
static cddp_status make_rest(struct cddpi_replicated *replicated, struct replicated_making *making,
                             struct cddpi_layer_range copied, int layers)
{
    struct cddpi_layer_range before = {0, copied.first};
    struct cddpi_layer_range behind = {copied.end, layers};

    making->spec.part_loss = CDDPI_PART_WITH_LOSS;
    if (copied.end == layers) {
        making->spec.part_loss = CDDPI_PART_LOSS_ALONE;
        behind.first = 0;
    }
    CDDPI_TRY(make_one(replicated, making, replicated->output_device, behind, &replicated->tail));
    making->spec.part_loss = CDDPI_PART_WITH_LOSS;
    return copied.first > 0 ? make_one(replicated, making, 0, before, &replicated->head) : CDDP_OK;
}

/* Create one model at a time, because some libraries choose their implementations at first use. */
static cddp_status make_models(struct cddpi_replicated *replicated,
                               const struct cddpi_model_spec *spec, uint64_t seed,
                               struct cddpi_layer_range copied)
{
    struct replicated_making making = {.replicated = replicated, .spec = *spec, .seed = seed};
    bool has_params;
    int layers = 0;

    CDDPI_TRY(cddpi_model_layer_has_params(spec, 0, &has_params, &layers));
    copied.end = copied.end == 0 ? layers : copied.end;
    making.spec.part_loss = CDDPI_PART_WITHOUT_LOSS;
    for (int d = 0; d < replicated->devices->count; d++) {
        CDDPI_TRY(make_one(replicated, &making, d, copied, &replicated->replicas[d].model));
        CDDPI_TRY(make_grads(&replicated->replicas[d]));
    }
    return make_rest(replicated, &making, copied, layers);
}

static cddp_status make_edges(struct cddpi_replicated *replicated,
                              const struct cddpi_model_spec *spec)
{
    const struct cddpi_model *copy = cddpi_device_model_inside(replicated->replicas[0].model);

    (void)cddpi_model_edges(copy, CDDPI_EDGE_IN, &replicated->in_count);
    (void)cddpi_model_edges(copy, CDDPI_EDGE_OUT, &replicated->out_count);
    replicated->input_elements = (size_t)spec->channels * (size_t)spec->height *
                                 (size_t)spec->width;
    replicated->in = cddpi_zalloc_array(replicated->in_count + 1, sizeof *replicated->in);
    replicated->out = cddpi_zalloc_array(replicated->out_count + 1, sizeof *replicated->out);
    return replicated->in != NULL && replicated->out != NULL
               ? CDDP_OK
               : cddpi_fail(CDDP_ERR_NO_MEMORY, "parallel: no memory for %zu edges",
                            replicated->in_count + replicated->out_count);
}

cddp_status cddpi_replicated_create(const struct cddpi_model_spec *spec, uint64_t seed,
                                    const cddp_devices *devices, int output_device,
                                    struct cddpi_layer_range layers, struct cddpi_replicated **out)
{
    struct cddpi_replicated *replicated = cddpi_zalloc(sizeof *replicated);
    cddp_status status;

    CDDPI_TRY_MEMORY(replicated != NULL, "parallel: no memory for %zu bytes", sizeof *replicated);
    replicated->devices = devices;
    replicated->output_device = output_device;
    replicated->replicas = cddpi_zalloc_array((size_t)devices->count, sizeof *replicated->replicas);
    if (replicated->replicas == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "parallel: no memory for %d devices",
                            devices->count);
        goto fail;
    }
    CDDPI_TRY_GOTO(fail, status, cddpi_workers_create(devices, &replicated->workers));
    CDDPI_TRY_GOTO(fail, status, make_models(replicated, spec, seed, layers));
    CDDPI_TRY_GOTO(fail, status, make_edges(replicated, spec));
    CDDPI_TRY_GOTO(fail, status, cddpi_replicated_join_params(replicated));
    *out = replicated;
    return CDDP_OK;

fail:
    cddpi_replicated_destroy(replicated);
    return status;
}

static void destroy_replica(struct cddpi_replica *replica)
{
    size_t count = 0;

    if (replica->grads != NULL) {
        (void)cddpi_device_model_params(replica->model, &count);
    }
    for (size_t i = 0; i < count; i++) {
        cddpi_free(replica->grads[i]);
    }
    cddpi_free(replica->grads);
    cddpi_device_model_destroy(replica->model);
}

void cddpi_replicated_destroy(struct cddpi_replicated *replicated)
{
    if (replicated == NULL) {
        return;
    }
    for (int d = 0; replicated->replicas != NULL && d < replicated->devices->count; d++) {
        destroy_replica(&replicated->replicas[d]);
    }
    cddpi_device_model_destroy(replicated->tail);
    cddpi_device_model_destroy(replicated->head);
    cddpi_workers_destroy(replicated->workers);
    cddpi_replicated_release_edges(replicated);
    cddpi_replicated_release_params(replicated);
    cddpi_free(replicated->in);
    cddpi_free(replicated->out);
    cddpi_free(replicated->replicas);
    cddpi_free(replicated);
}
