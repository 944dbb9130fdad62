/* infer_forward.c - describes what a model takes and gives, and computes batches. */
#include "infer/infer.h"

#include "base/env.h"
#include "base/shape.h"
#include "base/types.h"
#include "data/normalization.h"
#include "train/model_spec.h"

#include <math.h>
#include <string.h>

static cddp_status check(const cddp_model *model, const char *call)
{
    return cddpi_handle_check((const struct cddpi_handle *)model, CDDPI_HANDLE_MODEL, call);
}

size_t cddp_model_inputs(const cddp_model *model)
{
    return check(model, "model_inputs") == CDDP_OK ? 1 : 0;
}

size_t cddp_model_outputs(const cddp_model *model)
{
    return check(model, "model_outputs") == CDDP_OK ? 1 : 0;
}

static void set_shape(cddp_model_value *value, int dims, int64_t a, int64_t b, int64_t c)
{
    value->dims = dims;
    value->shape[0] = CDDP_MODEL_BATCH;
    value->shape[1] = a;
    value->shape[2] = b;
    value->shape[3] = c;
}

static void describe_input(const struct cddp_model *model, cddp_model_value *out)
{
    const struct cddpi_dataset *data = &model->data;

    out->type = CDDP_F32;
    switch (model->kind) {
    case CDDPI_INFER_IMAGES: {
        struct cddpi_transform transform = cddpi_trainer_transform(model->config);

        out->name = "images";
        out->meaning = model->options.normalised ? "planes of normalised floats: see mean and std"
                                                 : "planes of bytes, 0 to 255";
        out->type = model->options.normalised ? CDDP_F32 : CDDP_U8;
        for (int c = 0; c < data->channels; c++) {
            out->mean[c] = transform.mean[c];
            out->std[c] = transform.std[c] > 0 ? transform.std[c] : 1;
        }
        set_shape(out, 4, data->channels, data->height, data->width);
        return;
    }
    case CDDPI_INFER_TOKENS:
        out->name = "tokens";
        out->meaning = "numbers of tokens, from 0 on";
        out->type = CDDP_I32;
        set_shape(out, 2, data->context, 0, 0);
        return;
    case CDDPI_INFER_NUMBERS:
        out->name = "numbers";
        out->meaning = model->config->data.type == CDDPI_DATA_CSV
                           ? "numbers as the CSV files have them, and 1 or 0 for each category, in "
                             "the order of columns.features in the checkpoint's state.json; with "
                             "data.missing = \"mean\", NaN where a value is missing"
                           : "numbers as the data files have them";
        set_shape(out, 4, data->channels, data->height, data->width);
        return;
    case CDDPI_INFER_LATENT:
        out->name = "latent";
        out->meaning = "random numbers with mean 0 and standard deviation 1";
        set_shape(out, 2, model->latent, 0, 0);
        return;
    }
}

static void describe_output(const struct cddp_model *model, cddp_model_value *out)
{
    const struct cddpi_dataset *data = &model->data;
    bool of_tokens = model->kind == CDDPI_INFER_TOKENS;

    out->type = CDDP_F32;
    if (model->kind == CDDPI_INFER_LATENT) {
        out->name = "images";
        out->meaning = "planes of floats, from -1 (dark) to 1";
        set_shape(out, 4, data->channels, data->height, data->width);
        return;
    }
    if (data->target_count > 0) {
        out->name = "targets";
        out->meaning = "what the model takes the real targets for";
        set_shape(out, 2, data->classes, 0, 0);
        return;
    }
    out->name = model->options.probabilities ? "probabilities" : "logits";
    if (model->options.probabilities) {
        out->meaning = of_tokens ? "for each token, the probabilities of the next one"
                                 : "the probability of each class";
    } else {
        out->meaning = of_tokens ? "for each token, what softmax turns into probabilities of the "
                                   "next one"
                                 : "what the last layer says of each class";
    }
    if (of_tokens) {
        set_shape(out, 3, data->context, data->classes, 0);
    } else {
        set_shape(out, 2, data->classes, 0, 0);
    }
}

static cddp_status describe(const cddp_model *model, size_t index, bool is_input,
                            cddp_model_value *out)
{
    const char *call = is_input ? "model_get_input" : "model_get_output";
    cddp_model_value value = {.std = {1, 1, 1, 1}};

    CDDPI_TRY(check(model, call));
    if (index > 0) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "%s: %zu, but the model has one", call, index);
    }
    if (is_input) {
        describe_input(model, &value);
    } else {
        describe_output(model, &value);
    }
    return cddpi_struct_fill(call, "CDDP_MODEL_VALUE_INIT", &value, sizeof value, out);
}

