/* plan.c - owns the compilation of a graph for one batch size and mode: it lets each op choose its
 * layout and ask for memory, then derives from the ops' flags how long each buffer is alive, what
 * may be done in place, and where gradients of a value used several times are summed. */
#include "nn/plan.h"

#include "base/alloc.h"
#include "base/error.h"
#include "nn/cuda.h"
#include "nn/model_state.h"

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

static cddp_status no_memory(const struct cddpi_plan *plan)
{
    return cddpi_fail(CDDP_ERR_NO_MEMORY, "model: no memory to plan batches of %d samples",
                      plan->count);
}

cddp_status cddpi_plan_buffer(struct cddpi_plan *plan, int op, size_t bytes,
                              enum cddpi_lifetime lifetime, int *out)
{
    int buffer = cddpi_memory_add(&plan->memory, bytes, 0, 0);

    if (plan->owned_count == plan->owned_capacity) {
        int capacity = plan->owned_capacity > 0 ? 2 * plan->owned_capacity : 32;
        void *grown = cddpi_realloc(plan->owned, (size_t)capacity * sizeof *plan->owned);

        if (grown == NULL) {
            return no_memory(plan);
        }
        plan->owned = grown;
        plan->owned_capacity = capacity;
    }
    if (buffer < 0) {
        return no_memory(plan);
    }
    plan->owned[plan->owned_count++] = (struct cddpi_owned_buffer){buffer, op, lifetime};
    *out = buffer;
    return CDDP_OK;
}

static size_t value_bytes(const struct cddpi_plan *plan, int value)
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

