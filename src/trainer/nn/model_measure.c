/* model_measure.c - measures the time and the memory of each layer of a model alone, for code that
 * divides layers among ranks. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/philox.h"
#include "nn/model_state.h"

#include <string.h>

enum { ROUNDS = 4 }; /* the first one plans and warms up, and is not counted */

/* A batch of noise, in CPU memory or copied to the device. */
struct noise {
    struct cddpi_device *device;
    float *input;
    int32_t *tokens, *label;
    uint64_t *ids;
    uint32_t *draws;
    void *grads; /* one block for all gradients */
    void **bound;
};

static cddp_status copy_to(struct cddpi_device *device, const void *from, size_t bytes, void **out)
{
    CDDPI_TRY(device->ops->alloc(device, bytes, "a batch to measure with", out));
    return device->ops->copy(device, CDDPI_STREAM_COMPUTE, *out, from, bytes);
}

static cddp_status make_values(const struct cddpi_model *model, int samples, struct noise *out)
{
    const struct cddpi_shape *shape = &model->graph.values[CDDPI_VALUE_INPUT].shape;
    struct cddpi_philox stream = cddpi_philox_stream(1, CDDPI_RANDOM_SYNTHETIC, 0);
    size_t elements = (size_t)samples * cddpi_shape_elements(shape);
    size_t labels = (size_t)samples * (size_t)cddpi_model_labels(model);
    float *input = cddpi_zalloc_array(elements + 4, sizeof *input);
    int32_t *label = cddpi_zalloc_array(labels, sizeof *label);
    cddp_status status;

    if (input == NULL || label == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "model: no memory to measure %d samples", samples);
        goto done;
    }
    for (size_t i = 0; i < elements; i++) {
        uint32_t words[4];

        cddpi_philox4(&stream, i, words);
        input[i] = 2 * cddpi_uniform01(words[0]) - 1;
    }
    for (size_t i = 0; !model->real_targets && i < labels; i++) {
        label[i] = (int32_t)(i * 7 % (size_t)model->classes);
    }
    CDDPI_TRY_GOTO(done, status,
                   copy_to(out->device, label, labels * sizeof *label, (void **)&out->label));
    CDDPI_TRY_GOTO(
        done, status,
        model->tokens_in
            ? copy_to(out->device, label, labels * sizeof *label, (void **)&out->tokens)
            : copy_to(out->device, input, elements * sizeof *input, (void **)&out->input));
    status = out->device->ops->finish(out->device, model->timeout_ms);
done:
    cddpi_free(input);
    cddpi_free(label);
    return status;
}

static cddp_status make_draws(const struct cddpi_model *model, int samples, struct noise *out)
{
    size_t words = cddpi_model_draw_words(model, samples);
    uint32_t *draws = cddpi_zalloc_array(words + 1, sizeof *draws);
    cddp_status status;

    out->ids = cddpi_zalloc_array((size_t)samples, sizeof *out->ids);
    if (draws == NULL || out->ids == NULL) {
        cddpi_free(draws);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "model: no memory to measure %d samples", samples);
    }
    cddpi_model_draws(model, 1, out->ids, samples, draws);
    status = words == 0 ? CDDP_OK
                        : copy_to(out->device, draws, words * sizeof *draws, (void **)&out->draws);
    if (status == CDDP_OK) {
        status = out->device->ops->finish(out->device, model->timeout_ms);
    }
    cddpi_free(draws);
    return status;
}

static cddp_status make_grads(struct cddpi_model *model, struct noise *out)
{
    size_t bytes = 0;

    for (size_t i = 0; i < model->params.count; i++) {
        bytes += (cddpi_tensor_elements(&model->params.items[i]) + 64) * sizeof(float);
    }
    out->bound = cddpi_zalloc_array(model->params.count, sizeof *out->bound);
    CDDPI_TRY_MEMORY(out->bound != NULL, "model: no memory to measure it");
    CDDPI_TRY(
        out->device->ops->alloc(out->device, bytes, "gradients to measure with", &out->grads));
    bytes = 0;
    for (size_t i = 0; i < model->params.count; i++) {
        size_t elements = cddpi_tensor_elements(&model->params.items[i]);

        out->bound[i] = (char *)out->grads + bytes;
        bytes += (elements + 63) / 64 * 64 * sizeof(float);
    }
    cddpi_model_bind_grads(model, out->bound);
    return CDDP_OK;
}

static void fini_noise(struct noise *noise)
{
    const struct cddpi_device_ops *ops = noise->device->ops;

    ops->release(noise->device, noise->input);
    ops->release(noise->device, noise->tokens);
    ops->release(noise->device, noise->label);
    ops->release(noise->device, noise->draws);
    ops->release(noise->device, noise->grads);
    cddpi_free(noise->ids);
    cddpi_free(noise->bound);
}

