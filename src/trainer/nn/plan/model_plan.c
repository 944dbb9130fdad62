/* model_plan.c - compiles a graph for one batch size and mode: each op chooses its layout and
 * requests memory; then the planner derives from the ops' flags how long each buffer is alive and
 * what can be done in place. */
#include "nn/plan/model_plan.h"

#include "base/alloc.h"
#include "base/error.h"
#include "nn/cpu/dnnl.h"
#include "nn/model_state.h"

#include <stdio.h>

static const struct cddpi_graph *graph_of(const struct cddpi_plan *plan)
{
    return &plan->model->graph;
}

static int backward_time(const struct cddpi_plan *plan, int op)
{
    return plan->ops[op].backward;
}

const struct cddpi_op *cddpi_plan_op_of(const struct cddpi_plan *plan, int op)
{
    return &graph_of(plan)->ops[op];
}

const struct cddpi_plan_value *cddpi_plan_input(const struct cddpi_plan *plan, int op, int k)
{
    return &plan->values[cddpi_plan_op_of(plan, op)->inputs[k]];
}

size_t cddpi_plan_elements(const struct cddpi_plan *plan, const struct cddpi_shape *shape,
                           int block)
{
    size_t groups = ((size_t)shape->channels + (size_t)block - 1) / (size_t)block;

    return (size_t)plan->count * groups * (size_t)block * (size_t)shape->height *
           (size_t)shape->width;
}

void cddpi_plan_output(struct cddpi_plan *plan, int op, int block)
{
    int output = cddpi_plan_op_of(plan, op)->output;

    plan->values[output].block = block;
    plan->values[output].elements = cddpi_plan_elements(plan, &graph_of(plan)->values[output].shape,
                                                        block);
}

cddp_status cddpi_plan_flat(struct cddpi_plan *plan, int op)
{
    cddpi_plan_output(plan, op, 1);
    return CDDP_OK;
}

cddp_status cddpi_plan_no_memory(const struct cddpi_plan *plan)
{
    return cddpi_fail(CDDP_ERR_NO_MEMORY, "model: no memory to plan batches of %d samples",
                      plan->count);
}

struct cddpi_nn_layout cddpi_plan_layout(const struct cddpi_plan *plan,
                                         const struct cddpi_shape *shape, int block)
{
    return (struct cddpi_nn_layout){(size_t)plan->count, (size_t)shape->channels,
                                    (size_t)shape->height * (size_t)shape->width, (size_t)block};
}

struct cddpi_nn_layout cddpi_plan_input_layout(const struct cddpi_plan *plan, int op)
{
    return cddpi_plan_layout(plan, &cddpi_plan_op_of(plan, op)->in,
                             cddpi_plan_input(plan, op, 0)->block);
}

/* @p items with room for one more than @p count. NULL: memory has run out, which the plan
 * remembers.
 */
static void *grow(struct cddpi_plan *plan, void *items, size_t item_bytes, int count, int *capacity)
{
    int wanted = *capacity > 0 ? 2 * *capacity : 32;

    if (count < *capacity) {
        return items;
    }
    items = cddpi_realloc(items, (size_t)wanted * item_bytes);
    *capacity = items != NULL ? wanted : *capacity;
    plan->no_memory = plan->no_memory || items == NULL;
    return items;
}

int cddpi_plan_buffer(struct cddpi_plan *plan, int op, size_t bytes, enum cddpi_lifetime lifetime)
{
    int buffer = cddpi_arena_add(&plan->arena, bytes, 0, 0);
    struct cddpi_owned_buffer *owned = grow(plan, plan->owned, sizeof *owned, plan->owned_count,
                                            &plan->owned_capacity);

    plan->no_memory = plan->no_memory || buffer < 0;
    plan->owned = owned != NULL ? owned : plan->owned;
    if (buffer >= 0 && owned != NULL) {
        owned[plan->owned_count++] = (struct cddpi_owned_buffer){buffer, op, lifetime};
    }
    return buffer;
}

void cddpi_plan_part(struct cddpi_plan *plan, const char *name, const struct cddpi_plan_part *part)
{
    struct cddpi_plan_part *parts = grow(plan, plan->parts, sizeof *parts, plan->part_count,
                                         &plan->part_capacity);

    if (parts != NULL) {
        plan->parts = parts;
        parts[plan->part_count] = *part;
        snprintf(parts[plan->part_count++].name, sizeof parts->name, "%s", name);
    }
}

