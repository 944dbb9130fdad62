/* attention_op.c - owns causal multi-head attention as an op: shapes and memory around
 * nn/cpu/cpu_attention.h. */
#include "nn/cpu/cpu_attention.h"

#include "base/error.h"
#include "nn/cuda/model_cuda.h"

struct attention_state {
    struct cddpi_attention attention;
    struct cddpi_attention_bf16 *bf16; /* NULL: float32 products */
    int forward_scratch;               /* buffers */
    int backward_scratch, kept;        /* training only */
};

static cddp_status shape(const struct cddpi_op *op, struct cddpi_shape *out)
{
    int channels = op->in.channels;

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
    out->channels = channels / 3;
    return CDDP_OK;
}

/* Two products, each over half of all pairs of tokens. */
static double work(const struct cddpi_op *op)
{
    return (double)op->in.height * (double)op->in.height * (double)op->out.channels;
}

static cddp_status plan_attention(struct cddpi_plan *plan, int index)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    struct attention_state *state = plan->ops[index].state;
    struct cddpi_attention *attention = &state->attention;
    size_t scratch;

    *attention = (struct cddpi_attention){(size_t)plan->count, (size_t)op->in.height,
                                          (size_t)op->layer.heads,
                                          (size_t)(op->out.channels / op->layer.heads), false};
    attention->amx = plan->model->amx && cddpi_attention_gains_by_amx(attention);
    scratch = cddpi_attention_scratch(attention) * sizeof(float);
    cddpi_plan_output(plan, index, op->out.channels);
    plan->ops[index].flags = CDDPI_NEEDS_INPUT | CDDPI_NEEDS_OUTPUT;
    CDDPI_TRY(cddpi_attention_bf16_plan(plan, index, attention, &state->bf16));
    if (state->bf16 == NULL) {
        state->forward_scratch = cddpi_plan_buffer(plan, index, scratch, CDDPI_IN_FORWARD);
    }
    if (state->bf16 == NULL && plan->training) {
        state->backward_scratch = cddpi_plan_buffer(plan, index, scratch, CDDPI_IN_BACKWARD);
    }
    if (plan->training) {
        state->kept = cddpi_plan_buffer(
            plan, index, cddpi_attention_kept(attention) * sizeof(float), CDDPI_IN_BOTH);
    }
    return CDDP_OK;
}

static void unplan(void *state)
{
    cddpi_attention_bf16_destroy(((struct attention_state *)state)->bf16);
}

static cddp_status forward(struct cddpi_exec *exec)
{
    struct attention_state *state = exec->state;
    float *kept = exec->plan->training ? cddpi_exec_buffer(exec, state->kept) : NULL;

    if (state->bf16 != NULL) {
        return cddpi_attention_bf16_forward(exec, state->bf16, cddpi_exec_input(exec, 0),
                                            cddpi_exec_output(exec), kept);
    }
    return cddpi_attention_forward(&state->attention, cddpi_exec_input(exec, 0),
                                   cddpi_exec_output(exec), kept,
                                   cddpi_exec_buffer(exec, state->forward_scratch));
}

static cddp_status backward(struct cddpi_exec *exec)
{
    struct attention_state *state = exec->state;
    float *grad_input = cddpi_exec_grad_input(exec, 0);

    if (grad_input == NULL) {
        return CDDP_OK;
    }
    if (state->bf16 != NULL) {
        return cddpi_attention_bf16_backward(
            exec, state->bf16, cddpi_exec_input(exec, 0), cddpi_exec_output(exec),
            cddpi_exec_grad_output(exec, 0), cddpi_exec_buffer(exec, state->kept), grad_input);
    }
    return cddpi_attention_backward(&state->attention, cddpi_exec_input(exec, 0),
                                    cddpi_exec_output(exec), cddpi_exec_grad_output(exec, 0),
                                    cddpi_exec_buffer(exec, state->kept), grad_input,
                                    cddpi_exec_buffer(exec, state->backward_scratch));
}

struct attention_cuda_state {
    struct cddpi_cuda_attention shape;
    int stats; /* buffer */
};

static cddp_status plan_cuda(struct cddpi_plan *plan, int index)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    struct attention_cuda_state *state = plan->ops[index].state;

    state->shape = (struct cddpi_cuda_attention){.type = plan->model->type,
                                                 .batch = plan->count,
                                                 .heads = op->layer.heads,
                                                 .length = op->in.height,
                                                 .head = op->out.channels / op->layer.heads,
                                                 .any_order = plan->model->cuda->any_order};
    cddpi_plan_output(plan, index, op->out.channels);
    plan->ops[index].flags = CDDPI_NEEDS_INPUT | CDDPI_NEEDS_OUTPUT;
    state->stats = cddpi_plan_buffer(
        plan, index, cddpi_plan_rows(plan, op) * (size_t)op->layer.heads * sizeof(float),
        CDDPI_IN_BOTH);
    return CDDP_OK;
}

static cddp_status forward_cuda(struct cddpi_exec *exec)
{
    const struct attention_cuda_state *state = exec->state;

    return cddpi_exec_kernels(exec)->attention(exec->model->device, &state->shape,
                                               cddpi_exec_input(exec, 0), cddpi_exec_output(exec),
                                               cddpi_exec_buffer(exec, state->stats));
}

static cddp_status backward_cuda(struct cddpi_exec *exec)
{
    const struct attention_cuda_state *state = exec->state;
    void *grad_input = cddpi_exec_grad_input(exec, 0);

    if (grad_input == NULL) {
        return CDDP_OK;
    }
    return cddpi_exec_kernels(exec)->attention_grad(
        exec->model->device, &state->shape, cddpi_exec_input(exec, 0), cddpi_exec_output(exec),
        cddpi_exec_buffer(exec, state->stats), cddpi_exec_grad_output(exec, 0), grad_input);
}

const struct cddpi_op_kernels cddpi_cuda_attention = {
    .state_bytes = sizeof(struct attention_cuda_state),
    .plan = plan_cuda,
    .forward = forward_cuda,
    .backward = backward_cuda};

static const struct cddpi_op_kernels cpu = {.threads = CDDPI_THREADS_PRODUCTS,
                                            .state_bytes = sizeof(struct attention_state),
                                            .plan = plan_attention,
                                            .unplan = unplan,
                                            .forward = forward,
                                            .backward = backward};

const struct cddpi_op_ops cddpi_op_attention = {
    .name = "attention",
    .shape = shape,
    .work = work,
    .on = {[CDDPI_DEVICE_CPU] = &cpu, [CDDPI_DEVICE_CUDA] = &cddpi_cuda_attention}};
