/* attention.c - owns causal attention of several heads as an op: shapes and memory around
 * nn/attention.h. */
#include "nn/attention_bf16.h"

#include "base/alloc.h"
#include "base/error.h"
#include "nn/cuda.h"
#include "nn/model_state.h"

struct state {
    struct cddpi_attention attention;
    struct cddpi_attention_bf16 *bf16; /* NULL: products of float32 */
    int forward_scratch;               /* buffers */
    int backward_scratch, kept;        /* training only */
};

static cddp_status shape(const struct cddpi_op *op, const struct cddpi_shape *in2,
                         struct cddpi_shape *out)
{
    int channels = op->in.channels;

    (void)in2;
    if (!op->in.sequence) {
        return cddpi_fail(CDDP_ERR_CONFIG,
                          "attention takes sequences, but its input is %d x %d x %d (channels x "
                          "height x width)",
                          channels, op->in.height, op->in.width);
    }
    if (channels % 3 != 0 || channels / 3 % op->layer.heads != 0) {
        return cddpi_fail(CDDP_ERR_CONFIG,
                          "attention takes queries, keys and values side by side, each divided "
                          "among its %d heads, but the %d channels of its input are no multiple of "
                          "3 x %d",
                          op->layer.heads, channels, op->layer.heads);
    }
    *out = op->in;
    out->channels = channels / 3;
    return CDDP_OK;
}

/* Two products with half of all pairs of tokens. */
static double work(const struct cddpi_op *op)
{
    return (double)op->in.height * (double)op->in.height * (double)op->out.channels;
}

static cddp_status plan_buffers(struct cddpi_plan *plan, int index, struct state *state)
{
    size_t scratch_bytes = cddpi_attention_scratch(&state->attention) * sizeof(float);
    bool scratch = state->bf16 == NULL;
    cddp_status status = CDDP_OK;

    if (scratch) {
        status = cddpi_plan_buffer(plan, index, scratch_bytes, CDDPI_IN_FORWARD,
                                   &state->forward_scratch);
    }
    if (status == CDDP_OK && scratch && plan->training) {
        status = cddpi_plan_buffer(plan, index, scratch_bytes, CDDPI_IN_BACKWARD,
                                   &state->backward_scratch);
    }
    if (status == CDDP_OK && plan->training) {
        status = cddpi_plan_buffer(plan, index,
                                   cddpi_attention_kept(&state->attention) * sizeof(float),
                                   CDDPI_IN_BOTH, &state->kept);
    }
    return status;
}

static cddp_status plan_attention(struct cddpi_plan *plan, int index, void **out)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    struct state *state = cddpi_zalloc(sizeof *state);
    cddp_status status;

    if (state == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "attention: no memory for %zu bytes", sizeof *state);
    }
    *out = state;
    state->attention = (struct cddpi_attention){
        (size_t)plan->count, (size_t)op->in.height, (size_t)op->layer.heads,
        (size_t)(op->out.channels / op->layer.heads), false};
    state->attention.tiles = plan->model->tiles &&
                             cddpi_attention_gains_by_tiles(&state->attention);
    cddpi_plan_output(plan, index, op->out.channels);
    plan->ops[index].flags = CDDPI_NEEDS_INPUT | CDDPI_NEEDS_OUTPUT;
    status = cddpi_attention_bf16_plan(plan, index, &state->attention, &state->bf16);
    return status == CDDP_OK ? plan_buffers(plan, index, state) : status;
}

static void unplan(void *opaque)
{
    struct state *state = opaque;

    cddpi_attention_bf16_destroy(state->bf16);
    cddpi_free(state);
}

static cddp_status forward(struct cddpi_run *run, void *opaque)
{
    struct state *state = opaque;
    float *kept = run->plan->training ? cddpi_run_buffer(run, state->kept) : NULL;

    if (state->bf16 != NULL) {
        return cddpi_attention_bf16_forward(run, state->bf16, cddpi_run_input(run, 0),
                                            cddpi_run_output(run), kept);
    }
    return cddpi_attention_forward(&state->attention, cddpi_run_input(run, 0),
                                   cddpi_run_output(run), kept,
                                   cddpi_run_buffer(run, state->forward_scratch));
}

static cddp_status backward(struct cddpi_run *run, void *opaque)
{
    struct state *state = opaque;
    float *grad_input = cddpi_run_grad_input(run, 0);

    if (grad_input == NULL) {
        return CDDP_OK;
    }
    if (state->bf16 != NULL) {
        return cddpi_attention_bf16_backward(run, state->bf16, cddpi_run_input(run, 0),
                                             cddpi_run_output(run), cddpi_run_grad_output(run, 0),
                                             cddpi_run_buffer(run, state->kept), grad_input);
    }
    return cddpi_attention_backward(&state->attention, cddpi_run_input(run, 0),
                                    cddpi_run_output(run), cddpi_run_grad_output(run, 0),
                                    cddpi_run_buffer(run, state->kept), grad_input,
                                    cddpi_run_buffer(run, state->backward_scratch));
}

struct cuda_state {
    struct cddpi_cuda_attention shape;
    int stats; /* buffer */
};

static cddp_status plan_cuda(struct cddpi_plan *plan, int index, void **out)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    struct cuda_state *state = cddpi_zalloc(sizeof *state);

    if (state == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "attention: no memory for %zu bytes", sizeof *state);
    }
    *out = state;
    state->shape = (struct cddpi_cuda_attention){.type = plan->model->cuda->type,
                                                 .batch = plan->count,
                                                 .heads = op->layer.heads,
                                                 .length = op->in.height,
                                                 .head = op->out.channels / op->layer.heads,
                                                 .any_order = plan->model->cuda->any_order};
    cddpi_plan_output(plan, index, op->out.channels);
    plan->ops[index].flags = CDDPI_NEEDS_INPUT | CDDPI_NEEDS_OUTPUT;
    return cddpi_plan_buffer(plan, index,
                             cddpi_plan_rows(plan, op) * (size_t)op->layer.heads * sizeof(float),
                             CDDPI_IN_BOTH, &state->stats);
}

static cddp_status forward_cuda(struct cddpi_run *run, void *opaque)
{
    const struct cuda_state *state = opaque;

    return cddpi_run_kernels(run)->attention(cddpi_run_device(run), &state->shape,
                                             cddpi_run_input(run, 0), cddpi_run_output(run),
                                             cddpi_run_buffer(run, state->stats));
}

static cddp_status backward_cuda(struct cddpi_run *run, void *opaque)
{
    const struct cuda_state *state = opaque;
    void *grad_input = cddpi_run_grad_input(run, 0);

    if (grad_input == NULL) {
        return CDDP_OK;
    }
    return cddpi_run_kernels(run)->attention_grad(
        cddpi_run_device(run), &state->shape, cddpi_run_input(run, 0), cddpi_run_output(run),
        cddpi_run_buffer(run, state->stats), cddpi_run_grad_output(run, 0), grad_input);
}

const struct cddpi_op_cuda cddpi_cuda_attention = {
    .plan = plan_cuda, .forward = forward_cuda, .backward = backward_cuda};

const struct cddpi_op_ops cddpi_op_attention = {.name = "attention",
                                                .shape = shape,
                                                .plan = plan_attention,
                                                .work = work,
                                                .unplan = unplan,
                                                .forward = forward,
                                                .backward = backward,
                                                .cuda = &cddpi_cuda_attention};
