/* dropout_op.c - owns dropout. Which elements are kept depends only on (seed, layer, step, sample,
 * element), not on the batch, the rank or the thread.
 *
 * Each level of that list keys the next one. Philox of (seed, layer) at `step` gives the step's
 * key; with that key, Philox at the sample's id gives the sample's key; with that, word e % 4 at
 * counter e / 4 decides about element e. Elements are counted in plain C x H x W order (of a
 * sequence: T x C, as in memory). An element is dropped if word < p 2^32. */
#include "base/error.h"
#include "base/philox.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/transformer.h"
#include "nn/cuda/model_cuda.h"

struct dropout_state {
    int kept; /* buffer: one bit for each element; each sample starts at a new byte */
    size_t sample_bytes;
};

/* The part of planning that all devices share. */
static void plan_any(struct cddpi_plan *plan, int index)
{
    cddpi_plan_output(plan, index, cddpi_plan_input(plan, index, 0)->block);
    plan->ops[index].flags = plan->training
                                 ? CDDPI_FORWARD_INPLACE | CDDPI_MAKES_PREACT_GRAD | CDDPI_GRAD_VIEW
                                 : CDDPI_FORWARD_VIEW;
}

static cddp_status plan_dropout(struct cddpi_plan *plan, int index)
{
    struct dropout_state *state = plan->ops[index].state;

    plan_any(plan, index);
    if (plan->training) {
        state->sample_bytes = (cddpi_shape_elements(&cddpi_plan_op_of(plan, index)->in) + 7) / 8;
        state->kept = cddpi_plan_buffer(plan, index, state->sample_bytes * (size_t)plan->count,
                                        CDDPI_IN_BOTH);
    }
    return CDDP_OK;
}

static struct cddpi_philox descend(const struct cddpi_philox *stream, uint64_t counter)
{
    struct cddpi_philox next = *stream;
    uint32_t words[4];

    cddpi_philox4(stream, counter, words);
    next.key[0] = words[0];
    next.key[1] = words[1];
    return next;
}

/* The key for all samples of @p step in @p op. */
static struct cddpi_philox stream_of(const struct cddpi_model *model, const struct cddpi_op *op,
                                     uint64_t step)
{
    struct cddpi_philox layer = cddpi_philox_stream(model->seed, CDDPI_RANDOM_DROPOUT, op->number);

    return descend(&layer, step);
}

/* The stream of one sample: key (2 words), purpose, index. */
static void stream_of_sample(const struct cddpi_philox *step, uint64_t sample_id, uint32_t out[4])
{
    struct cddpi_philox sample = descend(step, sample_id);

    out[0] = sample.key[0];
    out[1] = sample.key[1];
    out[2] = sample.purpose;
    out[3] = sample.index;
}

/* An element is dropped if its random word is below this. */
static uint32_t threshold_of(const struct cddpi_op *op)
{
    return (uint32_t)(op->layer.probability * 0x1p32);
}

/* The factor for the elements that are kept. */
static float scale_of(const struct cddpi_op *op)
{
    return (float)(1 / (1 - op->layer.probability));
}

size_t cddpi_model_draw_words(const struct cddpi_model *model, int count)
{
    return (size_t)model->dropouts * (size_t)count * 4;
}

void cddpi_model_draws(const struct cddpi_model *model, uint64_t step, const uint64_t *sample_ids,
                       int count, uint32_t *out)
{
    for (int i = 0; model->dropouts > 0 && i < model->graph.op_count; i++) {
        const struct cddpi_op *op = &model->graph.ops[i];

        if (op->ops == &cddpi_op_dropout) {
            struct cddpi_philox stream = stream_of(model, op, step);

            for (int n = 0; n < count; n++, out += 4) {
                stream_of_sample(&stream, sample_ids[n], out);
            }
        }
    }
}

static void apply(const struct cddpi_exec *exec, const struct dropout_state *state, const float *in,
                  float *out)
{
    const struct cddpi_shape *in_shape = &exec->op->in;
    size_t block = (size_t)exec->plan->values[exec->op->output].block;
    size_t channels = (size_t)in_shape->channels;
    size_t spatial = (size_t)in_shape->height * (size_t)in_shape->width;
    size_t stride = cddpi_exec_output_elements(exec) / (size_t)exec->plan->count;
    const uint8_t *kept = cddpi_exec_buffer(exec, state->kept);
    float scale = scale_of(exec->op);

    for (size_t n = 0; n < (size_t)exec->plan->count; n++) {
        const uint8_t *bits = kept + n * state->sample_bytes;

        if (block == 1 || in_shape->sequence) { /* elements are in plain order already */
            cddpi_transformer_kernels()->dropout->apply(in + n * stride, bits, scale,
                                                        out + n * stride, stride);
        } else {
            cddpi_nn_dropout(in + n * stride, bits, scale, out + n * stride, channels, spatial,
                             block);
        }
    }
}

