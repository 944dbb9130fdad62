/* placed.c - owns the life of a placed model: its segments, each created in its device's thread,
 * and one list of all parameters, as of a model on one device. */
#include "parallel/placed/placed.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/shape.h"
#include "parallel/placed/placed_state.h"

#include <string.h>

/* --- parameters --- */

/* The nearest segment before @p s that also has the parameter, and the parameter's index there; -1:
 * there is none. */
static int owner_before(const struct cddpi_placed *placed, int s, const char *name,
                        size_t *out_index)
{
    for (int before = s - 1; before >= 0; before--) {
        size_t count;
        const cddp_param *params = cddpi_device_model_params(placed->parts[before].model, &count);

        *out_index = cddpi_tensors_find(params, count, name);
        if (*out_index < count) {
            return before;
        }
    }
    return -1;
}

/* Append segment @p s's parameters to the list. */
static cddp_status take_params(struct cddpi_placed *placed, int s)
{
    struct cddpi_placed_part *part = &placed->parts[s];
    const cddp_param *params = cddpi_device_model_params(part->model, &part->param_count);
    size_t count = part->param_count;

    part->numbers = cddpi_zalloc_array(count + 1, sizeof *part->numbers);
    part->is_later = cddpi_zalloc_array(count + 1, sizeof *part->is_later);
    part->is_owner = cddpi_zalloc_array(count + 1, sizeof *part->is_owner);
    part->shares = cddpi_zalloc_array(count + 1, sizeof(float *));
    CDDPI_TRY_MEMORY(part->numbers != NULL && part->is_later != NULL && part->is_owner != NULL &&
                         part->shares != NULL,
                     "parallel: no memory for %zu parameters", count);
    for (size_t i = 0; i < count; i++) {
        size_t owner_index = 0;
        int owner = owner_before(placed, s, params[i].name, &owner_index);

        if (owner >= 0) {
            CDDPI_TRY(cddpi_placed_share_param(placed, s, i, owner, owner_index));
        } else {
            part->numbers[i] = (uint32_t)placed->param_count;
            placed->params[placed->param_count++] = params[i];
        }
    }
    return CDDP_OK;
}

/* Make the order in which backward completes the gradients. A parameter shared by several segments
 * is completed by the first of them. */
static void order_params(struct cddpi_placed *placed)
{
    size_t done = 0;

    for (int s = placed->part_count - 1; s >= 0; s--) {
        const struct cddpi_placed_part *part = &placed->parts[s];
        const size_t *inside = cddpi_model_ready_order(cddpi_device_model_inside(part->model));

        for (size_t i = 0; i < part->param_count; i++) {
            if (!part->is_later[inside[i]]) {
                placed->ready_order[done++] = part->numbers[inside[i]];
            }
        }
    }
}

static cddp_status join_tensors(struct cddpi_placed *placed)
{
    size_t params = 0;
    size_t buffers = 0;
    size_t count;

    for (int s = 0; s < placed->part_count; s++) {
        (void)cddpi_device_model_params(placed->parts[s].model, &count);
        params += count;
        (void)cddpi_device_model_buffers(placed->parts[s].model, &count);
        buffers += count;
    }
    placed->params = cddpi_zalloc_array(params + 1, sizeof *placed->params);
    placed->buffers = cddpi_zalloc_array(buffers + 1, sizeof *placed->buffers);
    placed->grads = cddpi_zalloc_array(params + 1, sizeof *placed->grads);
    placed->ready_order = cddpi_zalloc_array(params + 1, sizeof *placed->ready_order);
    CDDPI_TRY_MEMORY(placed->params != NULL && placed->buffers != NULL && placed->grads != NULL &&
                         placed->ready_order != NULL,
                     "parallel: no memory for %zu parameters", params);
    for (int s = 0; s < placed->part_count; s++) {
        const cddp_param *own = cddpi_device_model_buffers(placed->parts[s].model, &count);

        for (size_t i = 0; i < count; i++) {
            placed->buffers[placed->buffer_count++] = own[i];
        }
        CDDPI_TRY(take_params(placed, s));
    }
    order_params(placed);
    return CDDP_OK;
}

