/* grads.c - owns the memory of activations' gradients: where each op's backward writes them, and
 * how the gradients of a value with several consumers are added up. */
#include "base/error.h"
#include "nn/model_state.h"

static const struct cddpi_graph *graph_of(const struct cddpi_plan *plan)
{
    return &plan->model->graph;
}

static int backward_time(const struct cddpi_plan *plan, int op)
{
    return plan->ops[op].backward;
}

/* A buffer that is written at @p time, and reuses the memory of one of @p bases that is no longer
 * needed then. */
static cddp_status add_over(struct cddpi_plan *plan, size_t bytes, int time, int last,
                            const int *bases, int base_count, int *out)
{
    int buffer = cddpi_arena_add(&plan->arena, bytes, time, last);

    if (buffer < 0) {
        return cddpi_plan_no_memory(plan);
    }
    for (int i = 0; i < base_count; i++) {
        if (bases[i] >= 0 && cddpi_arena_replace(&plan->arena, buffer, bases[i], time)) {
            break;
        }
    }
    *out = buffer;
    return CDDP_OK;
}

/* Collect the contributions of the consumers of @p op's output. The op accepts one gradient, or two
 * with CDDPI_SUMS_GRADS; if there are more, they are summed just before its backward. */
static cddp_status plan_sums(struct cddpi_plan *plan, int index)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    struct cddpi_plan_value *output = &plan->values[op->output];
    bool takes_two = (plan->ops[index].flags & CDDPI_SUMS_GRADS) != 0;
    int time = backward_time(plan, index);

    for (int i = 0; i < plan->contribution_count; i++) {
        const struct cddpi_contribution *one = &plan->contributions[i];
        struct cddpi_grad_sum *sum = &plan->sums[plan->sum_count];

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
        CDDPI_TRY(add_over(plan, cddpi_plan_value_bytes(plan, op->output), time, time,
                           (int[]){sum->a, sum->b}, 2, &sum->out));
        output->grads[0] = sum->out;
        plan->sum_count++;
    }
    return CDDP_OK;
}

/* The contribution of other ops to the gradient of op @p index's first input; NULL: there is none
 * yet. */
static struct cddpi_contribution *other_contribution(const struct cddpi_plan *plan, int index)
{
    for (int i = plan->contribution_count - 1; i >= 0; i--) {
        if (plan->contributions[i].value == cddpi_plan_op_of(plan, index)->inputs[0]) {
            return &plan->contributions[i];
        }
    }
    return NULL;
}

/* Whether no other op reads the memory of @p one from op @p index's backward on. */
static bool is_alone(const struct cddpi_plan *plan, int index, const struct cddpi_contribution *one)
{
    int producer = graph_of(plan)->values[one->value].producer;
    const struct cddpi_arena_buffer *root = cddpi_arena_root(&plan->arena, one->buffer);

    for (int i = 0; i < plan->contribution_count; i++) {
        const struct cddpi_contribution *two = &plan->contributions[i];

        if (two != one && graph_of(plan)->values[two->value].producer <= index &&
            cddpi_arena_root(&plan->arena, two->buffer) == root) {
            return false;
        }
    }
    return root->last == backward_time(plan, producer);
}

/* Let the gradient of op @p index's first input overwrite the contribution of other ops to it. */
static cddp_status add_other(struct cddpi_plan *plan, int index)
{
    struct cddpi_contribution *other = other_contribution(plan, index);
    struct cddpi_plan_op *planned = &plan->ops[index];
    int producer = graph_of(plan)->values[other->value].producer;
    bool alone = is_alone(plan, index, other);
    int buffer = cddpi_arena_add(&plan->arena, cddpi_plan_value_bytes(plan, other->value),
                                 planned->backward, backward_time(plan, producer));

    if (buffer < 0) {
        return cddpi_plan_no_memory(plan);
    }
    if (alone) {
        cddpi_arena_view(&plan->arena, buffer, other->buffer);
    }
    planned->other = other->buffer;
    planned->grad_inputs[0] = buffer;
    other->buffer = buffer;
    return CDDP_OK;
}

cddp_status cddpi_plan_gradients(struct cddpi_plan *plan, int index)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    struct cddpi_plan_op *planned = &plan->ops[index];
    const int none[2] = {-1, -1};
    const int *grads = op->output >= 0 ? plan->values[op->output].grads : none;
    int time = backward_time(plan, index);
    const unsigned inplace = CDDPI_GRAD_INPLACE | CDDPI_TAKES_INPUT;
    int source; /* the buffer that the inputs' gradients may share */

    CDDPI_TRY(op->output >= 0 ? plan_sums(plan, index) : CDDP_OK);
    source = (planned->flags & CDDPI_TAKES_INPUT) != 0 ? plan->values[op->inputs[0]].activation
                                                       : grads[0];
    if ((planned->flags & CDDPI_MAKES_PREACT_GRAD) != 0) {
        CDDPI_TRY(add_over(plan, cddpi_plan_value_bytes(plan, op->output), time, time, grads, 2,
                           &planned->preact_grad));
        source = planned->preact_grad;
    }
    if ((planned->flags & CDDPI_WEIGHTS_GRAD) != 0) {
        cddpi_arena_extend(&plan->arena, source, planned->weights);
    }
    for (int k = 0; k < op->input_count; k++) {
        int value = op->inputs[k];
        int *buffer = &planned->grad_inputs[k];

        if (!graph_of(plan)->values[value].needs_grad) {
            continue;
        }
        if (k == 0 && (planned->flags & CDDPI_ADDS_OTHER) != 0 &&
            other_contribution(plan, index) != NULL) {
            CDDPI_TRY(add_other(plan, index));
            continue;
        }
        if ((planned->flags & CDDPI_GRAD_VIEW) != 0) {
            *buffer = source;
        } else {
            CDDPI_TRY(add_over(plan, cddpi_plan_value_bytes(plan, value), time, time, &source,
                               (planned->flags & inplace) != 0 ? 1 : 0, buffer));
        }
        /* it stays alive until the producer's backward */
        cddpi_arena_extend(&plan->arena, *buffer,
                           backward_time(plan, graph_of(plan)->values[value].producer));
        plan->contributions[plan->contribution_count++] = (struct cddpi_contribution){value,
                                                                                      *buffer};
    }
    return CDDP_OK;
}
