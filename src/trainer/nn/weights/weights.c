/* weights.c - owns open files of GPT-2 weights: recognises the format, finds the number of heads,
 * and fills a model from the file. */
#include "nn/weights/weights.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/json.h"
#include "base/mapped_file.h"
#include "checkpoint/safetensors.h"
#include "nn/weights/weights_file.h"

#include <string.h>
#include <sys/stat.h>

enum { CONFIG_BYTES_MAX = 1 << 20 };

const char *const cddpi_weights_format_names[] = {CDDPI_WEIGHTS_FORMAT_MAP(CDDPI_CHOICE_WORD)};

/* A JSON object of reasonable size, or NULL: the file is optional. */
static json_t *read_json(const char *path)
{
    json_t *json = NULL;

    if (cddpi_weights_read_json(path, CONFIG_BYTES_MAX, &json) != CDDP_OK ||
        !json_is_object(json)) {
        json_decref(json);
        json = NULL;
    }
    return json;
}

static bool is_integer(const json_t *config, const char *key, int64_t value)
{
    int64_t number;

    return cddpi_json_whole(json_object_get(config, key), &number) && number == value;
}

/* Reject options of Hugging Face's GPT-2 that change its results and that cddp's gpt2 does not
 * support. */
static cddp_status check_config(const struct cddpi_weights *weights, const json_t *config,
                                const char *path)
{
    const json_t *activation = json_object_get(config, "activation_function");
    const json_t *epsilon = json_object_get(config, "layer_norm_epsilon");
    const char *name = json_string_value(activation);

    if (activation != NULL && (name == NULL || (strcmp(name, "gelu_new") != 0 &&
                                                strcmp(name, "gelu_pytorch_tanh") != 0))) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s: its activation_function is not gelu_new, which cddp's gpt2 has",
                          path);
    }
    if (epsilon != NULL &&
        !(json_number_value(epsilon) > 0.99e-5 && json_number_value(epsilon) < 1.01e-5)) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s: its layer_norm_epsilon is not 1e-05, which cddp's gpt2 has", path);
    }
    if (json_is_true(json_object_get(config, "scale_attn_by_inverse_layer_idx")) ||
        json_is_false(json_object_get(config, "scale_attn_weights"))) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s: it scales attention in another way than cddp's gpt2", path);
    }
    if (weights->table_of_head && json_is_false(json_object_get(config, "tie_word_embeddings"))) {
        return cddpi_fail(
            CDDP_ERR_FORMAT,
            "%s: its tie_word_embeddings is false, and its weights have lm_head.weight "
            "only: wte.weight is missing",
            path);
    }
    return CDDP_OK;
}

static cddp_status take_heads(struct cddpi_weights *weights, const json_t *config, const char *name)
{
    struct cddpi_gpt2_shape *shape = &weights->shape;

    CDDPI_TRY(check_config(weights, config, name));
    (void)cddpi_json_whole(json_object_get(config, "n_head"), &shape->heads);
    if (shape->heads < 1 || shape->embed % shape->heads != 0) {
        return cddpi_fail(CDDP_ERR_FORMAT, "%s: n_head is %lld, which does not divide n_embd, %lld",
                          name, (long long)shape->heads, (long long)shape->embed);
    }
    return CDDP_OK;
}

/* Read Hugging Face's config.json, if it belongs to this model. */
static cddp_status take_config(struct cddpi_weights *weights, const char *path)
{
    const struct cddpi_gpt2_shape *shape = &weights->shape;
    char *name = cddpi_weights_beside(path, "config.json");
    json_t *config;
    cddp_status status = CDDP_OK;

    CDDPI_TRY_MEMORY(name != NULL, "%s: no memory for a name", path);
    config = read_json(name);
    if (is_integer(config, "n_embd", shape->embed) &&
        is_integer(config, "n_layer", shape->blocks)) {
        for (int i = 0; i < CDDPI_GPT2_DROPOUTS; i++) {
            const json_t *value = json_object_get(config, cddpi_gpt2_dropouts[i]);
            /* a missing key has the default of Hugging Face's GPT2Config */
            double dropout = value == NULL ? 0.1 : json_number_value(value);

            weights->dropouts[i] = dropout >= 0 && dropout < 1 ? dropout : 0;
        }
        status = shape->heads == 0 ? take_heads(weights, config, name) : CDDP_OK;
    }
    json_decref(config);
    cddpi_free(name);
    return status;
}