const cddp_param *cddpi_placed_params(const struct cddpi_placed *placed, size_t *out_count)
{
    *out_count = placed->param_count;
    return placed->params;
}

const cddp_param *cddpi_placed_buffers(const struct cddpi_placed *placed, size_t *out_count)
{
    *out_count = placed->buffer_count;
    return placed->buffers;
}

const size_t *cddpi_placed_ready_order(const struct cddpi_placed *placed)
{
    return placed->ready_order;
}

/* The first part that has the parameter, and the parameter's index there. */
static const struct cddpi_placed_part *find_part(const struct cddpi_placed *placed, size_t index,
                                                 size_t *out_index)
{
    for (int s = 0; s < placed->part_count; s++) {
        const struct cddpi_placed_part *part = &placed->parts[s];

        for (size_t i = 0; i < part->param_count; i++) {
            if (part->numbers[i] == index) {
                *out_index = i;
                return part;
            }
        }
    }
    return NULL;
}

bool cddpi_placed_param_decays(const struct cddpi_placed *placed, size_t index)
{
    size_t inside = 0;
    const struct cddpi_placed_part *part = find_part(placed, index, &inside);

    return part != NULL && cddpi_model_param_decays(cddpi_device_model_inside(part->model), inside);
}

int cddpi_placed_param_device(const struct cddpi_placed *placed, size_t index)
{
    size_t inside = 0;
    const struct cddpi_placed_part *part = find_part(placed, index, &inside);

    return part != NULL ? part->segment.device : 0;
}

/* The number of shares of a segment's gradient. */
static size_t share_count(const struct cddpi_placed *placed)
{
    return placed->separate ? (size_t)placed->slots : 1;
}

void cddpi_placed_add_memory(const struct cddpi_placed *placed, struct cddpi_held_memory *out)
{
    for (int s = 0; s < placed->part_count; s++) {
        const struct cddpi_placed_part *part = &placed->parts[s];
        struct cddpi_held_memory *memory = &out[part->segment.device];
        size_t edges = cddpi_edge_buffers_bytes(part->out, part->out_count, part->room);

        cddpi_device_model_add_memory(part->model, memory);
        memory->edges += edges * (size_t)placed->slots;
        for (size_t i = 0; i < part->param_count; i++) {
            size_t bytes = cddpi_tensors_bytes(&placed->params[part->numbers[i]], 1);

            bool has_own = !part->is_later[i] || cddpi_device_model_is_on_gpu(part->model);

            memory->parameters -= has_own ? 0 : bytes; /* the owner's memory was counted */
            memory->gradients += part->shares[i] != NULL ? bytes * share_count(placed) : 0;
        }
    }
}

/* Select a part's pointers from those of all parameters. */
static void pick(const struct cddpi_placed_part *part, void *const *all, void **out)
{
    for (size_t i = 0; i < part->param_count; i++) {
        out[i] = all[part->numbers[i]];
    }
}

void cddpi_placed_bind_grads(struct cddpi_placed *placed, void *const *grads)
{
    memcpy(placed->grads, grads, placed->param_count * sizeof *grads);
    for (int s = 0; s < placed->part_count; s++) {
        struct cddpi_placed_part *part = &placed->parts[s];

        pick(part, grads, part->places);
        for (size_t i = 0; i < part->param_count; i++) {
            part->places[i] = part->shares[i] != NULL ? part->shares[i] : part->places[i];
        }
        cddpi_device_model_bind_grads(part->model, part->places);
    }
}

void cddpi_placed_bind_params(struct cddpi_placed *placed, void *const *data)
{
    for (size_t i = 0; i < placed->param_count; i++) {
        placed->params[i].data = data[i];
    }
    for (int s = 0; s < placed->part_count; s++) {
        struct cddpi_placed_part *part = &placed->parts[s];

        pick(part, data, part->places);
        cddpi_device_model_bind_params(part->model, part->places);
    }
}