/* When what the first forward made of @p value is last read, or (@p again) what the second did. */
static int last_read(const struct cddpi_plan *plan, int value, bool again)
{
    const struct cddpi_graph *graph = graph_of(plan);
    int producer = graph->values[value].producer;
    bool to_the_end = again || producer < 0 || plan->ops[producer].again < 0;
    int last = again ? plan->ops[producer].again : producer;

    for (int i = 0; i < graph->op_count; i++) {
        const struct cddpi_op *op = &graph->ops[i];
        unsigned flags = plan->training && to_the_end ? plan->ops[i].flags : 0;
        int delay = (plan->ops[i].flags & CDDPI_FORWARD_LATER) != 0 ? 1 : 0;

        for (int k = 0; k < op->input_count; k++) {
            if (op->inputs[k] != value) {
                continue;
            }
            last = again ? last : later(last, i + delay);
            last = to_the_end ? later(last, plan->ops[i].again + delay) : last;
            if ((flags & (CDDPI_NEEDS_INPUT | CDDPI_TAKES_INPUT)) != 0 ||
                ((flags & CDDPI_NEEDS_FIRST) != 0 && k == 0)) {
                last = later(last, backward_time(plan, i));
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
    return plan->end; /* the model's outputs stay until the next forward */
}

/* Where the output of op @p index, in @p buffer and written at @p time, shares memory with an
 * input: as the same thing, or in its place. */
static void share_input(struct cddpi_plan *plan, int index, int buffer, int time)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    unsigned flags = plan->ops[index].flags;
    bool placed = false;

    for (int k = 0; k < op->input_count && !placed; k++) {
        int base = plan->values[op->inputs[k]].activation;

        if (base >= 0 && time != index && plan->memory.buffers[base].again >= 0) {
            base = plan->memory.buffers[base].again;
        }
        if (base >= 0 && (flags & CDDPI_FORWARD_VIEW) != 0) {
            cddpi_memory_view(&plan->memory, buffer, base);
            return;
        }
        placed = (flags & CDDPI_FORWARD_INPLACE) != 0 && base >= 0 &&
                 cddpi_memory_replace(&plan->memory, buffer, base, time);
    }
}

static cddp_status plan_data(struct cddpi_plan *plan)
{
    struct cddpi_plan_value *data = &plan->values[CDDPI_VALUE_INPUT];

    if (plan->data != CDDPI_DATA_AS_IT_IS) {
        data->activation = cddpi_memory_add(&plan->memory, value_bytes(plan, CDDPI_VALUE_INPUT), 0,
                                            last_read(plan, CDDPI_VALUE_INPUT, false));
        if (data->activation < 0) {
            return no_memory(plan);
        }
    }
    return CDDP_OK;
}

static cddp_status plan_activations(struct cddpi_plan *plan)
{
    const struct cddpi_graph *graph = graph_of(plan);

    for (int i = 0; i + 1 < graph->op_count; i++) {
        const struct cddpi_op *op = &graph->ops[i];
        struct cddpi_plan_value *output = &plan->values[op->output];

        if ((plan->ops[i].flags & CDDPI_FORWARD_VIEW) != 0 &&
            plan->values[op->inputs[0]].activation < 0) {
            continue; /* of the caller's memory: no buffer */
        }
        output->activation = cddpi_memory_add(&plan->memory, value_bytes(plan, op->output), i,
                                              last_read(plan, op->output, false));
        if (output->activation < 0) {
            return no_memory(plan);
        }
        share_input(plan, i, output->activation, i);
    }
    return CDDP_OK;
}

/* The same for what runs again, in the order in which it does: segments from the last on. */
static cddp_status plan_again(struct cddpi_plan *plan)
{
    const struct cddpi_graph *graph = graph_of(plan);

    for (int i = graph->op_count - 1; i >= 0; i--) {
        for (int j = cddpi_plan_segment_begin(plan, i); j <= i; j++) {
            int output = graph->ops[j].output;
            int again;

            if (plan->ops[j].again < 0 || plan->values[output].activation < 0) {
                continue;
            }
            again = cddpi_memory_again(&plan->memory, plan->values[output].activation,
                                       plan->ops[j].again, last_read(plan, output, true));
            if (again < 0) {
                return no_memory(plan);
            }
            share_input(plan, j, again, plan->ops[j].again);
        }
    }
    return CDDP_OK;
}

/* A buffer that is written at @p time and in the place of one of @p bases, where that is dead. */
static cddp_status add_over(struct cddpi_plan *plan, size_t bytes, int time, int last,
                            const int *bases, int base_count, int *out)
{
    int buffer = cddpi_memory_add(&plan->memory, bytes, time, last);

    if (buffer < 0) {
        return no_memory(plan);
    }
    for (int i = 0; i < base_count; i++) {
        if (bases[i] >= 0 && cddpi_memory_replace(&plan->memory, buffer, bases[i], time)) {
            break;
        }
    }
    *out = buffer;
    return CDDP_OK;
}

/* One more gradient for @p value, in @p buffer: it stays until the producer's backward. */
static void contribute(struct cddpi_plan *plan, int value, int buffer)
{
    int producer = graph_of(plan)->values[value].producer;

    cddpi_memory_extend(&plan->memory, buffer, backward_time(plan, producer));
    plan->contributions[plan->contribution_count++] = (struct cddpi_contribution){value, buffer};
}

/* Collect what the consumers of @p op's output contributed. It takes one gradient, or two if it
 * can; more are summed just before its backward. */
static cddp_status plan_sums(struct cddpi_plan *plan, int index)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    struct cddpi_plan_value *output = &plan->values[op->output];
    bool takes_two = (plan->ops[index].flags & CDDPI_SUMS_GRADS) != 0;
    int time = backward_time(plan, index);

    for (int i = 0; i < plan->contribution_count; i++) {
        const struct cddpi_contribution *one = &plan->contributions[i];
        struct cddpi_grad_sum *sum = &plan->sums[plan->sum_count];
        cddp_status status;

        if (one->value != op->output) {
            continue;
        }
        if (output->grads[0] < 0) {
            output->grads[0] = one->buffer;
            continue;
        }
        if (takes_two && output->grads[1] < 0) {
            output->grads[1] = one->buffer;
            continue;
        }
        *sum = (struct cddpi_grad_sum){op->output, output->grads[0], one->buffer, -1};
        status = add_over(plan, value_bytes(plan, op->output), time, time, (int[]){sum->a, sum->b},
                          2, &sum->out);
        if (status != CDDP_OK) {
            return status;
        }
        output->grads[0] = sum->out;
        plan->sum_count++;
    }
    return CDDP_OK;
}

/* What others contributed to the gradient of op @p index's first input; NULL: nothing yet. */
static struct cddpi_contribution *other_contribution(const struct cddpi_plan *plan, int index)
{
    for (int i = plan->contribution_count - 1; i >= 0; i--) {
        if (plan->contributions[i].value == cddpi_plan_op_of(plan, index)->inputs[0]) {
            return &plan->contributions[i];
        }
    }
    return NULL;
}

static bool takes_other(const struct cddpi_plan *plan, int index)
{
    return other_contribution(plan, index) != NULL;
}

/* Whether nobody else reads the memory of @p one from op @p index's backward on. */
static bool is_alone(const struct cddpi_plan *plan, int index, const struct cddpi_contribution *one)
{
    int producer = graph_of(plan)->values[one->value].producer;
    const struct cddpi_buffer *root = cddpi_memory_root(&plan->memory, one->buffer);

    for (int i = 0; i < plan->contribution_count; i++) {
        const struct cddpi_contribution *two = &plan->contributions[i];

        if (two != one && graph_of(plan)->values[two->value].producer <= index &&
            cddpi_memory_root(&plan->memory, two->buffer) == root) {
            return false;
        }
    }
    return root->last == backward_time(plan, producer);
}

/* The gradient of op @p index's first input takes the place of what others contributed to it. */
static cddp_status add_other(struct cddpi_plan *plan, int index)
{
    struct cddpi_contribution *other = other_contribution(plan, index);
    struct cddpi_plan_op *planned = &plan->ops[index];
    int producer = graph_of(plan)->values[other->value].producer;
    bool alone = is_alone(plan, index, other);
    int buffer = cddpi_memory_add(&plan->memory, value_bytes(plan, other->value), planned->backward,
                                  backward_time(plan, producer));

    if (buffer < 0) {
        return no_memory(plan);
    }
    if (alone) {
        cddpi_memory_view(&plan->memory, buffer, other->buffer);
    }
    planned->other = other->buffer;
    planned->grad_inputs[0] = buffer;
    other->buffer = buffer;
    return CDDP_OK;
}

static cddp_status plan_op_gradients(struct cddpi_plan *plan, int index)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    struct cddpi_plan_op *planned = &plan->ops[index];
    const int none[2] = {-1, -1};
    const int *grads = op->output >= 0 ? plan->values[op->output].grads : none;
    int time = backward_time(plan, index);
    cddp_status status = op->output >= 0 ? plan_sums(plan, index) : CDDP_OK;
    const unsigned inplace = CDDPI_GRAD_INPLACE | CDDPI_TAKES_INPUT;
    int source = grads[0]; /* what the inputs' gradients may share memory with */

    if ((planned->flags & CDDPI_TAKES_INPUT) != 0) {
        source = plan->values[op->inputs[0]].activation;
    }

    if (status == CDDP_OK && (planned->flags & CDDPI_MASKS_GRAD) != 0) {
        status = add_over(plan, value_bytes(plan, op->output), time, time, grads, 2,
                          &planned->masked);
        source = planned->masked;
    }
    for (int k = 0; status == CDDP_OK && k < op->input_count; k++) {
        int value = op->inputs[k];
        int *buffer = &planned->grad_inputs[k];

        if (!graph_of(plan)->values[value].needs_grad) {
            continue;
        }
        if (k == 0 && (planned->flags & CDDPI_ADDS_OTHER) != 0 && takes_other(plan, index)) {
            status = add_other(plan, index);
            continue;
        }
        if ((planned->flags & CDDPI_GRAD_VIEW) != 0) {
            *buffer = source;
        } else {
            status = add_over(plan, value_bytes(plan, value), time, time, &source,
                              (planned->flags & inplace) != 0 ? 1 : 0, buffer);
        }
        if (status == CDDP_OK) {
            contribute(plan, value, *buffer);
        }
    }
    return status;
}