cddp_status cddp_model_get_input(const cddp_model *model, size_t index, cddp_model_value *out)
{
    return describe(model, index, true, out);
}

cddp_status cddp_model_get_output(const cddp_model *model, size_t index, cddp_model_value *out)
{
    return describe(model, index, false, out);
}

cddp_status cddp_model_get_info(const cddp_model *model, cddp_model_info *out)
{
    cddp_model_info info = CDDP_MODEL_INFO_INIT;
    const cddp_param *params;
    size_t count = 0;

    CDDPI_TRY(check(model, "model_get_info"));
    info.path = model->path;
    info.type = cddpi_config_word(model->config, "model.type");
    info.device = model->device->ops->name;
    info.step = model->step;
    params = cddpi_model_params(model->model, &count);
    for (size_t i = 0; i < count; i++) {
        info.parameters += cddpi_elements(params[i].dims, params[i].shape);
    }
    info.classes = model->kind == CDDPI_INFER_LATENT ? 0 : (uint64_t)model->data.classes;
    info.max_batch = model->options.max_batch;
    info.writes_text = model->kind == CDDPI_INFER_TOKENS;
    return cddpi_struct_fill("model_get_info", "CDDP_MODEL_INFO_INIT", &info, sizeof info, out);
}

/* A tensor of the caller, input or output. */
struct given {
    const char *what, *name;
    cddp_type type;
    int dims;
    const int64_t *shape;
    const void *data;
};

enum { SHAPE_BYTES = 192 }; /* CDDP_MAX_DIMS of the longest numbers, with " x " between */

/* @p batch: the first number, or NULL to print it. */
static const char *shape_text(const char *batch, int dims, const int64_t *shape,
                              char text[static SHAPE_BYTES])
{
    int used = batch != NULL ? snprintf(text, SHAPE_BYTES, "%s", batch)
                             : snprintf(text, SHAPE_BYTES, "%lld", (long long)shape[0]);

    for (int d = 1; d < dims; d++) {
        used += snprintf(text + used, SHAPE_BYTES - (size_t)used, " x %lld", (long long)shape[d]);
    }
    return text;
}

static cddp_status fail_shape(const struct given *given, const cddp_model_value *wanted)
{
    char text[SHAPE_BYTES], wanted_text[SHAPE_BYTES];

    shape_text("batch", wanted->dims, wanted->shape, wanted_text);
    if (given->dims < 1 || given->dims > CDDP_MAX_DIMS) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "model_forward: the %s \"%s\" has %d dimensions, but must be %s",
                          given->what, wanted->name, given->dims, wanted_text);
    }
    return cddpi_fail(CDDP_ERR_ARGUMENT,
                      "model_forward: the %s \"%s\" has shape %s, but must be %s", given->what,
                      wanted->name, shape_text(NULL, given->dims, given->shape, text), wanted_text);
}

static cddp_status fail_batch(const struct given *given, const cddp_model_value *wanted)
{
    return cddpi_fail(CDDP_ERR_ARGUMENT,
                      "model_forward: the %s \"%s\" is a batch of %lld samples, but 0 to %d are "
                      "possible",
                      given->what, wanted->name, (long long)given->shape[0], INT32_MAX);
}

/* Check what the caller gives against @p wanted, where dimension 1 may be smaller if it is of
 * tokens. */
static cddp_status check_given(const struct given *given, const cddp_model_value *wanted,
                               bool of_tokens)
{
    if (given->name != NULL && strcmp(given->name, wanted->name) != 0) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "model_forward: the %s is \"%s\", not \"%.40s\"",
                          given->what, wanted->name, given->name);
    }
    if (given->type != wanted->type) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "model_forward: the %s \"%s\" has type %s, but must be %s", given->what,
                          wanted->name, cddp_type_name(given->type), cddp_type_name(wanted->type));
    }
    if (given->dims != wanted->dims) {
        return fail_shape(given, wanted);
    }
    if (given->shape[0] < 0 || given->shape[0] > INT32_MAX) {
        return fail_batch(given, wanted);
    }
    for (int d = 1; d < wanted->dims; d++) {
        bool fits = of_tokens && d == 1
                        ? given->shape[d] >= 1 && given->shape[d] <= wanted->shape[d]
                        : given->shape[d] == wanted->shape[d];

        if (!fits) {
            return fail_shape(given, wanted);
        }
    }
    return given->data != NULL || given->shape[0] == 0
               ? CDDP_OK
               : cddpi_fail(CDDP_ERR_ARGUMENT, "model_forward: the data of the %s \"%s\" are NULL",
                            given->what, wanted->name);
}