static cddp_status wait_param(void *context, size_t index)
{
    const struct cddpi_placed_part *part = context;
    struct cddpi_placed *placed = part->placed;
    cddp_status status;

    pthread_mutex_lock(&placed->gate);
    status = placed->wait(placed->wait_context, part->numbers[index]);
    pthread_mutex_unlock(&placed->gate);
    return status;
}

void cddpi_placed_on_param(struct cddpi_placed *placed, cddpi_param_wait_fn wait, void *context)
{
    placed->wait = wait;
    placed->wait_context = context;
    for (int s = 0; s < placed->part_count; s++) {
        cddpi_device_model_on_param(placed->parts[s].model, wait_param, &placed->parts[s]);
    }
}

bool cddpi_placed_is_tied(const struct cddpi_placed *placed)
{
    return placed->is_tied;
}

/* --- life --- */

struct cddpi_model *cddpi_placed_model(const struct cddpi_placed *placed, int index)
{
    return cddpi_device_model_inside(placed->parts[index].model);
}

/* What a segment's device thread is to create. */
struct placed_making {
    struct cddpi_placed *placed;
    const struct cddpi_model_spec *spec;
    uint64_t seed;
    cddp_group *group;
    int segment;
};

/* Called in the device's thread, so that memory is allocated near its processor. */
static cddp_status make_part(int device, void *arg)
{
    const struct placed_making *making = arg;
    struct cddpi_placed_part *part = &making->placed->parts[making->segment];
    struct cddpi_model_spec spec = *making->spec;

    if (part->segment.device != device) {
        return CDDP_OK;
    }
    spec.part = part->segment.layers;
    spec.device = part->placed->devices->cores[device].device;
    spec.split = part->placed->schedule == CDDPI_PIPELINE_ZERO_BUBBLE;
    return cddpi_device_model_create(&spec, making->seed, making->group, &part->model);
}

/* Create one part at a time, because some libraries choose their implementations at first use. */
static cddp_status make_parts(struct cddpi_placed *placed, const struct cddpi_model_spec *spec,
                              uint64_t seed, cddp_group *group)
{
    for (int s = 0; s < placed->part_count; s++) {
        struct cddpi_placed_part *part = &placed->parts[s];
        struct placed_making making = {placed, spec, seed, group, s};
        const struct cddpi_model *inside;

        part->placed = placed;
        part->segment = placed->segments[s];
        CDDPI_TRY(cddpi_workers_run(placed->workers, make_part, &making));
        inside = cddpi_device_model_inside(part->model);
        (void)cddpi_model_edges(inside, CDDPI_EDGE_IN, &part->in_count);
        part->out = cddpi_model_edges(inside, CDDPI_EDGE_OUT, &part->out_count);
        (void)cddpi_model_params(inside, &part->param_count);
        part->places = cddpi_zalloc_array(part->param_count + 1, sizeof *part->places);
        part->buffers = cddpi_zalloc_array((size_t)placed->slots * part->out_count + 1,
                                           sizeof *part->buffers);
        CDDPI_TRY_MEMORY(part->places != NULL && part->buffers != NULL,
                         "parallel: no memory for a segment");
    }
    return CDDP_OK;
}

static cddp_status make_plans(struct cddpi_placed *placed,
                              const struct cddpi_placed_options *options)
{
    struct cddpi_placed_shape one = {placed->segments, placed->part_count, options->devices->count,
                                     placed->schedule, 1};
    struct cddpi_placed_shape all = one;

    all.micro_batches = options->micro_batches;
    CDDPI_TRY(cddpi_placed_plan(&one, CDDPI_PLACED_FORWARD, &placed->forward));
    CDDPI_TRY(cddpi_placed_plan(&one, CDDPI_PLACED_BACKWARD, &placed->backward));
    CDDPI_TRY(cddpi_placed_plan(&all, CDDPI_PLACED_BOTH, &placed->step));
    placed->slots = placed->step.slots;
    return CDDP_OK;
}

