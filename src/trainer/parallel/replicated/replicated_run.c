/* replicated_run.c - owns the passes of a replicated model: the steps of DataParallel, each run on
 * the devices that take part in it. */
#include "base/clock.h"
#include "base/error.h"
#include "base/shape.h"
#include "device/device.h"
#include "parallel/device_trace.h"
#include "parallel/replicated/replicated_state.h"

#include <string.h>

/* --- steps, each on the devices' threads --- */

/* State shared by all devices during a pass. */
struct replicated_run {
    struct cddpi_replicated *replicated;
    const struct cddpi_batch *batch; /* the whole batch */
    bool training, accumulate;
    double scale;
    struct cddpi_loss_result result;
    const struct replicated_run_step *step; /* the current step */
    struct cddpi_device_trace *trace;
};

/* Which devices take part in a step. */
enum replicated_run_part {
    FIRST,
    FIRST_WITH_HEAD, /* the first one, if layers come before the copied ones */
    USED,            /* those that have samples */
    COPIED,          /* the same, but the first one, which has the model already */
    WITH_LOSS
};

/* What some of the devices do at the same time. */
struct replicated_run_step {
    enum replicated_run_part part;
    cddpi_worker_fn work;
    enum cddpi_span kind;
};

static bool takes_part(const struct cddpi_replicated *replicated, enum replicated_run_part part,
                       int device)
{
    switch (part) {
    case FIRST:
        return device == 0;
    case FIRST_WITH_HEAD:
        return device == 0 && replicated->head != NULL;
    case USED:
        return device < replicated->used;
    case COPIED:
        return device > 0 && device < replicated->used;
    case WITH_LOSS:
        return device == replicated->output_device;
    }
    return false;
}

static void copy_tensors(const cddp_param *to, const cddp_param *from, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        memcpy(to[i].data, from[i].data,
               cddpi_elements(from[i].dims, from[i].shape) * cddp_type_bytes(from[i].type));
    }
}

/* Replicate: copy parameters and buffers of the first device. */
static cddp_status copy_on(int device, void *arg)
{
    struct cddpi_replicated *replicated = ((struct replicated_run *)arg)->replicated;
    struct cddpi_device_model *from = replicated->replicas[0].model;
    struct cddpi_device_model *to = replicated->replicas[device].model;
    size_t count;
    const cddp_param *tensors = cddpi_device_model_params(from, &count);

    if (cddpi_device_model_is_on_gpu(to)) { /* a GPU copies parameters itself */
        cddpi_device_model_bind_params(to, replicated->copied_data);
    } else {
        copy_tensors(cddpi_device_model_params(to, &count), tensors, count);
    }
    tensors = cddpi_device_model_buffers(from, &count);
    copy_tensors(cddpi_device_model_buffers(to, &count), tensors, count);
    return CDDP_OK;
}

/* Bind both ends of each edge to one memory. @p first: the index of the model's first sample
 * there. */
static void bind(struct cddpi_device_model *part, enum cddpi_edge_side side,
                 const struct cddpi_edge_buffer *buffers, size_t first)
{
    size_t count;
    const struct cddpi_edge *edges = cddpi_model_edges(cddpi_device_model_inside(part), side,
                                                       &count);

    for (size_t k = 0; k < count; k++) {
        size_t at = first * edges[k].elements;

        cddpi_device_model_bind_edge(part, side, k,
                                     buffers[k].data != NULL ? buffers[k].data + at : NULL,
                                     buffers[k].grad != NULL ? buffers[k].grad + at : NULL);
    }
}

static cddp_status lead_on(int device, void *arg)
{
    struct replicated_run *run = arg;
    struct cddpi_loss_result none;

    (void)device;
    bind(run->replicated->head, CDDPI_EDGE_OUT, run->replicated->in, 0);
    return cddpi_device_model_forward(run->replicated->head, run->batch, run->training, &none);
}

/* Compute the device's samples. They are rows of the whole input and output, which takes the place
 * of scattering and gathering. */
static cddp_status forward_on(int device, void *arg)
{
    struct replicated_run *run = arg;
    struct cddpi_replica *replica = &run->replicated->replicas[device];
    struct cddpi_loss_result none;

    bind(replica->model, CDDPI_EDGE_IN, run->replicated->in, replica->first);
    bind(replica->model, CDDPI_EDGE_OUT, run->replicated->out, replica->first);
    return cddpi_device_model_forward(replica->model, &replica->batch, run->training, &none);
}

