/* weights_write.c - writes GPT-2 weights: the safetensors formats, and the config.json that Hugging
 * Face's loaders expect beside them. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/replace.h"
#include "checkpoint/safetensors.h"
#include "nn/weights/weights_file.h"

#include <jansson.h>
#include <stdio.h>

enum { FULL_NAME_BYTES = CDDPI_GPT2_NAME_BYTES + 16 };

/* The file that is written. */
struct weights_write_plan {
    const struct cddpi_weights *weights;
    enum cddpi_weights_format format;
    cddp_type type;
};

/* Whether Hugging Face's layout is the transpose of ours. */
static bool turned(const struct weights_write_plan *plan, const struct cddpi_gpt2_tensor *tensor)
{
    return plan->format == CDDPI_WEIGHTS_HF && tensor->linear;
}

static cddp_status put_tensor(void *context, size_t index, struct cddpi_writer *writer)
{
    const struct weights_write_plan *plan = context;
    struct cddpi_gpt2_tensor tensor;

    cddpi_gpt2_tensor_at(&plan->weights->shape, index, &tensor);
    return cddpi_weights_put(plan->weights, index, turned(plan, &tensor), plan->type, writer);
}

/* List the file's tensors without their data, which is written later. */
static void list_tensors(const struct weights_write_plan *plan, cddp_tensor *tensors,
                         char (*names)[FULL_NAME_BYTES])
{
    for (size_t i = 0; i < plan->weights->count; i++) {
        struct cddpi_gpt2_tensor tensor;
        bool turn;

        cddpi_gpt2_tensor_at(&plan->weights->shape, i, &tensor);
        turn = turned(plan, &tensor);
        snprintf(names[i], sizeof names[i], "%s%s",
                 plan->format == CDDPI_WEIGHTS_HF ? "transformer." : "", tensor.name);
        tensors[i].name = names[i];
        tensors[i].type = plan->type;
        tensors[i].dims = tensor.dims;
        tensors[i].shape[0] = turn || tensor.dims == 1 ? tensor.columns : tensor.rows;
        if (tensor.dims == 2) {
            tensors[i].shape[1] = turn ? tensor.rows : tensor.columns;
        }
    }
}

static cddp_status write_safetensors(struct weights_write_plan *plan, const char *path,
                                     int64_t heads)
{
    size_t count = plan->weights->count;
    cddp_tensor *tensors = cddpi_zalloc_array(count, sizeof *tensors);
    char(*names)[FULL_NAME_BYTES] = cddpi_zalloc_array(count, sizeof *names);
    char text[24];
    const char *const metadata[] = {"format", "pt", "heads", text, NULL};
    cddp_status status;

    snprintf(text, sizeof text, "%lld", (long long)heads);
    if (tensors == NULL || names == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory for %zu tensors", path, count);
    } else {
        list_tensors(plan, tensors, names);
        status = cddpi_safetensors_stream(path, tensors, count, metadata, put_tensor, plan);
    }
    cddpi_free(tensors);
    cddpi_free(names);
    return status;
}

static cddp_status check_type(const char *path, enum cddpi_weights_format format, cddp_type type)
{
    static const bool possible[3][3] = {
        [CDDPI_WEIGHTS_CDDP] = {true, false, false}, /* f32, f16, bf16 */
        [CDDPI_WEIGHTS_HF] = {true, true, true},
        [CDDPI_WEIGHTS_LLMC] = {true, false, true},
    };
    int column = type == CDDP_F32 ? 0 : type == CDDP_F16 ? 1 : type == CDDP_BF16 ? 2 : -1;

    if (column < 0 || !possible[format][column]) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "%s: format %s does not hold %s", path,
                          cddpi_weights_format_names[format], cddp_type_name(type));
    }
    return CDDP_OK;
}

static cddp_status check_heads(const struct cddpi_weights *weights, const char *path, int64_t heads)
{
    int64_t embed = weights->shape.embed;

    if (heads < 1 || embed % heads != 0) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "%s: %lld heads do not divide the embed size of %lld",
                          path, (long long)heads, (long long)embed);
    }
    return CDDP_OK;
}

cddp_status cddpi_weights_write(const struct cddpi_weights *weights, const char *path,
                                enum cddpi_weights_format format, cddp_type type, int64_t heads)
{
    struct weights_write_plan plan = {weights, format, type};

    CDDPI_TRY(check_type(path, format, type));
    CDDPI_TRY(check_heads(weights, path, heads));
    return format == CDDPI_WEIGHTS_LLMC ? cddpi_weights_write_llmc(weights, path, type, heads)
                                        : write_safetensors(&plan, path, heads);
}

cddp_status cddpi_weights_write_config(const struct cddpi_weights *weights, const char *path,
                                       cddp_type type, int64_t heads, int32_t end_token)
{
    /* the last token of this vocabulary is the end of text; of others the caller may know it */
    enum { GPT2_VOCAB = 50257 };
    const struct cddpi_gpt2_shape *shape = &weights->shape;
    int32_t known = shape->vocab == GPT2_VOCAB && end_token < 0 ? GPT2_VOCAB - 1 : end_token;
    const char *kind = type == CDDP_F32 ? "float32" : type == CDDP_F16 ? "float16" : "bfloat16";
    json_t *end = known >= 0 ? json_integer(known) : json_null();
    json_t *config = json_pack(
        "{s:[s], s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:f, s:b, s:s, s:O, s:O}", "architectures",
        "GPT2LMHeadModel", "model_type", "gpt2", "activation_function", "gelu_new", "vocab_size",
        (json_int_t)shape->vocab, "n_positions", (json_int_t)shape->context, "n_embd",
        (json_int_t)shape->embed, "n_layer", (json_int_t)shape->blocks, "n_head", (json_int_t)heads,
        "layer_norm_epsilon", 1e-5, "tie_word_embeddings", 1, "torch_dtype", kind, "bos_token_id",
        end, "eos_token_id", end);
    char *text = NULL;
    cddp_status status;

    /* write them explicitly: they default to 0.1, with which a model without dropout would be
     * trained further */
    for (int i = 0; i < CDDPI_GPT2_DROPOUTS && config != NULL; i++) {
        if (json_object_set_new(config, cddpi_gpt2_dropouts[i], json_real(weights->dropouts[i])) !=
            0) {
            json_decref(config);
            config = NULL;
        }
    }
    if (config != NULL) {
        text = json_dumps(config, JSON_INDENT(2) | JSON_REAL_PRECISION(6));
    }
    status = text != NULL ? cddpi_file_replace_line(path, text)
                          : cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory", path);

    json_decref(end);
    json_decref(config);
    free(text);
    return status;
}
