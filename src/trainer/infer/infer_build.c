/* infer_build.c - builds a model that computes: finds out what it takes, describes it, and loads
 * its weights. */
#include "infer/infer.h"

#include "base/alloc.h"
#include "base/env.h"
#include "base/shape.h"
#include "checkpoint/safetensors.h"
#include "data/files/data_file.h"
#include "nn/weights/weights.h"
#include "train/model_spec.h"

#include <string.h>

enum { USUAL_IMAGES = 64, USUAL_SEQUENCES = 4 };

/* A size that no layer has, in whose place the file has the number of classes. */
enum { UNKNOWN_CLASSES = 8191, MOST_CLASSES = 1 << 24 };

static cddp_status no_memory(void)
{
    return cddpi_fail(CDDP_ERR_NO_MEMORY, "model_open: no memory");
}

static cddp_status read_image_shape(const char *path, int out[3])
{
    struct cddpi_data_file file;
    int64_t shape[4];
    const uint8_t *images;

    CDDPI_TRY(cddpi_idx_open_images(path, &file, shape, &images));
    for (int i = 0; i < 3; i++) {
        out[i] = (int)shape[i + 1];
    }
    return cddpi_data_file_finish(&file, CDDP_OK);
}

/* The size of images of data in IDX files. */
static cddp_status find_image_shape(const struct cddp_model *model, int out[3])
{
    const struct cddpi_config *config = model->config;
    cddp_status status;

    if (model->options.image[0] != 0) {
        for (int i = 0; i < 3; i++) {
            out[i] = (int)model->options.image[i];
        }
        return CDDP_OK;
    }
    status = read_image_shape(config->data.test_images, out);
    if (status == CDDP_ERR_NOT_FOUND) {
        status = read_image_shape(config->data.train_images, out);
    }
    if (status == CDDP_OK) {
        return CDDP_OK;
    }
    status = cddpi_fail_suffix(status, ": the size of images is read there, if "
                                       "cddp_model_options.image does not say it");
    return cddpi_config_prefix(config, "data.test_images", status);
}

static cddp_status describe_images(struct cddp_model *model)
{
    const struct cddpi_config *config = model->config;
    int shape[3] = {3, config->data.size, config->data.size};

    if (config->data.type == CDDPI_DATA_IDX) {
        CDDPI_TRY(find_image_shape(model, shape));
    }
    if (config->data.type == CDDPI_DATA_SYNTHETIC) {
        CDDPI_TRY(cddpi_trainer_check_image(config));
        memcpy(shape, config->data.image.values, sizeof shape);
    }
    model->data.kind = CDDPI_DATASET_IMAGES;
    model->data.channels = shape[0];
    model->data.height = shape[1];
    model->data.width = shape[2];
    model->data.classes = config->data.classes;
    if (config->data.type == CDDPI_DATA_SYNTHETIC && config->data.classes == 0) {
        model->data.classes = 10;
    }
    return cddpi_trainer_check_channels(config, shape[0]);
}

static cddp_status describe_tokens(struct cddp_model *model)
{
    const struct cddpi_config *config = model->config;
    int tokens;

    if (config->data.type == CDDPI_DATA_TEXT || config->data.vocabulary[0] != '\0') {
        cddp_status status = cddpi_tokenizer_open(config->data.vocabulary, &model->tokenizer);

        if (status != CDDP_OK) {
            return cddpi_config_prefix(config, "data.vocabulary", status);
        }
    }
    tokens = model->tokenizer != NULL ? cddpi_tokenizer_vocabulary(model->tokenizer) : 0;
    model->data.kind = CDDPI_DATASET_TOKENS;
    model->data.context = config->model.context;
    return cddpi_trainer_fit_vocabulary(config, "data.vocabulary", tokens, &model->data.classes);
}

static cddp_status describe_data(struct cddp_model *model, const json_t *state)
{
    const struct cddpi_config *config = model->config;
    bool tokens = cddpi_config_takes_tokens(config);

    model->kind = config->model.type == CDDPI_MODEL_DCGAN ? CDDPI_INFER_LATENT
                  : tokens                                ? CDDPI_INFER_TOKENS
                  : config->data.type == CDDPI_DATA_NPY   ? CDDPI_INFER_NUMBERS
                  : config->data.type == CDDPI_DATA_CSV   ? CDDPI_INFER_NUMBERS
                                                          : CDDPI_INFER_IMAGES;
    if (model->kind == CDDPI_INFER_NUMBERS) {
        return cddpi_infer_describe_numbers(model, state);
    }
    return tokens ? describe_tokens(model) : describe_images(model);
}