static cddp_status lose_on(int device, void *arg)
{
    struct replicated_run *run = arg;

    (void)device;
    bind(run->replicated->tail, CDDPI_EDGE_IN, run->replicated->out, 0);
    return cddpi_device_model_forward(run->replicated->tail, run->batch, run->training,
                                      &run->result);
}

/* An empty callback, so that a GPU copies its gradients to the host, where sum_param() reads
 * them. */
static cddp_status fetched(void *context, size_t index)
{
    (void)context;
    (void)index;
    return CDDP_OK;
}

static cddp_status lose_back_on(int device, void *arg)
{
    struct replicated_run *run = arg;

    (void)device;
    return cddpi_device_model_backward(run->replicated->tail, run->scale, run->accumulate, fetched,
                                       NULL, &run->replicated->late);
}

static cddp_status lead_back_on(int device, void *arg)
{
    const struct replicated_run *run = arg;
    struct cddpi_loss_result none;

    (void)device;
    return cddpi_device_model_backward(run->replicated->head, run->scale, run->accumulate, fetched,
                                       NULL, &none);
}

static cddp_status backward_on(int device, void *arg)
{
    const struct replicated_run *run = arg;
    struct cddpi_loss_result none;

    return cddpi_device_model_backward(run->replicated->replicas[device].model, run->scale, false,
                                       fetched, NULL, &none);
}

/* Add the devices' gradients in the order of the devices; then set, or add to, the bound
 * gradient. */
static void sum_param(const struct replicated_run *run, size_t index, size_t count)
{
    const struct cddpi_replicated *replicated = run->replicated;
    float *sum = replicated->replicas[0].grads[index];
    float *out = replicated->grads[replicated->first_param + index];

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
    const struct replicated_run *run = arg;
    size_t count = 0;
    const cddp_param *params = cddpi_device_model_params(run->replicated->replicas[0].model,
                                                         &count);

    (void)device;
    for (size_t i = 0; i < count; i++) {
        sum_param(run, i, cddpi_elements(params[i].dims, params[i].shape));
    }
    return CDDP_OK;
}

enum { STEPS = 4 };

static const struct replicated_run_step forward_steps[STEPS] = {
    {FIRST_WITH_HEAD, lead_on, CDDPI_SPAN_FORWARD},
    {COPIED, copy_on, CDDPI_SPAN_REPLICATE},
    {USED, forward_on, CDDPI_SPAN_FORWARD},
    {WITH_LOSS, lose_on, CDDPI_SPAN_FORWARD}};
static const struct replicated_run_step backward_steps[STEPS] = {
    {WITH_LOSS, lose_back_on, CDDPI_SPAN_BACKWARD},
    {USED, backward_on, CDDPI_SPAN_BACKWARD},
    {FIRST_WITH_HEAD, lead_back_on, CDDPI_SPAN_BACKWARD},
    {FIRST, sum_on, CDDPI_SPAN_SUM}};

static cddp_status step_on(int device, void *arg)
{
    struct replicated_run *run = arg;
    int64_t begun = cddpi_now_ns();
    cddp_status status = CDDP_OK;

    if (takes_part(run->replicated, run->step->part, device)) {
        status = run->step->work(device, arg);
        cddpi_device_trace_add(run->trace, device, run->step->kind, begun, -1);
    }
    return status;
}

static cddp_status run_steps(struct replicated_run *run,
                             const struct replicated_run_step steps[STEPS])
{
    struct cddpi_replicated *replicated = run->replicated;
    cddp_status status = CDDP_OK;

    run->trace = cddpi_device_trace_begin(replicated->traced, replicated->devices->count, STEPS);
    for (int i = 0; status == CDDP_OK && i < STEPS; i++) {
        run->step = &steps[i];
        status = cddpi_workers_run(replicated->workers, step_on, run);
    }
    cddpi_device_trace_end(run->trace);
    return status;
}

/* --- forward and backward --- */