/* Read the state of cddp's checkpoint, if the file is in one. */
static cddp_status take_state(struct cddpi_weights *weights, const char *path)
{
    struct cddpi_gpt2_shape *shape = &weights->shape;
    char *name = cddpi_weights_beside(path, "state.json");
    json_t *document;
    json_int_t heads;

    CDDPI_TRY_MEMORY(name != NULL, "%s: no memory for a name", path);
    document = read_json(name);
    heads = json_integer_value(json_object_get(json_object_get(document, "state"), "heads"));
    if (heads > 0 && shape->embed % heads == 0) {
        shape->heads = heads;
    }
    json_decref(document);
    cddpi_free(name);
    return CDDP_OK;
}

/* The weights are not a GPT-2: say why, if a key of config.json shows it. */
static cddp_status explain(struct cddpi_weights *weights, const char *path)
{
    const struct cddpi_gpt2_shape *shape = &weights->shape;
    char *name = cddpi_weights_beside(path, "config.json");
    struct cddpi_failure failure = *cddpi_last_failure();
    json_t *config = name != NULL ? read_json(name) : NULL;
    const char *type = json_string_value(json_object_get(config, "model_type"));
    char shown[32];
    int64_t inner;
    cddp_status status;

    if (type != NULL && strcmp(type, "gpt2") != 0) {
        status = cddpi_fail(CDDP_ERR_FORMAT, "%s: its model_type is %s, but only gpt2 can be read",
                            name, cddpi_printable(type, shown, sizeof shown));
    } else if (shape->embed > 0 && is_integer(config, "n_embd", shape->embed) &&
               cddpi_json_whole(json_object_get(config, "n_inner"), &inner) &&
               inner != 4 * shape->embed) {
        status = cddpi_fail(CDDP_ERR_FORMAT,
                            "%s: its n_inner is %lld, but cddp's gpt2 has 4 x n_embd, which is "
                            "%lld",
                            name, (long long)inner, (long long)(4 * shape->embed));
    } else {
        status = cddpi_fail_again(CDDP_ERR_FORMAT, &failure);
    }
    json_decref(config);
    cddpi_free(name);
    return status;
}

static cddp_status open_file(struct cddpi_weights *weights, const char *path)
{
    bool llmc = false;
    cddp_status status;

    CDDPI_TRY(cddpi_weights_is_index(path) ? CDDP_OK : cddpi_weights_sniff(path, &llmc));
    if (llmc) {
        return cddpi_weights_open_llmc(weights, path);
    }
    CDDPI_TRY(cddpi_weights_files_open(path, &weights->files));
    status = cddpi_weights_place_safetensors(weights, path);
    if (status == CDDP_ERR_FORMAT) {
        return explain(weights, path);
    }
    CDDPI_TRY(status);
    if (weights->shape.heads == 0) {
        CDDPI_TRY(take_state(weights, path));
    }
    return take_config(weights, path);
}

cddp_status cddpi_weights_open(const char *path, struct cddpi_weights **out)
{
    struct cddpi_weights *weights = cddpi_zalloc(sizeof *weights);
    struct stat info;
    char *inside = NULL;
    cddp_status status = CDDP_OK;

    CDDPI_TRY_MEMORY(weights != NULL, "weights: no memory for a file");
    if (stat(path, &info) == 0 && S_ISDIR(info.st_mode)) {
        status = cddpi_weights_find_in_folder(path, &inside);
        path = inside;
    }
    if (status == CDDP_OK) {
        status = cddpi_weights_checked(weights, open_file(weights, path));
    }
    cddpi_free(inside);
    if (status != CDDP_OK) {
        cddpi_weights_close(weights);
        return status;
    }
    *out = weights;
    return CDDP_OK;
}