/* Describe the model, without what only training needs. */
static cddp_status describe_model(struct cddp_model *model, struct cddpi_model_spec *out)
{
    struct cddpi_model_spec spec = cddpi_trainer_model_spec(model->config, &model->data);

    spec.sync_batch_norm = false;
    spec.recompute = false;
    spec.invariant = false;
    spec.no_values = true;
    if (spec.precision == CDDPI_PRECISION_FP16 && !cddpi_device_is_async(model->device)) {
        spec.precision = CDDPI_PRECISION_F32; /* the processor has no fp16 */
    }
    if (spec.layer_count > 0 && model->layers == NULL) {
        model->layers = cddpi_zalloc_array(spec.layer_count, sizeof *model->layers);
        if (model->layers == NULL) {
            return no_memory();
        }
        for (size_t i = 0; i < spec.layer_count; i++) {
            model->layers[i] = spec.layers[i];
            model->layers[i].sync = false;
        }
    }
    if (spec.layer_count > 0) {
        spec.layers = model->layers;
    }
    *out = spec;
    return CDDP_OK;
}

/* Find how many classes @p file says there are: build the model with another number, and look up
 * the tensor that has it. */
static cddp_status count_classes(const struct cddpi_model_spec *spec, const char *path,
                                 const cddp_safetensors *file, int *out)
{
    struct cddpi_model *guess = NULL;
    const cddp_param *params;
    size_t count = 0;

    CDDPI_TRY(cddpi_model_create(spec, 0, NULL, &guess));
    params = cddpi_model_params(guess, &count);
    for (size_t i = 0; i < count; i++) {
        const cddp_tensor *tensor = cddp_safetensors_find(file, params[i].name);

        for (int d = 0; d < params[i].dims && tensor != NULL; d++) {
            if (params[i].shape[d] == UNKNOWN_CLASSES && tensor->dims == params[i].dims &&
                tensor->shape[d] > 0 && tensor->shape[d] <= MOST_CLASSES) {
                *out = (int)tensor->shape[d];
            }
        }
    }
    cddpi_model_destroy(guess);
    return *out > 0 ? CDDP_OK
                    : cddpi_fail(CDDP_ERR_FORMAT,
                                 "%s: no tensor says how many classes the model has: it is of "
                                 "another model",
                                 path);
}

/* Layers end with as many outputs as there are classes. */
static int units_of_last(const struct cddpi_config_layers *layers)
{
    for (int i = layers->count - 1; i >= 0; i--) {
        if (layers->values[i].units > 0) {
            return layers->values[i].units;
        }
    }
    return 0;
}

static cddp_status find_classes(struct cddp_model *model, const char *path)
{
    struct cddpi_model_spec spec;
    cddp_safetensors *file = NULL;
    struct cddpi_weights *weights = NULL;
    cddp_status status;

    if (model->data.classes == 0 && model->config->model.type == CDDPI_MODEL_LAYERS) {
        model->data.classes = units_of_last(&model->config->model.layers);
    }
    if (model->data.classes > 0 || model->kind == CDDPI_INFER_LATENT) {
        return CDDP_OK;
    }
    if (model->config->model.type == CDDPI_MODEL_GPT2) {
        CDDPI_TRY(cddpi_weights_open(path, &weights));
        model->data.classes = (int)cddpi_weights_shape(weights)->vocab;
        cddpi_weights_close(weights);
        return CDDP_OK;
    }
    model->data.classes = UNKNOWN_CLASSES;
    status = describe_model(model, &spec);
    model->data.classes = 0;
    CDDPI_TRY(status);
    CDDPI_TRY(cddp_safetensors_open(path, &file));
    status = cddpi_config_name_file(model->config,
                                    count_classes(&spec, path, file, &model->data.classes));
    cddp_safetensors_close(file);
    return status;
}

static cddp_status open_device(struct cddp_model *model)
{
    const char *name = model->options.device;

    if (name == NULL) {
        return CDDP_OK;
    }
    return cddpi_device_open(name, -1, 1, 0, 1, true, &model->device);
}

static cddp_status build_model(struct cddp_model *model)
{
    struct cddpi_model_spec spec;

    CDDPI_TRY(describe_model(model, &spec));
    spec.device = model->device;
    CDDPI_TRY(cddpi_config_name_file(model->config, cddpi_model_spec_complete(&spec)));
    model->latent = spec.channels; /* of a dcgan's data, which are latent vectors */
    if (model->kind == CDDPI_INFER_TOKENS) {
        model->data.context = spec.context;
    }
    if (model->kind == CDDPI_INFER_LATENT) {
        struct cddpi_layer_range range = {0, 0};

        CDDPI_TRY(cddpi_model_find_layers(&spec, "discriminator", &range));
        spec.part = (struct cddpi_layer_range){0, range.first};
    }
    return cddpi_config_name_file(model->config, cddpi_model_create(&spec, 0, NULL, &model->model));
}