static cddp_status check_both(const struct cddp_model *model, const cddp_tensor *input,
                              const cddp_param *output)
{
    const struct given in = {"input",     input->name,  input->type,
                             input->dims, input->shape, input->data};
    const struct given out = {"output",     output->name,  output->type,
                              output->dims, output->shape, output->data};
    bool of_tokens = model->kind == CDDPI_INFER_TOKENS;
    cddp_model_value value = {.name = NULL};

    if (cddpi_flags_check(input->flags | output->flags,
                          CDDPI_RESERVED_OF(input) | CDDPI_RESERVED_OF(output)) != CDDP_OK) {
        return cddpi_fail_prefix(CDDP_ERR_UNAVAILABLE, "model_forward");
    }
    describe_input(model, &value);
    CDDPI_TRY(check_given(&in, &value, of_tokens));
    value = (cddp_model_value){.name = NULL};
    describe_output(model, &value);
    CDDPI_TRY(check_given(&out, &value, of_tokens));
    if (output->grad != NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "model_forward: grad of the output \"%s\" must be NULL: nothing is "
                          "written there",
                          value.name);
    }
    if (in.shape[0] != out.shape[0] || (of_tokens && in.shape[1] != out.shape[1])) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "model_forward: the input has %lld samples of %lld, the output %lld of "
                          "%lld",
                          (long long)in.shape[0], (long long)in.shape[1], (long long)out.shape[0],
                          (long long)out.shape[1]);
    }
    return CDDP_OK;
}

static cddp_status fail_token(const struct cddp_model *model, size_t sample, size_t position,
                              int32_t token)
{
    return cddpi_fail(
        CDDP_ERR_ARGUMENT,
        "model_forward: token %zu of sample %zu is %d, but the vocabulary has %d tokens", position,
        sample, (int)token, model->data.classes);
}

static void fill_missing(const struct cddp_model *model, size_t count)
{
    float *to = model->input;

    for (size_t i = 0; i < count * model->sample_elements; i++) {
        to[i] = isnan(to[i]) ? model->missing[i % model->sample_elements] : to[i];
    }
}

/* Put @p count samples from @p first on into the model's own memory. @p length: of a sequence. */
static cddp_status take_input(struct cddp_model *model, const void *data, size_t first,
                              size_t count, size_t length)
{
    size_t elements = model->sample_elements;

    if (model->kind == CDDPI_INFER_TOKENS) {
        const int32_t *from = (const int32_t *)data + first * length;
        int32_t *to = model->input;

        memset(to, 0, count * elements * sizeof *to);
        for (size_t i = 0; i < count; i++) {
            for (size_t t = 0; t < length; t++) {
                int32_t token = from[i * length + t];

                if (token < 0 || token >= model->data.classes) {
                    return fail_token(model, first + i, t, token);
                }
                to[i * elements + t] = token;
            }
        }
    } else if (model->kind == CDDPI_INFER_LATENT || model->kind == CDDPI_INFER_NUMBERS ||
               model->options.normalised) {
        memcpy(model->input, (const float *)data + first * elements,
               count * elements * sizeof(float));
        if (model->missing != NULL) {
            fill_missing(model, count);
        }
        for (size_t i = 0; model->normalization != NULL && i < count; i++) {
            cddpi_normalization_apply(model->normalization, elements,
                                      (float *)model->input + i * elements);
        }
    } else {
        size_t plane = elements / (size_t)model->data.channels;
        const uint8_t *from = (const uint8_t *)data + first * elements;

        for (size_t p = 0; p < count * (size_t)model->data.channels; p++) {
            cddpi_image_lookup(model->maker.tables[p % (size_t)model->data.channels],
                               from + p * plane, plane, (float *)model->input + p * plane);
        }
    }
    return CDDP_OK;
}