static bool has_backward(const struct cddpi_graph *graph, int index)
{
    int output = graph->ops[index].output;

    return output < 0 || graph->values[output].needs_grad;
}

static cddp_status plan_memory(struct cddpi_plan *plan)
{
    const struct cddpi_graph *graph = graph_of(plan);
    cddp_status status;

    cddpi_plan_schedule(plan);
    status = cddpi_plan_date_owned(plan);
    if (status == CDDP_OK) {
        status = plan_data(plan);
    }
    if (status == CDDP_OK) {
        status = plan_activations(plan);
    }
    if (status == CDDP_OK) {
        status = plan_again(plan);
    }
    for (int i = graph->op_count - 1; plan->training && status == CDDP_OK && i >= 0; i--) {
        if (has_backward(graph, i)) {
            status = plan_op_gradients(plan, i);
        }
    }
    return status == CDDP_OK ? cddpi_memory_place(&plan->memory) : status;
}

static cddp_status plan_ops(struct cddpi_plan *plan)
{
    const struct cddpi_graph *graph = graph_of(plan);

    for (int i = 0; i < graph->value_count; i++) {
        plan->values[i] = (struct cddpi_plan_value){
            .block = 1, .type = cddpi_model_type(plan->model), .activation = -1, .grads = {-1, -1}};
    }
    plan->values[CDDPI_VALUE_INPUT].elements = cddpi_plan_elements(
        plan, &graph->values[CDDPI_VALUE_INPUT].shape, 1);
    for (int i = 0; i < graph->op_count; i++) {
        plan->ops[i] = (struct cddpi_plan_op){
            .again = -1, .masked = -1, .other = -1, .grad_inputs = {-1, -1}};
    }
    if (plan->model->cuda != NULL) {
        cddpi_cuda_plan(plan);
    }
    for (int i = 0; i < graph->op_count; i++) {
        const struct cddpi_op_ops *ops = graph->ops[i].ops;
        cddp_status status = plan->model->cuda != NULL
                                 ? ops->cuda->plan(plan, i, &plan->ops[i].state)
                                 : ops->plan(plan, i, &plan->ops[i].state);

        if (status != CDDP_OK) {
            return cddpi_fail_prefix(status, "layer \"%s\"", graph->ops[i].layer.name);
        }
    }
    return CDDP_OK;
}