/* The model's parameters and buffers, in host memory. */
struct tensors {
    cddp_param *items;
    const cddp_param **of; /* what each one is in the model */
    size_t count;
    bool copied; /* the model's own memory is a device's */
};

static void tensors_fini(struct tensors *tensors)
{
    for (size_t i = 0; tensors->copied && i < tensors->count; i++) {
        cddpi_free(tensors->items[i].data);
    }
    cddpi_free(tensors->items);
    cddpi_free(tensors->of);
}

/* Release with tensors_fini(), also after a failure. */
static cddp_status list_tensors(const struct cddp_model *model, struct tensors *out)
{
    size_t params = 0, buffers = 0;
    const cddp_param *lists[] = {cddpi_model_params(model->model, &params),
                                 cddpi_model_buffers(model->model, &buffers)};

    out->copied = cddpi_device_is_async(model->device);
    out->items = cddpi_zalloc_array(params + buffers + 1, sizeof *out->items);
    out->of = cddpi_zalloc_array(params + buffers + 1, sizeof *out->of);
    if (out->items == NULL || out->of == NULL) {
        return no_memory();
    }
    for (size_t i = 0; i < params + buffers; i++) {
        const cddp_param *param = i < params ? &lists[0][i] : &lists[1][i - params];
        cddp_param *tensor = &out->items[out->count];

        *tensor = *param;
        if (out->copied) {
            tensor->data = cddpi_alloc_aligned(cddpi_elements(param->dims, param->shape) *
                                               cddp_type_bytes(param->type));
        }
        out->of[out->count++] = param;
        if (tensor->data == NULL) {
            return no_memory();
        }
    }
    return CDDP_OK;
}

static cddp_status send_tensors(struct cddp_model *model, const struct tensors *tensors)
{
    const struct cddpi_device_ops *ops = model->device->ops;

    if (!tensors->copied) {
        return CDDP_OK;
    }
    for (size_t i = 0; i < tensors->count; i++) {
        const cddp_param *from = &tensors->items[i];

        CDDPI_TRY(ops->copy(model->device, CDDPI_STREAM_COMPUTE, tensors->of[i]->data, from->data,
                            cddpi_elements(from->dims, from->shape) * cddp_type_bytes(from->type)));
    }
    cddpi_model_params_changed(model->model, false);
    return ops->finish(model->device, cddpi_env_timeout_ms());
}

static cddp_status load_weights(struct cddp_model *model, const char *path)
{
    struct tensors tensors = {NULL, NULL, 0, false};
    cddp_status status;

    CDDPI_TRY_GOTO(end, status, list_tensors(model, &tensors));
    if (model->kind == CDDPI_INFER_LATENT) {
        /* the file has the discriminator, too */
        status = cddpi_safetensors_load_some(path, tensors.items, tensors.count);
    } else if (model->config->model.type == CDDPI_MODEL_GPT2) {
        struct cddpi_model_spec spec = cddpi_trainer_model_spec(model->config, &model->data);

        CDDPI_TRY_GOTO(end, status, cddpi_model_spec_complete(&spec));
        status = cddpi_weights_load(path, spec.heads, tensors.items, tensors.count);
    } else {
        status = cddp_safetensors_load(path, tensors.items, tensors.count);
    }
    if (status == CDDP_OK) {
        status = send_tensors(model, &tensors);
    }
end:
    tensors_fini(&tensors);
    return status;
}

static cddp_status prepare_bytes(struct cddp_model *model)
{
    struct cddpi_data_loader_options options = {
        .dataset = &model->data, .transform = cddpi_trainer_transform(model->config)};

    options.transform.crop_padding = 0;
    if (model->data.width > 0 && model->kind == CDDPI_INFER_IMAGES) {
        CDDPI_TRY(cddpi_batch_maker_init(&options, &model->maker));
        model->maker.use = (struct cddpi_image_use){.size = model->config->data.size,
                                                    .resize = options.transform.resize};
    }
    return CDDP_OK;
}