struct cddpi_plan_mark cddpi_plan_mark(const struct cddpi_plan *plan)
{
    return (struct cddpi_plan_mark){plan->part_count, plan->owned_count, plan->arena.count};
}

void cddpi_plan_rollback(struct cddpi_plan *plan, struct cddpi_plan_mark mark)
{
    plan->part_count = mark.parts;
    plan->owned_count = mark.owned;
    plan->arena.count = mark.buffers;
}

size_t cddpi_plan_value_bytes(const struct cddpi_plan *plan, int value)
{
    return plan->values[value].elements * cddp_type_bytes(plan->values[value].type);
}

bool cddpi_plan_wants_grad(const struct cddpi_plan *plan, int op, int k)
{
    return plan->training &&
           graph_of(plan)->values[cddpi_plan_op_of(plan, op)->inputs[k]].needs_grad;
}

static int later(int a, int b)
{
    return a > b ? a : b;
}

/* When the last reader of @p value runs, for the value of the first forward, or with @p recomputed
 * for the recomputed value. */
static int last_read(const struct cddpi_plan *plan, int value, bool recomputed)
{
    const struct cddpi_graph *graph = graph_of(plan);
    int producer = graph->values[value].producer;
    bool to_the_end = recomputed || producer < 0 || plan->ops[producer].recompute_time < 0;
    int last = recomputed ? plan->ops[producer].recompute_time : producer;

    for (int i = 0; i < graph->op_count; i++) {
        const struct cddpi_op *op = &graph->ops[i];
        unsigned flags = plan->training && to_the_end ? plan->ops[i].flags : 0;
        int delay = (plan->ops[i].flags & CDDPI_FORWARD_DEFERRED) != 0 ? 1 : 0;

        for (int k = 0; k < op->input_count; k++) {
            if (op->inputs[k] != value) {
                continue;
            }
            last = recomputed ? last : later(last, i + delay);
            last = to_the_end ? later(last, plan->ops[i].recompute_time + delay) : last;
            if ((flags & (CDDPI_NEEDS_INPUT | CDDPI_TAKES_INPUT)) != 0 ||
                ((flags & CDDPI_NEEDS_FIRST) != 0 && k == 0)) {
                last = later(last, backward_time(plan, i));
            }
            if ((flags & CDDPI_WEIGHTS_INPUT) != 0) {
                last = later(last, plan->ops[i].weights);
            }
        }
        if (op->output == value && (flags & CDDPI_NEEDS_OUTPUT) != 0) {
            last = later(last, backward_time(plan, i));
        }
    }
    if (graph->ops[graph->op_count - 1].inputs[0] != value ||
        (plan->ops[graph->op_count - 1].flags & CDDPI_TAKES_INPUT) != 0) {
        return last;
    }
    return plan->end; /* the model's outputs stay valid until the next forward */
}

/* Let the output of op @p index, in @p buffer and written at @p time, share memory with an input:
 * as a view of it, or in its place. */
static void share_input(struct cddpi_plan *plan, int index, int buffer, int time)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    unsigned flags = plan->ops[index].flags;
    bool placed = false;

    for (int k = 0; k < op->input_count && !placed; k++) {
        int base = plan->values[op->inputs[k]].activation;

        if (base >= 0 && time != index && plan->arena.buffers[base].recomputed >= 0) {
            base = plan->arena.buffers[base].recomputed;
        }
        if (base >= 0 && (flags & CDDPI_FORWARD_VIEW) != 0) {
            cddpi_arena_view(&plan->arena, buffer, base);
            return;
        }
        placed = (flags & CDDPI_FORWARD_INPLACE) != 0 && base >= 0 &&
                 cddpi_arena_replace(&plan->arena, buffer, base, time);
    }
}

static cddp_status plan_data(struct cddpi_plan *plan)
{
    struct cddpi_plan_value *data = &plan->values[CDDPI_VALUE_INPUT];

    if (plan->data != CDDPI_DATA_AS_IT_IS) {
        data->activation = cddpi_arena_add(&plan->arena,
                                           cddpi_plan_value_bytes(plan, CDDPI_VALUE_INPUT), 0,
                                           last_read(plan, CDDPI_VALUE_INPUT, false));
        if (data->activation < 0) {
            return cddpi_plan_no_memory(plan);
        }
    }
    return CDDP_OK;
}