static cddp_status forward(struct cddpi_exec *exec)
{
    struct dropout_state *state = exec->state;
    struct cddpi_philox step = stream_of(exec->model, exec->op, exec->batch->step);
    uint32_t threshold = threshold_of(exec->op);
    uint8_t *kept = cddpi_exec_buffer(exec, state->kept);

    if (exec->batch->sample_ids == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "dropout needs the ids of the samples");
    }
    for (size_t n = 0; n < (size_t)exec->plan->count; n++) {
        uint32_t sample[4];

        stream_of_sample(&step, exec->batch->sample_ids[n], sample);
        cddpi_transformer_kernels()->dropout->draw(
            sample, threshold, kept + n * state->sample_bytes, cddpi_shape_elements(&exec->op->in));
    }
    apply(exec, state, cddpi_exec_input(exec, 0), cddpi_exec_output(exec));
    return CDDP_OK;
}

static cddp_status backward(struct cddpi_exec *exec)
{
    apply(exec, exec->state, cddpi_exec_grad_output(exec, 0), cddpi_exec_preact_grad(exec));
    return CDDP_OK;
}

/* On a device nothing is saved: backward draws the same numbers again. Elements are counted in
 * plain order, so images are converted to that and back. */
struct dropout_cuda_state {
    int number;   /* index among the model's dropout layers */
    int plain[2]; /* buffers: images in plain order, before and after dropout */
    int plain_grad[2];
    bool images;
};

static cddp_status plan_cuda(struct cddpi_plan *plan, int index)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    const struct cddpi_plan_value *input = cddpi_plan_input(plan, index, 0);
    struct dropout_cuda_state *state = plan->ops[index].state;
    size_t bytes = input->elements * cddp_type_bytes(plan->model->type);

    plan_any(plan, index);
    for (int i = 0; i < index; i++) {
        state->number += cddpi_plan_op_of(plan, i)->ops == &cddpi_op_dropout ? 1 : 0;
    }
    state->images = plan->training && !op->in.sequence && input->block > 1 &&
                    op->in.height * op->in.width > 1;
    for (int i = 0; state->images && i < 2; i++) {
        state->plain[i] = cddpi_plan_buffer(plan, index, bytes, CDDPI_IN_FORWARD);
        state->plain_grad[i] = cddpi_plan_buffer(plan, index, bytes, CDDPI_IN_BACKWARD);
    }
    return CDDP_OK;
}

static cddp_status draw_cuda(const struct cddpi_exec *exec, const struct dropout_cuda_state *state,
                             const void *in, void *out)
{
    size_t samples = (size_t)exec->plan->count;

    return cddpi_exec_kernels(exec)->dropout(
        exec->model->device, exec->model->type,
        exec->batch->draws + (size_t)state->number * samples * 4, threshold_of(exec->op),
        scale_of(exec->op), in, samples, cddpi_shape_elements(&exec->op->in), out);
}

static cddp_status apply_cuda(const struct cddpi_exec *exec, const struct dropout_cuda_state *state,
                              const int *plain, const void *in, void *out)
{
    const struct cddpi_cuda_kernels *kernels = cddpi_exec_kernels(exec);
    struct cddpi_device *device = exec->model->device;
    cddp_type type = exec->model->type;
    size_t samples = (size_t)exec->plan->count;
    size_t channels = (size_t)exec->op->in.channels;
    size_t area = (size_t)exec->op->in.height * (size_t)exec->op->in.width;

    if (exec->batch->draws == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "dropout needs the batch's draws");
    }
    if (!state->images) {
        return draw_cuda(exec, state, in, out);
    }
    CDDPI_TRY(kernels->transpose(device, type, in, samples, area, channels,
                                 cddpi_exec_buffer(exec, plain[0])));
    CDDPI_TRY(draw_cuda(exec, state, cddpi_exec_buffer(exec, plain[0]),
                        cddpi_exec_buffer(exec, plain[1])));
    return kernels->transpose(device, type, cddpi_exec_buffer(exec, plain[1]), samples, channels,
                              area, out);
}

static cddp_status forward_cuda(struct cddpi_exec *exec)
{
    const struct dropout_cuda_state *state = exec->state;

    return apply_cuda(exec, state, state->plain, cddpi_exec_input(exec, 0),
                      cddpi_exec_output(exec));
}

static cddp_status backward_cuda(struct cddpi_exec *exec)
{
    const struct dropout_cuda_state *state = exec->state;

    return apply_cuda(exec, state, state->plain_grad, cddpi_exec_grad_output(exec, 0),
                      cddpi_exec_preact_grad(exec));
}

const struct cddpi_op_kernels cddpi_cuda_dropout = {
    .state_bytes = sizeof(struct dropout_cuda_state),
    .plan = plan_cuda,
    .forward = forward_cuda,
    .backward = backward_cuda};

static const struct cddpi_op_kernels cpu = {.state_bytes = sizeof(struct dropout_state),
                                            .plan = plan_dropout,
                                            .forward = forward,
                                            .backward = backward};

const struct cddpi_op_ops cddpi_op_dropout = {
    .name = "dropout",
    .on = {[CDDPI_DEVICE_CPU] = &cpu, [CDDPI_DEVICE_CUDA] = &cddpi_cuda_dropout}};