static cddp_status run(struct cddp_model *model, size_t count)
{
    const struct cddpi_device_ops *ops = model->device->ops;
    bool of_tokens = model->kind == CDDPI_INFER_TOKENS;
    const void *input = model->input;
    struct cddpi_batch batch = {
        .label = model->labels, .count = (int)count, .sample_ids = model->ids};
    struct cddpi_loss_result result = {0};

    if (model->device_input != NULL) {
        CDDPI_TRY(ops->copy(model->device, CDDPI_STREAM_COMPUTE, model->device_input, model->input,
                            count * model->sample_elements * sizeof(float)));
        input = model->device_input;
    }
    batch.tokens = of_tokens ? input : NULL;
    batch.input = of_tokens ? NULL : input;
    if (model->images != NULL) {
        cddpi_model_bind_edge(model->model, CDDPI_EDGE_OUT, 0, model->images, NULL);
    }
    return cddpi_model_forward(model->model, &batch, false, &result);
}

static void softmax(float *values, size_t count)
{
    float largest = values[0];
    double sum = 0;

    for (size_t i = 1; i < count; i++) {
        largest = values[i] > largest ? values[i] : largest;
    }
    for (size_t i = 0; i < count; i++) {
        values[i] = expf(values[i] - largest);
        sum += values[i];
    }
    for (size_t i = 0; i < count; i++) {
        values[i] = (float)(values[i] / sum);
    }
}

static void make_probabilities(const struct cddp_model *model, float *values, size_t rows)
{
    size_t classes = (size_t)model->data.classes;

    if (model->config->model.loss == CDDPI_LOSS_BINARY_CROSS_ENTROPY) {
        for (size_t i = 0; i < rows * classes; i++) {
            values[i] = 1 / (1 + expf(-values[i]));
        }
        return;
    }
    for (size_t i = 0; i < rows; i++) {
        softmax(values + i * classes, classes);
    }
}

/* Write the outputs of @p count samples. @p length: of a sequence. */
static cddp_status give_output(struct cddp_model *model, size_t count, size_t length, float *out)
{
    const struct cddpi_device_ops *ops = model->device->ops;
    size_t predictions = (size_t)cddpi_model_predictions(model->model);
    size_t rows = model->kind == CDDPI_INFER_TOKENS ? length : 1;
    size_t classes = (size_t)model->data.classes;

    if (model->images != NULL) {
        CDDPI_TRY(ops->copy(model->device, CDDPI_STREAM_COMPUTE, out, model->images,
                            count * model->output_elements * sizeof *out));
        return ops->finish(model->device, cddpi_env_timeout_ms());
    }
    if (rows == predictions) {
        CDDPI_TRY(cddpi_model_read_outputs(model->model, 0, count * rows, out));
    } else {
        for (size_t i = 0; i < count; i++) {
            CDDPI_TRY(cddpi_model_read_outputs(model->model, i * predictions, rows,
                                               out + i * rows * classes));
        }
    }
    if (model->options.probabilities) {
        make_probabilities(model, out, count * rows);
    }
    return CDDP_OK;
}

static cddp_status compute(struct cddp_model *model, const cddp_tensor *input,
                           const cddp_param *output)
{
    size_t samples = (size_t)input->shape[0];
    size_t length = model->kind == CDDPI_INFER_TOKENS ? (size_t)input->shape[1] : 0;
    size_t of_sample = model->kind == CDDPI_INFER_TOKENS ? length * (size_t)model->data.classes
                                                         : model->output_elements;

    for (size_t first = 0; first < samples; first += model->options.max_batch) {
        size_t left = samples - first;
        size_t count = left < model->options.max_batch ? left : model->options.max_batch;

        CDDPI_TRY(take_input(model, input->data, first, count, length));
        CDDPI_TRY(run(model, count));
        CDDPI_TRY(give_output(model, count, length, (float *)output->data + first * of_sample));
    }
    return CDDP_OK;
}

cddp_status cddp_model_forward(cddp_model *model, const cddp_tensor *inputs, size_t input_count,
                               const cddp_param *outputs, size_t output_count)
{
    size_t team;
    cddp_status status;

    CDDPI_ENTER(&model->handle, cddpi_infer_enter(model, "model_forward"));
    if (inputs == NULL || outputs == NULL || input_count != 1 || output_count != 1) {
        return cddpi_fail(
            CDDP_ERR_ARGUMENT,
            "model_forward: %zu inputs and %zu outputs, but the model has one of each",
            inputs != NULL ? input_count : 0, outputs != NULL ? output_count : 0);
    }
    CDDPI_TRY(check_both(model, inputs, outputs));
    team = cddpi_infer_begin(model);
    status = compute(model, inputs, outputs);
    cddpi_infer_end(team);
    return status;
}