static cddp_status plan_activations(struct cddpi_plan *plan)
{
    const struct cddpi_graph *graph = graph_of(plan);

    for (int i = 0; i < graph->op_count; i++) {
        const struct cddpi_op *op = &graph->ops[i];
        int *activation;

        if (op->output < 0 || ((plan->ops[i].flags & CDDPI_FORWARD_VIEW) != 0 &&
                               plan->values[op->inputs[0]].activation < 0)) {
            continue; /* no input, or the caller's memory, which is no buffer */
        }
        activation = &plan->values[op->output].activation;
        *activation = cddpi_arena_add(&plan->arena, cddpi_plan_value_bytes(plan, op->output), i,
                                      last_read(plan, op->output, false));
        if (*activation < 0) {
            return cddpi_plan_no_memory(plan);
        }
        share_input(plan, i, *activation, i);
    }
    return CDDP_OK;
}

/* The same for recomputed values, in the order in which they are computed: from the last segment
 * on. */
static cddp_status plan_recomputed(struct cddpi_plan *plan)
{
    const struct cddpi_graph *graph = graph_of(plan);

    for (int i = graph->op_count - 1; i >= 0; i--) {
        for (int j = cddpi_plan_segment_begin(plan, i); j <= i; j++) {
            int output = graph->ops[j].output;
            int recomputed;

            if (plan->ops[j].recompute_time < 0 || plan->values[output].activation < 0) {
                continue;
            }
            recomputed = cddpi_arena_recomputed(&plan->arena, plan->values[output].activation,
                                                plan->ops[j].recompute_time,
                                                last_read(plan, output, true));
            if (recomputed < 0) {
                return cddpi_plan_no_memory(plan);
            }
            share_input(plan, j, recomputed, plan->ops[j].recompute_time);
        }
    }
    return CDDP_OK;
}

static cddp_status plan_memory(struct cddpi_plan *plan)
{
    const struct cddpi_graph *graph = graph_of(plan);

    cddpi_plan_schedule(plan);
    CDDPI_TRY(cddpi_plan_set_lifetimes(plan));
    CDDPI_TRY(plan_data(plan));
    CDDPI_TRY(plan_activations(plan));
    CDDPI_TRY(plan_recomputed(plan));
    for (int i = graph->op_count - 1; plan->training && i >= 0; i--) {
        int output = graph->ops[i].output;

        if (output < 0 || graph->values[output].needs_grad) {
            CDDPI_TRY(cddpi_plan_gradients(plan, i));
        }
    }
    cddpi_plan_set_regions(plan);
    return cddpi_arena_place(&plan->arena);
}

static cddp_status plan_op(struct cddpi_plan *plan, int index)
{
    const struct cddpi_op_kernels *kernels = cddpi_plan_op_of(plan, index)->kernels;
    cddp_status status = CDDP_OK;

    if (kernels->state_bytes > 0) {
        plan->ops[index].state = cddpi_zalloc(kernels->state_bytes);
        if (plan->ops[index].state == NULL) {
            return cddpi_plan_no_memory(plan);
        }
    }
    if (kernels->plan != NULL) {
        status = cddpi_plan_by_kernels(plan, index);
    }
    /* even if the op continued without that buffer or layout */
    return plan->no_memory || plan->layouts.failed ? cddpi_plan_no_memory(plan) : status;
}

static cddp_status plan_ops(struct cddpi_plan *plan)
{
    const struct cddpi_graph *graph = graph_of(plan);

    for (int i = 0; i < graph->value_count; i++) {
        plan->values[i] = (struct cddpi_plan_value){
            .block = 1, .type = plan->model->type, .activation = -1, .grads = {-1, -1}};
    }
    plan->values[CDDPI_VALUE_INPUT].elements = cddpi_plan_elements(
        plan, &graph->values[CDDPI_VALUE_INPUT].shape, 1);
    for (int i = 0; i < graph->op_count; i++) {
        plan->ops[i] = (struct cddpi_plan_op){
            .recompute_time = -1, .preact_grad = -1, .other = -1, .grad_inputs = {-1, -1}};
    }
    if (plan->model->ops->plan_data != NULL) {
        plan->model->ops->plan_data(plan);
    }
    for (int i = 0; i < graph->op_count; i++) {
        cddp_status status = plan_op(plan, i);

        if (status != CDDP_OK) {
            return cddpi_fail_prefix(status, "layer \"%s\"", graph->ops[i].layer.name);
        }
    }
    return CDDP_OK;
}

