/* replicated.c - owns a model that several devices of one process have copies of, and the steps of
 * DataParallel over them. */
#include "parallel/replicated/replicated.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/shape.h"
#include "device/device.h"
#include "device/workers.h"

#include <string.h>

/* What one device has. */
struct replica {
    struct cddpi_model *model;
    struct cddpi_batch batch; /* its samples of the last forward */
    size_t first;             /* the first of them */
    void **grads;             /* one a parameter, its own */
};

struct cddpi_replicated {
    const cddp_devices *devices;
    struct cddpi_workers *workers;
    int output_device;
    struct replica *replicas; /* one a device */
    int used;                 /* of them, by the last forward: the first ones */
    struct cddpi_model *loss;
    size_t input_elements, output_elements; /* of a sample: images, and what goes to the loss */
    float *outputs, *output_grads;
    int room; /* samples that these hold */
    size_t param_count, buffer_count;
    void **grads; /* one a parameter, as bound */
    cddpi_param_wait_fn wait;
    void *wait_context;
};

/* --- steps, each on the devices' threads --- */

/* What the devices work on. */
struct run {
    struct cddpi_replicated *replicated;
    const struct cddpi_batch *batch; /* the whole one */
    bool training, accumulate;
    double scale;
    struct cddpi_loss_result result;
};

static void copy_tensors(const cddp_param *to, const cddp_param *from, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        memcpy(to[i].data, from[i].data,
               cddpi_elements(from[i].dims, from[i].shape) * cddp_type_bytes(from[i].type));
    }
}

/* Replicate: parameters and buffers of the first device. */
static void copy_model(struct cddpi_replicated *replicated, int device)
{
    struct cddpi_model *from = replicated->replicas[0].model;
    struct cddpi_model *to = replicated->replicas[device].model;
    size_t count;
    const cddp_param *params = cddpi_model_params(from, &count);
    const cddp_param *buffers;

    copy_tensors(cddpi_model_params(to, &count), params, replicated->param_count);
    buffers = cddpi_model_buffers(from, &count);
    copy_tensors(cddpi_model_buffers(to, &count), buffers, replicated->buffer_count);
}

static cddp_status copy_on(int device, void *arg)
{
    struct run *run = arg;

    if (device > 0 && device < run->replicated->used) {
        copy_model(run->replicated, device);
    }
    return CDDP_OK;
}

/* Its rows of the outputs go to their place before the loss: that is the gathering. */
static void bind_outputs(struct cddpi_replicated *replicated, const struct replica *replica)
{
    size_t at = replica->first * replicated->output_elements;

    cddpi_model_bind_edge(replica->model, CDDPI_EDGE_OUT, 0, replicated->outputs + at,
                          replicated->output_grads + at);
}

static cddp_status forward_on(int device, void *arg)
{
    struct run *run = arg;
    struct replica *replica = &run->replicated->replicas[device];
    struct cddpi_loss_result none;

    if (device >= run->replicated->used) {
        return CDDP_OK;
    }
    bind_outputs(run->replicated, replica);
    return cddpi_model_forward(replica->model, &replica->batch, run->training, &none);
}

static cddp_status lose_on(int device, void *arg)
{
    struct run *run = arg;

    return device == run->replicated->output_device
               ? cddpi_model_forward(run->replicated->loss, run->batch, run->training, &run->result)
               : CDDP_OK;
}

static cddp_status lose_back_on(int device, void *arg)
{
    const struct run *run = arg;

    return device == run->replicated->output_device
               ? cddpi_model_backward(run->replicated->loss, run->scale, false, NULL, NULL)
               : CDDP_OK;
}

static cddp_status backward_on(int device, void *arg)
{
    const struct run *run = arg;

    return device < run->replicated->used
               ? cddpi_model_backward(run->replicated->replicas[device].model, run->scale, false,
                                      NULL, NULL)
               : CDDP_OK;
}

/* The devices' gradients in their order, then what is bound. */
static void sum_param(const struct run *run, size_t index, size_t count)
{
    const struct cddpi_replicated *replicated = run->replicated;
    float *sum = replicated->replicas[0].grads[index];
    float *out = replicated->grads[index];

    for (int d = 1; d < replicated->used; d++) {
        const float *own = replicated->replicas[d].grads[index];

        for (size_t e = 0; e < count; e++) {
            sum[e] += own[e];
        }
    }
    for (size_t e = 0; e < count; e++) {
        out[e] = run->accumulate ? out[e] + sum[e] : sum[e];
    }
}

static cddp_status sum_on(int device, void *arg)
{
    const struct run *run = arg;
    size_t count = 0;
    const cddp_param *params = cddpi_model_params(run->replicated->replicas[0].model, &count);

    for (size_t i = 0; device == 0 && i < count; i++) {
        sum_param(run, i, cddpi_elements(params[i].dims, params[i].shape));
    }
    return CDDP_OK;
}

/* --- forward and backward --- */