/* For each op, the minimum over some rounds. */
static cddp_status measure_ops(struct cddpi_model *model, int samples, double *least)
{
    struct noise noise = {.device = model->device};
    struct cddpi_batch batch = {.count = samples, .step = 1};
    size_t ops = (size_t)model->graph.op_count;
    cddp_status status;

    CDDPI_TRY_GOTO(done, status, make_values(model, samples, &noise));
    CDDPI_TRY_GOTO(done, status, make_draws(model, samples, &noise));
    CDDPI_TRY_GOTO(done, status, make_grads(model, &noise));
    batch.input = noise.input;
    batch.tokens = noise.tokens;
    batch.label = noise.label;
    batch.sample_ids = noise.ids;
    batch.draws = noise.draws;
    for (int round = 0; round < ROUNDS; round++) {
        memset(model->op_seconds, 0, ops * sizeof *model->op_seconds);
        CDDPI_TRY_GOTO(done, status, cddpi_model_forward(model, &batch, true, NULL));
        CDDPI_TRY_GOTO(done, status, cddpi_model_backward(model, 1.0 / samples, false, NULL, NULL));
        for (size_t i = 0; round > 0 && i < ops; i++) {
            double seconds = model->op_seconds[i];

            least[i] = round == 1 || seconds < least[i] ? seconds : least[i];
        }
    }
done:
    fini_noise(&noise);
    return status;
}

/* Add up times by layer of the description; the loss counts for the last layer. */
static void add_to_layers(const struct cddpi_model *model, const double *seconds, double *out)
{
    for (int i = 0; i < model->graph.op_count; i++) {
        bool is_loss = model->graph.ops[i].ops == &cddpi_op_loss;
        size_t layer = is_loss ? model->graph.ops[i - 1].number : model->graph.ops[i].number;

        /* even an op that is only a view takes some time */
        out[layer] += seconds[i] > 1e-9 ? seconds[i] : 1e-9;
    }
}

cddp_status cddpi_model_measure_layers(const struct cddpi_model_spec *spec, int samples,
                                       double **out, int *out_count)
{
    struct cddpi_model_spec whole = *spec;
    struct cddpi_model *model = NULL;
    double *seconds = NULL;
    double *layers = NULL;
    cddp_status status;

    whole.part = (struct cddpi_layer_range){0, 0};
    CDDPI_TRY(cddpi_model_create(&whole, 1, NULL, &model));
    seconds = cddpi_zalloc_array((size_t)model->graph.op_count, sizeof *seconds);
    layers = cddpi_zalloc_array(model->list.count, sizeof *layers);
    model->op_seconds = cddpi_zalloc_array((size_t)model->graph.op_count, sizeof *seconds);
    status = seconds != NULL && layers != NULL && model->op_seconds != NULL
                 ? measure_ops(model, samples, seconds)
                 : cddpi_fail(CDDP_ERR_NO_MEMORY, "model: no memory to measure it");
    if (status == CDDP_OK) {
        add_to_layers(model, seconds, layers);
        *out_count = (int)model->list.count;
        *out = layers;
    } else {
        cddpi_free(layers);
    }
    cddpi_free(seconds);
    cddpi_free(model->op_seconds);
    model->op_seconds = NULL;
    cddpi_model_destroy(model);
    return status;
}

/* A parameter that several layers share counts for the first one. */
static void add_params(const struct cddpi_model *model, const struct cddpi_op *op, bool *counted,
                       struct cddpi_layer_bytes *out)
{
    for (int k = 0; k < CDDPI_OP_PARAMS; k++) {
        int param = op->params[k];

        if (param >= 0 && !counted[param]) {
            counted[param] = true;
            out->parameters += cddpi_tensor_elements(&model->params.items[param]) * sizeof(float);
        }
    }
}

cddp_status cddpi_model_layer_bytes(const struct cddpi_model_spec *spec, int samples,
                                    struct cddpi_layer_bytes **out, int *out_count)
{
    struct cddpi_model_spec whole = *spec;
    struct cddpi_layer_bytes *bytes = NULL;
    struct cddpi_model *model = NULL;
    bool *counted = NULL;

    whole.part = (struct cddpi_layer_range){0, 0};
    CDDPI_TRY(cddpi_model_create(&whole, 1, NULL, &model));
    bytes = cddpi_zalloc_array(model->list.count, sizeof *bytes);
    counted = cddpi_zalloc_array(model->params.count + 1, sizeof *counted);
    if (bytes == NULL || counted == NULL) {
        cddpi_free(bytes);
        cddpi_free(counted);
        cddpi_model_destroy(model);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "model: no memory to count that of its layers");
    }
    for (int i = 0; i < model->graph.op_count; i++) {
        const struct cddpi_op *op = &model->graph.ops[i];

        if (op->output >= 0) { /* the loss has no output */
            add_params(model, op, counted, &bytes[op->number]);
            bytes[op->number].activations += (size_t)samples * cddpi_shape_elements(&op->out) *
                                             sizeof(float);
            bytes[op->number].is_own = true;
        }
    }
    *out = bytes;
    *out_count = (int)model->list.count;
    cddpi_free(counted);
    cddpi_model_destroy(model);
    return CDDP_OK;
}