static cddp_status copy_segments(struct cddpi_placed *placed,
                                 const struct cddpi_placed_options *options)
{
    size_t count = (size_t)options->segment_count;

    placed->parts = cddpi_zalloc_array(count, sizeof *placed->parts);
    placed->segments = cddpi_zalloc_array(count, sizeof *placed->segments);
    CDDPI_TRY_MEMORY(placed->parts != NULL && placed->segments != NULL,
                     "parallel: no memory for %zu segments", count);
    memcpy(placed->segments, options->segments, count * sizeof *placed->segments);
    placed->part_count = options->segment_count;
    return CDDP_OK;
}

cddp_status cddpi_placed_create(const struct cddpi_model_spec *spec, uint64_t seed,
                                const struct cddpi_placed_options *options,
                                struct cddpi_placed **out)
{
    struct cddpi_placed *placed = cddpi_zalloc(sizeof *placed);
    cddp_status status;

    CDDPI_TRY_MEMORY(placed != NULL, "parallel: no memory for %zu bytes", sizeof *placed);
    pthread_mutex_init(&placed->gate, NULL);
    placed->devices = options->devices;
    placed->timeout_ms = options->timeout_ms;
    placed->traced = options->group;
    placed->pipelined = options->micro_batches > 1;
    placed->separate = placed->pipelined && options->separate;
    placed->schedule = placed->pipelined ? options->schedule : CDDPI_PIPELINE_GPIPE;
    for (int s = 0; s < options->segment_count; s++) {
        const struct cddpi_core *core = &options->devices->cores[options->segments[s].device];

        placed->has_gpu = placed->has_gpu || cddpi_device_is_async(core->device);
    }
    CDDPI_TRY_GOTO(fail, status, copy_segments(placed, options));
    CDDPI_TRY_GOTO(fail, status, make_plans(placed, options));
    CDDPI_TRY_GOTO(fail, status, cddpi_workers_create(options->devices, &placed->workers));
    CDDPI_TRY_GOTO(fail, status, make_parts(placed, spec, seed, options->group));
    CDDPI_TRY_GOTO(fail, status, join_tensors(placed));
    *out = placed;
    return CDDP_OK;

fail:
    cddpi_placed_destroy(placed);
    return status;
}

static void destroy_part(struct cddpi_placed *placed, struct cddpi_placed_part *part)
{
    cddpi_edge_buffers_release(cddpi_device_cpu(), part->buffers,
                               (size_t)placed->slots * part->out_count);
    cddpi_free(part->buffers);
    for (size_t i = 0; part->shares != NULL && i < part->param_count; i++) {
        cddpi_free(part->shares[i]);
    }
    cddpi_free(part->shares);
    cddpi_free(part->numbers);
    cddpi_free(part->is_later);
    cddpi_free(part->is_owner);
    cddpi_free(part->places);
    cddpi_device_model_destroy(part->model);
}

void cddpi_placed_destroy(struct cddpi_placed *placed)
{
    if (placed == NULL) {
        return;
    }
    for (int s = 0; s < placed->part_count; s++) {
        destroy_part(placed, &placed->parts[s]);
    }
    cddpi_workers_destroy(placed->workers);
    cddpi_placed_plan_fini(&placed->forward);
    cddpi_placed_plan_fini(&placed->backward);
    cddpi_placed_plan_fini(&placed->step);
    pthread_mutex_destroy(&placed->gate);
    cddpi_free(placed->parts);
    cddpi_free(placed->segments);
    cddpi_free(placed->params);
    cddpi_free(placed->buffers);
    cddpi_free(placed->grads);
    cddpi_free(placed->ready_order);
    cddpi_free(placed);
}