cddp_status cddpi_plan_create(struct cddpi_model *model, int count, bool training,
                              struct cddpi_plan **out)
{
    struct cddpi_plan *plan = cddpi_zalloc(sizeof *plan);
    const struct cddpi_graph *graph = &model->graph;
    cddp_status status;

    if (plan == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "model: no memory for a plan");
    }
    plan->model = model;
    plan->count = count;
    plan->training = training;
    plan->recompute = training && model->recompute;
    plan->values = cddpi_zalloc_array((size_t)graph->value_count, sizeof *plan->values);
    plan->ops = cddpi_zalloc_array((size_t)graph->op_count, sizeof *plan->ops);
    /* an op contributes to each of its inputs, and a sum replaces a contribution */
    plan->sums = cddpi_zalloc_array((size_t)graph->op_count * CDDPI_OP_INPUTS, sizeof *plan->sums);
    plan->contributions = cddpi_zalloc_array((size_t)graph->op_count * CDDPI_OP_INPUTS,
                                             sizeof *plan->contributions);
    if (plan->values == NULL || plan->ops == NULL || plan->sums == NULL ||
        plan->contributions == NULL) {
        status = no_memory(plan);
    } else {
        status = plan_ops(plan);
    }
    if (status == CDDP_OK) {
        status = plan_memory(plan);
    }
    if (status != CDDP_OK) {
        cddpi_plan_destroy(plan);
        return status;
    }
    *out = plan;
    return CDDP_OK;
}

void cddpi_plan_destroy(struct cddpi_plan *plan)
{
    if (plan == NULL) {
        return;
    }
    for (int i = 0; plan->ops != NULL && i < graph_of(plan)->op_count; i++) {
        if (plan->model->cuda != NULL) {
            cddpi_free(plan->ops[i].state);
        } else if (plan->ops[i].state != NULL) {
            graph_of(plan)->ops[i].ops->unplan(plan->ops[i].state);
        }
    }
    cddpi_memory_fini(&plan->memory);
    cddpi_free(plan->owned);
    cddpi_free(plan->values);
    cddpi_free(plan->ops);
    cddpi_free(plan->contributions);
    cddpi_free(plan->sums);
    cddpi_free(plan);
}