static bool receives_images(const struct cddpi_model *model)
{
    for (size_t k = 0; model->part != NULL && k < model->part->in.count; k++) {
        const struct cddpi_shape *shape = &model->graph.values[model->part->in.values[k]].shape;

        if (!shape->flat && !shape->sequence) {
            return true;
        }
    }
    return false;
}

/* Plan the whole graph, only for its layouts: on the CPU, each op's choice depends on the ops
 * before it. */
static cddp_status find_whole_blocks(struct cddpi_plan *plan)
{
    struct cddpi_model *model = plan->model;
    struct cddpi_graph graph = model->graph;
    struct cddpi_part *part = model->part;
    int count = part->whole.value_count;
    struct cddpi_plan *whole = NULL;
    cddp_status status;

    plan->whole_blocks = cddpi_zalloc_array((size_t)count, sizeof *plan->whole_blocks);
    if (plan->whole_blocks == NULL) {
        return cddpi_plan_no_memory(plan);
    }
    model->graph = part->whole;
    model->part = NULL;
    status = cddpi_plan_create(model, plan->count, plan->training, &whole);
    for (int v = 0; status == CDDP_OK && v < count; v++) {
        plan->whole_blocks[v] = whole->values[v].block;
    }
    cddpi_plan_destroy(whole);
    model->graph = graph;
    model->part = part;
    return status;
}

int cddpi_part_block(const struct cddpi_plan *plan, int value)
{
    const struct cddpi_shape *shape = &graph_of(plan)->values[value].shape;

    if (plan->whole_blocks != NULL) {
        return plan->whole_blocks[plan->model->part->origin[value]];
    }
    return shape->flat ? 1 : shape->channels;
}

cddp_status cddpi_plan_create(struct cddpi_model *model, int count, bool training,
                              struct cddpi_plan **out)
{
    struct cddpi_plan *plan = cddpi_zalloc(sizeof *plan);
    const struct cddpi_graph *graph = &model->graph;
    cddp_status status;

    CDDPI_TRY_MEMORY(plan != NULL, "model: no memory for a plan");
    plan->model = model;
    plan->count = count;
    plan->training = training;
    plan->recompute = training && model->recompute;
    plan->split = training && model->split;
    plan->values = cddpi_zalloc_array((size_t)graph->value_count, sizeof *plan->values);
    plan->ops = cddpi_zalloc_array((size_t)graph->op_count, sizeof *plan->ops);
    /* each op contributes once to each of its inputs, and a sum replaces one contribution */
    plan->sums = cddpi_zalloc_array((size_t)graph->op_count * CDDPI_OP_INPUTS, sizeof *plan->sums);
    plan->contributions = cddpi_zalloc_array((size_t)graph->op_count * CDDPI_OP_INPUTS,
                                             sizeof *plan->contributions);
    if (plan->values == NULL || plan->ops == NULL || plan->sums == NULL ||
        plan->contributions == NULL) {
        status = cddpi_plan_no_memory(plan);
        goto fail;
    }
    if (receives_images(model) && model->device->ops->kind == CDDPI_DEVICE_CPU) {
        CDDPI_TRY_GOTO(fail, status, find_whole_blocks(plan));
    }
    CDDPI_TRY_GOTO(fail, status, plan_ops(plan));
    CDDPI_TRY_GOTO(fail, status, plan_memory(plan));
    *out = plan;
    return CDDP_OK;

fail:
    cddpi_plan_destroy(plan);
    return status;
}

void cddpi_plan_destroy(struct cddpi_plan *plan)
{
    if (plan == NULL) {
        return;
    }
    for (int i = 0; plan->ops != NULL && i < graph_of(plan)->op_count; i++) {
        const struct cddpi_op_kernels *kernels = graph_of(plan)->ops[i].kernels;

        if (plan->ops[i].state != NULL && kernels->unplan != NULL) {
            kernels->unplan(plan->ops[i].state);
        }
        cddpi_free(plan->ops[i].state);
    }
    cddpi_mds_drop(&plan->layouts);
    cddpi_arena_fini(&plan->arena);
    cddpi_free(plan->owned);
    cddpi_free(plan->parts);
    cddpi_free(plan->values);
    cddpi_free(plan->ops);
    cddpi_free(plan->contributions);
    cddpi_free(plan->sums);
    cddpi_free(plan->whole_blocks);
    cddpi_free(plan);
}