/* Scatter: each device's samples are a part of the batch's own memory. */
static cddp_status divide(struct cddpi_replicated *replicated, const struct cddpi_batch *batch)
{
    cddp_chunk chunks[CDDP_PARALLEL_DEVICES] = {{NULL, 0}};
    size_t inputs = replicated->input_elements;
    size_t predictions = (size_t)cddpi_model_predictions(replicated->loss);
    size_t first = 0;
    cddp_status status = CDDP_OK;

    replicated->used = 1; /* without samples the first device takes part alone */
    if (batch->count > 0) {
        status = cddp_parallel_scatter(replicated->devices, (void *)(uintptr_t)batch->sample_ids,
                                       (size_t)batch->count, sizeof *batch->sample_ids, chunks,
                                       &replicated->used);
    }
    for (int d = 0; status == CDDP_OK && d < replicated->used; d++) {
        struct replica *replica = &replicated->replicas[d];

        replica->first = first;
        replica->batch = *batch;
        replica->batch.count = (int)chunks[d].rows;
        replica->batch.sample_ids = chunks[d].data;
        replica->batch.label = batch->label != NULL ? batch->label + first * predictions : NULL;
        replica->batch.input = batch->input != NULL ? batch->input + first * inputs : NULL;
        replica->batch.tokens = batch->tokens != NULL ? batch->tokens + first * predictions : NULL;
        first += chunks[d].rows;
    }
    return status;
}

static void release_outputs(struct cddpi_replicated *replicated)
{
    cddpi_free(replicated->outputs);
    cddpi_free(replicated->output_grads);
    replicated->outputs = replicated->output_grads = NULL;
    replicated->room = 0;
}

static cddp_status make_room(struct cddpi_replicated *replicated, int samples)
{
    size_t bytes = (size_t)samples * replicated->output_elements * sizeof(float);

    if (samples <= replicated->room) {
        return CDDP_OK;
    }
    release_outputs(replicated);
    replicated->outputs = cddpi_alloc_aligned(bytes);
    replicated->output_grads = cddpi_alloc_aligned(bytes);
    if (replicated->outputs == NULL || replicated->output_grads == NULL) {
        release_outputs(replicated);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "parallel: no memory for the outputs of %d samples",
                          samples);
    }
    replicated->room = samples;
    cddpi_model_bind_edge(replicated->loss, CDDPI_EDGE_IN, 0, replicated->outputs,
                          replicated->output_grads);
    return CDDP_OK;
}

/* Parameters whose updates are on their way. */
static cddp_status await_params(const struct cddpi_replicated *replicated)
{
    cddp_status status = CDDP_OK;

    for (size_t i = 0; replicated->wait != NULL && status == CDDP_OK && i < replicated->param_count;
         i++) {
        status = replicated->wait(replicated->wait_context, i);
    }
    return status;
}

cddp_status cddpi_replicated_forward(struct cddpi_replicated *replicated,
                                     const struct cddpi_batch *batch, bool training,
                                     struct cddpi_loss_result *out)
{
    static const cddpi_worker_fn steps[] = {copy_on, forward_on, lose_on};
    struct run run = {.replicated = replicated, .batch = batch, .training = training};
    cddp_status status = make_room(replicated, batch->count);

    if (status == CDDP_OK) {
        status = divide(replicated, batch);
    }
    if (status == CDDP_OK) {
        status = await_params(replicated);
    }
    for (size_t i = 0; status == CDDP_OK && i < sizeof steps / sizeof *steps; i++) {
        status = cddpi_workers_run(replicated->workers, steps[i], &run);
    }
    if (status == CDDP_OK && out != NULL) {
        *out = run.result;
    }
    return status;
}

cddp_status cddpi_replicated_backward(struct cddpi_replicated *replicated, double scale,
                                      bool accumulate, cddpi_grad_ready_fn ready, void *context)
{
    static const cddpi_worker_fn steps[] = {lose_back_on, backward_on, sum_on};
    struct run run = {.replicated = replicated, .scale = scale, .accumulate = accumulate};
    const uint32_t *order = cddpi_model_ready_order(replicated->replicas[0].model);
    cddp_status status = CDDP_OK;

    for (size_t i = 0; status == CDDP_OK && i < sizeof steps / sizeof *steps; i++) {
        status = cddpi_workers_run(replicated->workers, steps[i], &run);
    }
    for (size_t i = 0; ready != NULL && status == CDDP_OK && i < replicated->param_count; i++) {
        status = ready(context, order[i]);
    }
    return status;
}

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

struct cddpi_model *cddpi_replicated_model(const struct cddpi_replicated *replicated)
{
    return replicated->replicas[0].model;
}

struct cddpi_model *cddpi_replicated_loss(const struct cddpi_replicated *replicated)
{
    return replicated->loss;
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

static cddp_status make_grads(struct replica *replica)
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

static void destroy_replica(struct replica *replica)
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
    release_outputs(replicated);
    cddpi_free(replicated->replicas);
    cddpi_free(replicated->grads);
    cddpi_free(replicated);
}