void cddpi_weights_close(struct cddpi_weights *weights)
{
    if (weights == NULL) {
        return;
    }
    cddpi_weights_files_close(&weights->files);
    cddpi_mapped_file_close(weights->mapped);
    cddpi_free(weights->views);
    cddpi_free(weights);
}

enum cddpi_weights_format cddpi_weights_format(const struct cddpi_weights *weights)
{
    return weights->format;
}

const struct cddpi_gpt2_shape *cddpi_weights_shape(const struct cddpi_weights *weights)
{
    return &weights->shape;
}

cddp_type cddpi_weights_type(const struct cddpi_weights *weights)
{
    return weights->views[0].type;
}

/* Whether the model's tensor exists with the right size; wpe may have more positions than the
 * model. */
static cddp_status match(const struct cddpi_weights *weights, const char *path,
                         const cddp_param *wanted, size_t index)
{
    struct cddpi_gpt2_tensor tensor;
    bool fits;

    if (index == weights->count) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s: tensor \"%s\" is missing: it is a GPT-2 of %lld "
                          "blocks",
                          path, wanted->name, (long long)weights->shape.blocks);
    }
    cddpi_gpt2_tensor_at(&weights->shape, index, &tensor);
    fits = wanted->type == CDDP_F32 && wanted->dims == tensor.dims &&
           wanted->shape[tensor.dims - 1] == tensor.columns;
    if (fits && tensor.dims == 2) {
        fits = strcmp(tensor.name, "wpe.weight") == 0 ? wanted->shape[0] <= tensor.rows
                                                      : wanted->shape[0] == tensor.rows;
    }
    if (fits) {
        return CDDP_OK;
    }
    if (tensor.dims == 2 && wanted->dims == 2) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s: tensor \"%s\" is [%lld, %lld], but the model's is "
                          "[%lld, %lld]",
                          path, wanted->name, (long long)tensor.rows, (long long)tensor.columns,
                          (long long)wanted->shape[0], (long long)wanted->shape[1]);
    }
    return cddpi_fail(CDDP_ERR_FORMAT, "%s: tensor \"%s\" has %lld elements, but not the model's",
                      path, wanted->name, (long long)(tensor.rows * tensor.columns));
}

cddp_status cddpi_weights_match(const struct cddpi_weights *weights, const char *path,
                                int64_t heads, const cddp_param *tensors, size_t count)
{
    const struct cddpi_gpt2_shape *shape = &weights->shape;

    if (shape->heads > 0 && shape->heads != heads) {
        return cddpi_fail(CDDP_ERR_FORMAT, "%s: made with %lld heads, but the model has %lld", path,
                          (long long)shape->heads, (long long)heads);
    }
    for (size_t i = 0; i < count; i++) {
        CDDPI_TRY(match(weights, path, &tensors[i], cddpi_gpt2_index(shape, tensors[i].name)));
    }
    if (count != weights->count) {
        return cddpi_fail(CDDP_ERR_FORMAT, "%s: a GPT-2 of %lld blocks, more than the model has",
                          path, (long long)shape->blocks);
    }
    return CDDP_OK;
}

cddp_status cddpi_weights_fill(const struct cddpi_weights *weights, const cddp_param *tensor)
{
    int64_t rows = tensor->dims == 2 ? tensor->shape[0] : 1;

    cddpi_weights_rows(weights, cddpi_gpt2_index(&weights->shape, tensor->name), false, 0, rows,
                       tensor->data);
    return cddpi_weights_checked(weights, CDDP_OK);
}

cddp_status cddpi_weights_load(const char *path, int64_t heads, const cddp_param *tensors,
                               size_t count)
{
    struct cddpi_weights *weights;
    cddp_status status;

    CDDPI_TRY(cddpi_weights_open(path, &weights));
    status = cddpi_weights_match(weights, path, heads, tensors, count);
    for (size_t i = 0; i < count && status == CDDP_OK; i++) {
        status = cddpi_weights_fill(weights, &tensors[i]);
    }
    status = cddpi_weights_checked(weights, status);
    cddpi_weights_close(weights);
    return status;
}