/* Scatter: a device's samples stay where they are in the batch's memory. */
static cddp_status divide(struct cddpi_replicated *replicated, const struct cddpi_batch *batch)
{
    cddp_chunk chunks[CDDP_MAX_PARALLEL_DEVICES] = {{NULL, 0}};
    size_t inputs = replicated->input_elements;
    const struct cddpi_model *tail = cddpi_device_model_inside(replicated->tail);
    size_t predictions = (size_t)cddpi_model_predictions(tail);
    size_t labels = (size_t)cddpi_model_labels(tail);
    size_t first = 0;

    replicated->used = 1; /* a batch without samples still uses the first device */
    if (batch->count > 0) {
        CDDPI_TRY(cddp_parallel_scatter(replicated->devices, (void *)(uintptr_t)batch->sample_ids,
                                        (size_t)batch->count, sizeof *batch->sample_ids, chunks,
                                        &replicated->used));
    }
    for (int d = 0; d < replicated->used; d++) {
        struct cddpi_replica *replica = &replicated->replicas[d];

        replica->first = first;
        replica->batch = *batch;
        replica->batch.count = (int)chunks[d].rows;
        replica->batch.sample_ids = chunks[d].data;
        replica->batch.label = batch->label != NULL ? batch->label + first * labels : NULL;
        replica->batch.input = batch->input != NULL ? batch->input + first * inputs : NULL;
        replica->batch.tokens = batch->tokens != NULL ? batch->tokens + first * predictions : NULL;
        first += chunks[d].rows;
    }
    return CDDP_OK;
}

void cddpi_replicated_release_edges(struct cddpi_replicated *replicated)
{
    struct cddpi_device *device = cddpi_device_cpu();

    cddpi_edge_buffers_release(device, replicated->in, replicated->in_count);
    cddpi_edge_buffers_release(device, replicated->out, replicated->out_count);
    replicated->room = 0;
}

static cddp_status make_room(struct cddpi_replicated *replicated, int samples)
{
    const struct cddpi_model *copy = cddpi_device_model_inside(replicated->replicas[0].model);
    struct cddpi_device *device = cddpi_device_cpu();
    size_t count;

    if (samples <= replicated->room) {
        return CDDP_OK;
    }
    cddpi_replicated_release_edges(replicated);
    CDDPI_TRY(cddpi_edge_buffers_allocate(device, replicated->in,
                                          cddpi_model_edges(copy, CDDPI_EDGE_IN, &count),
                                          replicated->in_count, samples));
    CDDPI_TRY(cddpi_edge_buffers_allocate(device, replicated->out,
                                          cddpi_model_edges(copy, CDDPI_EDGE_OUT, &count),
                                          replicated->out_count, samples));
    replicated->room = samples;
    return CDDP_OK;
}

cddp_status cddpi_replicated_forward(struct cddpi_replicated *replicated,
                                     const struct cddpi_batch *batch, bool training,
                                     struct cddpi_loss_result *out)
{
    struct replicated_run run = {.replicated = replicated, .batch = batch, .training = training};

    CDDPI_TRY(make_room(replicated, batch->count));
    for (size_t i = 0; i < replicated->copied_params; i++) {
        replicated->copied_data[i] = replicated->params[replicated->first_param + i].data;
    }
    CDDPI_TRY(divide(replicated, batch));
    for (size_t i = 0; replicated->wait != NULL && i < replicated->param_count; i++) {
        CDDPI_TRY(replicated->wait(replicated->wait_context, i)); /* its update may be under way */
    }
    CDDPI_TRY(run_steps(&run, forward_steps));
    if (out != NULL) {
        *out = run.result;
    }
    return CDDP_OK;
}

struct cddpi_loss_result cddpi_replicated_late(const struct cddpi_replicated *replicated)
{
    return replicated->late;
}

cddp_status cddpi_replicated_backward(struct cddpi_replicated *replicated, double scale,
                                      bool accumulate, cddpi_grad_ready_fn ready, void *context)
{
    struct replicated_run run = {
        .replicated = replicated, .scale = scale, .accumulate = accumulate};

    CDDPI_TRY(run_steps(&run, backward_steps));
    for (size_t i = 0; ready != NULL && i < replicated->param_count; i++) {
        CDDPI_TRY(ready(context, replicated->ready_order[i]));
    }
    return CDDP_OK;
}