/* Sizes of a sample, and memory for the largest piece of a batch. */
static cddp_status allocate(struct cddp_model *model)
{
    const struct cddpi_device_ops *ops = model->device->ops;
    const struct cddpi_dataset *data = &model->data;
    size_t image = cddpi_dataset_elements(data);
    size_t predictions = (size_t)cddpi_model_predictions(model->model);
    size_t bytes, labels;
    void *memory = NULL;

    if (model->options.max_batch == 0) {
        model->options.max_batch = model->kind == CDDPI_INFER_TOKENS ? USUAL_SEQUENCES
                                                                     : USUAL_IMAGES;
    }
    model->sample_elements = model->kind == CDDPI_INFER_TOKENS   ? (size_t)data->context
                             : model->kind == CDDPI_INFER_LATENT ? (size_t)model->latent
                                                                 : image;
    model->output_elements = model->kind == CDDPI_INFER_LATENT
                                 ? image
                                 : predictions * (size_t)data->classes;
    bytes = model->options.max_batch * model->sample_elements * sizeof(float);
    labels = model->options.max_batch * (size_t)cddpi_model_labels(model->model) *
             sizeof *model->labels;
    model->input = cddpi_alloc_aligned(bytes);
    model->ids = cddpi_zalloc_array(model->options.max_batch, sizeof *model->ids);
    if (model->input == NULL || model->ids == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "model_open: no memory for batches of %u samples",
                          model->options.max_batch);
    }
    CDDPI_TRY(ops->alloc(model->device, labels, "labels", &memory));
    model->labels = memory;
    CDDPI_TRY(ops->clear(model->device, CDDPI_STREAM_COMPUTE, memory, labels));
    if (cddpi_device_is_async(model->device)) {
        CDDPI_TRY(ops->alloc(model->device, bytes, "a batch", &model->device_input));
    }
    if (model->kind == CDDPI_INFER_LATENT) {
        CDDPI_TRY(ops->alloc(model->device, model->options.max_batch * image * sizeof(float),
                             "images", &memory));
        model->images = memory;
    }
    return CDDP_OK;
}

static cddp_status check_probabilities(const struct cddp_model *model)
{
    bool has_some = model->kind != CDDPI_INFER_LATENT &&
                    model->config->model.loss != CDDPI_LOSS_MSE &&
                    model->config->model.loss != CDDPI_LOSS_L1;

    return !model->options.probabilities || has_some
               ? CDDP_OK
               : cddpi_fail(CDDP_ERR_ARGUMENT,
                            "model_open: probabilities: the outputs of this model are none (%s)",
                            model->kind == CDDPI_INFER_LATENT            ? "model.type = \"dcgan\""
                            : model->config->model.loss == CDDPI_LOSS_L1 ? "model.loss = \"l1\""
                                                                         : "model.loss = \"mse\"");
}

static cddp_status check_normalised(const struct cddp_model *model)
{
    return !model->options.normalised || model->kind == CDDPI_INFER_IMAGES
               ? CDDP_OK
               : cddpi_fail(CDDP_ERR_ARGUMENT,
                            "model_open: normalised: the model takes no images, but %s",
                            model->kind == CDDPI_INFER_TOKENS    ? "tokens"
                            : model->kind == CDDPI_INFER_NUMBERS ? "numbers"
                                                                 : "latent vectors");
}

static cddp_status complete(struct cddp_model *model, const char *path, const json_t *state)
{
    CDDPI_TRY(describe_data(model, state));
    CDDPI_TRY(find_classes(model, path));
    CDDPI_TRY(check_probabilities(model));
    CDDPI_TRY(check_normalised(model));
    CDDPI_TRY(open_device(model));
    CDDPI_TRY(build_model(model));
    CDDPI_TRY(load_weights(model, path));
    CDDPI_TRY(prepare_bytes(model));
    return allocate(model);
}

static cddp_status read_state(const char *checkpoint, struct cddp_model *model, json_t **out)
{
    char *text = NULL;

    CDDPI_TRY(cddp_snapshot_read_state(checkpoint, &text, &model->step));
    *out = json_loads(text, 0, NULL);
    cddp_free(text);
    return *out != NULL ? CDDP_OK : no_memory();
}

cddp_status cddpi_infer_complete(struct cddp_model *model, const char *checkpoint,
                                 const char *weights)
{
    char *file = checkpoint != NULL ? cddpi_format("%s/model.safetensors", checkpoint)
                                    : cddpi_strdup(weights);
    size_t team = cddpi_infer_begin(model);
    json_t *state = NULL;
    cddp_status status;

    model->path = cddpi_strdup(checkpoint != NULL ? checkpoint : weights);
    status = file != NULL && model->path != NULL ? CDDP_OK : no_memory();
    if (status == CDDP_OK && checkpoint != NULL) {
        status = read_state(checkpoint, model, &state);
    }
    if (status == CDDP_OK) {
        status = complete(model, file, state);
    }
    json_decref(state);
    cddpi_infer_end(team);
    cddpi_free(file);
    return status;
}
