/* plan_schedule.c - owns when ops run: forward in order, backward in reverse, and before the
 * backward of a segment another forward of those of its ops whose outputs were not kept.
 *
 * A value that other segments read is kept. Any other op is recomputed if its result is read in
 * backward, or by an op that is recomputed. */
#include "nn/plan/model_plan.h"

#include "base/error.h"
#include "nn/model_state.h"

static const struct cddpi_op *op_of(const struct cddpi_plan *plan, int op)
{
    return &plan->model->graph.ops[op];
}

static bool reads(const struct cddpi_op *op, int value)
{
    return (op->input_count > 0 && op->inputs[0] == value) ||
           (op->input_count > 1 && op->inputs[1] == value);
}

/* Whether a buffer is needed from forward on. */
static bool is_kept(enum cddpi_lifetime lifetime)
{
    return lifetime == CDDPI_IN_BOTH || lifetime == CDDPI_FORWARD_TO_WEIGHTS;
}

/* Whether the memory that op @p index keeps for its backward, besides its output, justifies another
 * forward. */
static bool keeps_much(const struct cddpi_plan *plan, int index)
{
    const struct cddpi_plan_value *output = &plan->values[op_of(plan, index)->output];
    size_t output_bytes = output->elements * cddp_type_bytes(output->type);
    size_t kept_bytes = 0;

    for (int i = 0; i < plan->owned_count; i++) {
        if (plan->owned[i].op == index && is_kept(plan->owned[i].lifetime)) {
            kept_bytes += plan->arena.buffers[plan->owned[i].buffer].bytes;
        }
    }
    return kept_bytes > output_bytes / 8;
}

static bool leaves_segment(const struct cddpi_plan *plan, int index)
{
    const struct cddpi_op *op = op_of(plan, index);

    for (int i = index + 1; i < plan->model->graph.op_count; i++) {
        if (op_of(plan, i)->layer.segment != op->layer.segment &&
            reads(op_of(plan, i), op->output)) {
            return true;
        }
    }
    return false;
}

static bool is_recomputed(const struct cddpi_plan *plan, int index)
{
    const struct cddpi_op *op = op_of(plan, index);
    int segment = op->layer.segment;

    if (!plan->recompute || segment == 0 || leaves_segment(plan, index)) {
        return false;
    }
    if ((plan->ops[index].flags & CDDPI_NEEDS_OUTPUT) != 0 || keeps_much(plan, index)) {
        return true;
    }
    for (int i = index + 1; op_of(plan, i)->layer.segment == segment; i++) {
        const unsigned reads_inputs = CDDPI_NEEDS_INPUT | CDDPI_WEIGHTS_INPUT;
        bool later = (plan->ops[i].flags & reads_inputs) != 0 || plan->ops[i].recompute_time >= 0;

        if (later && reads(op_of(plan, i), op->output)) {
            return true;
        }
    }
    return false;
}

/* Whether backward enters a segment at op @p index. */
static bool ends_segment(const struct cddpi_plan *plan, int index)
{
    int segment = op_of(plan, index)->layer.segment;

    /* the loss has no output */
    return segment != 0 && op_of(plan, index + 1)->layer.segment != segment;
}

int cddpi_plan_segment_begin(const struct cddpi_plan *plan, int index)
{
    int begin = index;

    if (!plan->recompute || !ends_segment(plan, index)) {
        return index + 1;
    }
    while (begin > 0 &&
           op_of(plan, begin - 1)->layer.segment == op_of(plan, index)->layer.segment) {
        begin--;
    }
    return begin;
}

void cddpi_plan_schedule(struct cddpi_plan *plan)
{
    int count = plan->model->graph.op_count;
    int time = count;

    for (int i = count - 1; i >= 0; i--) {
        plan->ops[i].recompute_time = is_recomputed(plan, i) ? 0 : -1;
    }
    for (int i = count - 1; i >= 0; i--) {
        for (int j = cddpi_plan_segment_begin(plan, i); j <= i; j++) {
            if (plan->ops[j].recompute_time >= 0) {
                plan->ops[j].recompute_time = time++;
            }
        }
        plan->ops[i].backward = time++;
    }
    plan->end = time++;
    for (int i = count - 1; i >= 0; i--) {
        bool later = plan->split && op_of(plan, i)->kernels->weights != NULL;

        plan->ops[i].weights = later ? time++ : plan->ops[i].backward;
    }
}

static int first_use(const struct cddpi_plan *plan, const struct cddpi_owned_buffer *owned)
{
    switch (owned->lifetime) {
    case CDDPI_IN_BACKWARD:
    case CDDPI_BACKWARD_TO_WEIGHTS:
        return plan->ops[owned->op].backward;
    case CDDPI_IN_WEIGHTS:
        return plan->ops[owned->op].weights;
    default:
        return owned->op;
    }
}

/* The time of the last use, for buffers that are also used after forward, in training. */
static int last_use(const struct cddpi_plan *plan, const struct cddpi_owned_buffer *owned)
{
    bool weights = owned->lifetime == CDDPI_FORWARD_TO_WEIGHTS ||
                   owned->lifetime == CDDPI_BACKWARD_TO_WEIGHTS ||
                   owned->lifetime == CDDPI_IN_WEIGHTS;

    return weights ? plan->ops[owned->op].weights : plan->ops[owned->op].backward;
}

cddp_status cddpi_plan_set_lifetimes(struct cddpi_plan *plan)
{
    for (int i = 0; i < plan->owned_count; i++) {
        const struct cddpi_owned_buffer *owned = &plan->owned[i];
        const struct cddpi_plan_op *op = &plan->ops[owned->op];
        struct cddpi_arena_buffer *buffer = &plan->arena.buffers[owned->buffer];
        bool kept = plan->training && is_kept(owned->lifetime);
        bool forward = kept || owned->lifetime == CDDPI_IN_FORWARD;

        buffer->first = first_use(plan, owned);
        buffer->last = buffer->first;
        if (plan->training && (!forward || (kept && op->recompute_time < 0))) {
            buffer->last = last_use(plan, owned);
        }
        if (forward && op->recompute_time >= 0 &&
            cddpi_arena_recomputed(&plan->arena, owned->buffer, op->recompute_time,
                                   kept ? last_use(plan, owned) : op->recompute_time) < 0) {
            return cddpi_fail(CDDP_ERR_NO_MEMORY, "model: no memory to plan batches of %d samples",
                              plan->count);
        }
    }
    return CDDP_OK;
}

void cddpi_plan_set_regions(struct cddpi_plan *plan)
{
    int forwards = plan->model->graph.op_count;

    for (int i = 0; i < plan->arena.count; i++) {
        struct cddpi_arena_buffer *buffer = &plan->arena.buffers[i];

        buffer->region = buffer->last <= plan->end   ? CDDPI_REGION_BATCH
                         : buffer->first > plan->end ? CDDPI_REGION_SCRATCH
                         : buffer->first < forwards  ? CDDPI_REGION_KEPT
                                                     : CDDPI_REGION_GRADS;
    }
}

double cddpi_plan_extra_work(const struct cddpi_plan *plan)
{
    double once = 0;
    double recomputed = 0;

    for (int i = 0; i < plan->model->graph.op_count; i++) {
        const struct cddpi_op *op = op_of(plan, i);
        double work = op->ops->work != NULL ? op->ops->work(op) : 0;

        once += work;
        recomputed += plan->ops[i].recompute_time >= 0 ? work : 0;
    }
    return once > 0 ? recomputed / once : 0;
}
