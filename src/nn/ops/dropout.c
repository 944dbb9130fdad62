/* dropout.c - owns dropout: which elements are kept depends on (seed, layer, step, sample, element)
 * alone, not on the batch, the rank or a thread.
 *
 * Each level of that list keys the next one: Philox of (seed, layer) at `step` gives the key of the
 * step, that one at the sample's id gives the key of the sample, and word e % 4 of that at e / 4
 * decides about element e, counted in plain C x H x W order (of a sequence: as it lies, T x C). It
 * is dropped if word < p 2^32. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/philox.h"
#include "kernels/cpu/nn_elementwise.h"
#include "kernels/cpu/nn_gpt.h"
#include "nn/model_state.h"

struct state {
    int kept; /* buffer: one bit an element, each sample's from a byte on */
    size_t sample_bytes;
};

static cddp_status shape(const struct cddpi_op *op, const struct cddpi_shape *in2,
                         struct cddpi_shape *out)
{
    (void)in2;
    *out = op->in;
    return CDDP_OK;
}

static cddp_status plan_dropout(struct cddpi_plan *plan, int index, void **out)
{
    const struct cddpi_op *op = cddpi_plan_op_of(plan, index);
    struct state *state;

    cddpi_plan_output(plan, index, cddpi_plan_input(plan, index, 0)->block);
    if (!plan->training) {
        plan->ops[index].flags = CDDPI_FORWARD_VIEW;
        return CDDP_OK;
    }
    plan->ops[index].flags = CDDPI_FORWARD_INPLACE | CDDPI_MASKS_GRAD | CDDPI_GRAD_VIEW;
    state = cddpi_zalloc(sizeof *state);
    if (state == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "dropout: no memory for %zu bytes", sizeof *state);
    }
    *out = state;
    state->sample_bytes = (cddpi_shape_elements(&op->in) + 7) / 8;
    return cddpi_plan_buffer(plan, index, state->sample_bytes * (size_t)plan->count, CDDPI_IN_BOTH,
                             &state->kept);
}

static void unplan(void *state)
{
    cddpi_free(state);
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

static void apply(const struct cddpi_run *run, const struct state *state, const float *in,
                  float *out)
{
    const struct cddpi_shape *in_shape = &run->op->in;
    size_t block = (size_t)run->plan->values[run->op->output].block;
    size_t channels = (size_t)in_shape->channels;
    size_t spatial = (size_t)in_shape->height * (size_t)in_shape->width;
    size_t stride = cddpi_run_output_elements(run) / (size_t)run->plan->count;
    const uint8_t *kept = cddpi_run_buffer(run, state->kept);
    float scale = (float)(1 / (1 - run->op->layer.probability));

    for (size_t n = 0; n < (size_t)run->plan->count; n++) {
        const uint8_t *bits = kept + n * state->sample_bytes;

        if (block == 1 || in_shape->sequence) { /* in the order in which it lies */
            cddpi_gpt_kernels()->dropout->apply(in + n * stride, bits, scale, out + n * stride,
                                                stride);
        } else {
            cddpi_nn_dropout(in + n * stride, bits, scale, out + n * stride, channels, spatial,
                             block);
        }
    }
}

static cddp_status forward(struct cddpi_run *run, void *opaque)
{
    struct state *state = opaque;
    struct cddpi_philox layer = cddpi_philox_stream(run->model->seed, CDDPI_RANDOM_DROPOUT,
                                                    run->op->number);
    struct cddpi_philox step = descend(&layer, run->batch->step);
    uint32_t threshold = (uint32_t)(run->op->layer.probability * 0x1p32);
    uint8_t *kept = cddpi_run_buffer(run, state->kept);

    if (run->batch->sample_ids == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "dropout needs the ids of the samples");
    }
    for (size_t n = 0; n < (size_t)run->plan->count; n++) {
        struct cddpi_philox sample = descend(&step, run->batch->sample_ids[n]);

        cddpi_gpt_kernels()->dropout->draw(
            (uint32_t[]){sample.key[0], sample.key[1], sample.purpose, sample.index}, threshold,
            kept + n * state->sample_bytes, cddpi_shape_elements(&run->op->in));
    }
    apply(run, state, cddpi_run_input(run, 0), cddpi_run_output(run));
    return CDDP_OK;
}

static cddp_status backward(struct cddpi_run *run, void *state)
{
    apply(run, state, cddpi_run_grad_output(run, 0), cddpi_run_masked(run));
    return CDDP_OK;
}

const struct cddpi_op_ops cddpi_op_dropout = {.name = "dropout",
                                              .shape = shape,
                                              .plan = plan_dropout,
                                              .unplan = unplan,
                                              .forward = forward,
                                              .backward = backward};
