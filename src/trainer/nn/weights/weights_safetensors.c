/* weights_safetensors.c - finds a GPT-2's tensors in safetensors files from cddp or Hugging Face.
 * Names are the same except for wrappers. The first linear weight that is not square shows whether
 * all of them are transposed. */
#include "base/error.h"
#include "base/number.h"
#include "checkpoint/safetensors.h"
#include "nn/weights/weights_file.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char head_name[] = "lm_head.weight";
static const char table_name[] = "wte.weight";

/* The search for a GPT-2's tensors in open files. */
struct looking {
    struct cddpi_weights *weights;
    const char *path;
    struct cddpi_weights_names names;
};

static cddp_status tensor_fail(const struct looking *at, const struct cddpi_named_tensor *found,
                               const char *wanted)
{
    const cddp_tensor *tensor = found->tensor;
    char name[CDDPI_SAFETENSORS_NAME_SHOWN];
    char shape[CDDPI_TENSOR_KIND_BYTES];

    return cddpi_fail(
        CDDP_ERR_FORMAT, "%s: tensor \"%s\" is %s, but %s is wanted",
        at->weights->files.paths[found->file], cddpi_printable(tensor->name, name, sizeof name),
        cddpi_shape_describe(tensor->type, tensor->dims, tensor->shape, shape), wanted);
}

static const struct cddpi_named_tensor *find_tensor(const struct looking *at, const char *name)
{
    return cddpi_weights_names_find(&at->names, name);
}

/* Read the sizes of one of the embeddings. */
static cddp_status find_table(const struct looking *at, const char *name, int64_t *out_rows,
                              int64_t *out_columns)
{
    const struct cddpi_named_tensor *found = find_tensor(at, name);
    const cddp_tensor *tensor;

    if (found == NULL) {
        return cddpi_weights_names_missing(&at->names, at->path, name);
    }
    tensor = found->tensor;
    if (tensor->dims != 2 || tensor->shape[0] < 1 || tensor->shape[0] > CDDPI_GPT2_TOKENS_MAX ||
        tensor->shape[1] < 1 || tensor->shape[1] > CDDPI_GPT2_EMBED_MAX) {
        return tensor_fail(at, found, "a matrix [entries, embed]");
    }
    *out_rows = tensor->shape[0];
    *out_columns = tensor->shape[1];
    return CDDP_OK;
}

/* Find sizes from the embeddings and the names, and the layout from attn.c_attn, whose sides have
 * the ratio 3 to 1. */
static cddp_status find_shape(struct looking *at)
{
    struct cddpi_weights *weights = at->weights;
    struct cddpi_gpt2_shape *shape = &weights->shape;
    const struct cddpi_named_tensor *attention;
    char name[CDDPI_GPT2_NAME_BYTES];
    int64_t columns = 0;

    /* the head is the same matrix as wte, and some programs keep only one of the two names */
    weights->table_of_head = find_tensor(at, table_name) == NULL &&
                             find_tensor(at, head_name) != NULL;
    CDDPI_TRY(find_table(at, weights->table_of_head ? head_name : table_name, &shape->vocab,
                         &shape->embed));
    CDDPI_TRY(find_table(at, "wpe.weight", &shape->context, &columns));
    for (; shape->blocks < CDDPI_GPT2_BLOCKS_MAX; shape->blocks++) {
        snprintf(name, sizeof name, "h.%d.ln_1.weight", (int)shape->blocks);
        if (find_tensor(at, name) == NULL) {
            break;
        }
    }
    attention = find_tensor(at, "h.0.attn.c_attn.weight");
    if (shape->blocks == 0 || attention == NULL) {
        return cddpi_weights_names_missing(&at->names, at->path,
                                           shape->blocks == 0 ? "h.0.ln_1.weight"
                                                              : "h.0.attn.c_attn.weight");
    }
    weights->format = attention->tensor->dims == 2 && attention->tensor->shape[0] == shape->embed
                          ? CDDPI_WEIGHTS_HF
                          : CDDPI_WEIGHTS_CDDP;
    return CDDP_OK;
}

/* Parse "h.N." before @p rest. N must be written canonically, and be the number of a block. */
static bool parse_block(const char *name, int64_t blocks, size_t *out_block, const char **out_rest)
{
    char again[16];
    char *end;
    long block;

    if (strncmp(name, "h.", 2) != 0 || name[2] < '0' || name[2] > '9' ||
        strspn(name + 2, "0123456789") > 6) {
        return false;
    }
    block = strtol(name + 2, &end, 10);
    snprintf(again, sizeof again, "h.%ld.", block);
    if (*end != '.' || block >= blocks || strncmp(name, again, strlen(again)) != 0) {
        return false;
    }
    *out_block = (size_t)block;
    *out_rest = end + 1;
    return true;
}

size_t cddpi_gpt2_index(const struct cddpi_gpt2_shape *shape, const char *name)
{
    size_t count = cddpi_gpt2_tensor_count(shape);
    size_t first = 0;
    size_t number = CDDPI_GPT2_HEAD;
    size_t block;
    const char *rest;

    if (parse_block(name, shape->blocks, &block, &rest)) {
        first = CDDPI_GPT2_HEAD + block * CDDPI_GPT2_ROWS;
        number = CDDPI_GPT2_ROWS;
    } else if (strncmp(name, "ln_f", 4) == 0) {
        first = count - CDDPI_GPT2_TAIL;
    }
    for (size_t i = first; i < first + number; i++) {
        struct cddpi_gpt2_tensor tensor;

        cddpi_gpt2_tensor_at(shape, i, &tensor);
        if (strcmp(tensor.name, name) == 0) {
            return i;
        }
    }
    return count;
}

/* Causal masks, which some versions stored together with the weights. */
static bool is_mask(const struct cddpi_gpt2_shape *shape, const char *name)
{
    size_t block;
    const char *rest;

    return parse_block(name, shape->blocks, &block, &rest) &&
           (strcmp(rest, "attn.bias") == 0 || strcmp(rest, "attn.masked_bias") == 0);
}

/* Check that a tensor is of floats and, unless @p rows is 0, a matrix. */
static cddp_status check_tensor(const struct looking *at, const struct cddpi_named_tensor *named,
                                int64_t rows, int64_t columns)
{
    const cddp_tensor *tensor = named->tensor;
    int dims = rows > 0 ? 2 : 1;
    char wanted[96];

    if ((tensor->type == CDDP_F32 || tensor->type == CDDP_F16 || tensor->type == CDDP_BF16) &&
        tensor->dims == dims && tensor->shape[dims - 1] == columns &&
        (dims == 1 || tensor->shape[0] == rows)) {
        return CDDP_OK;
    }
    if (dims == 2) {
        snprintf(wanted, sizeof wanted, "f32, f16 or bf16 [%lld, %lld]", (long long)rows,
                 (long long)columns);
    } else {
        snprintf(wanted, sizeof wanted, "f32, f16 or bf16 [%lld]", (long long)columns);
    }
    return tensor_fail(at, named, wanted);
}

/* Record the place of the tensor that has number @p index in the GPT-2. */
static cddp_status place_tensor(const struct looking *at, const struct cddpi_named_tensor *named,
                                size_t index)
{
    struct cddpi_weights *weights = at->weights;
    struct cddpi_gpt2_tensor tensor;
    int64_t rows;
    bool transposed;

    cddpi_gpt2_tensor_at(&weights->shape, index, &tensor);
    transposed = tensor.linear && weights->format == CDDPI_WEIGHTS_HF;
    rows = transposed ? tensor.columns : tensor.rows;
    CDDPI_TRY(check_tensor(at, named, tensor.dims == 2 ? rows : 0,
                           transposed ? tensor.rows : tensor.columns));
    weights->views[index] = (struct cddpi_weights_view){
        .data = named->tensor->data, .type = named->tensor->type, .transposed = transposed};
    return CDDP_OK;
}

static cddp_status place_all(struct looking *at)
{
    const struct cddpi_weights *weights = at->weights;

    for (size_t i = 0; i < at->names.count; i++) {
        const struct cddpi_named_tensor *found = &at->names.rows[i];
        bool is_head = strcmp(found->name, head_name) == 0;
        size_t index = is_head && weights->table_of_head
                           ? 0
                           : cddpi_gpt2_index(&weights->shape, found->name);
        char name[CDDPI_SAFETENSORS_NAME_SHOWN];

        if (index < weights->count) {
            CDDPI_TRY(place_tensor(at, found, index));
        } else if (!is_head && !is_mask(&weights->shape, found->name)) {
            return cddpi_fail(CDDP_ERR_FORMAT,
                              "%s: tensor \"%s\" is not part of a GPT-2 of %lld blocks",
                              weights->files.paths[found->file],
                              cddpi_printable(found->tensor->name, name, sizeof name),
                              (long long)weights->shape.blocks);
        }
    }
    for (size_t i = 0; i < weights->count; i++) {
        struct cddpi_gpt2_tensor tensor;

        if (weights->views[i].data == NULL) {
            cddpi_gpt2_tensor_at(&weights->shape, i, &tensor);
            return cddpi_weights_names_missing(&at->names, at->path, tensor.name);
        }
    }
    return CDDP_OK;
}

/* A separate head must be a copy of wte's rows. */
static cddp_status check_head(const struct looking *at)
{
    const struct cddpi_gpt2_shape *shape = &at->weights->shape;
    const struct cddpi_named_tensor *found = find_tensor(at, head_name);

    if (found == NULL || at->weights->table_of_head) {
        return CDDP_OK;
    }
    CDDPI_TRY(check_tensor(at, found, shape->vocab, shape->embed));
    if (!cddpi_weights_same(
            &at->weights->views[0],
            &(struct cddpi_weights_view){.data = found->tensor->data, .type = found->tensor->type},
            (size_t)(shape->vocab * shape->embed))) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s: lm_head.weight differs from wte.weight: cddp's gpt2 ties them",
                          at->path);
    }
    return CDDP_OK;
}

/* Read "heads" from the metadata, which cddp writes. */
static cddp_status find_heads(const struct looking *at)
{
    struct cddpi_gpt2_shape *shape = &at->weights->shape;
    const char *text = NULL;
    char shown[32];

    for (size_t i = 0; i < at->weights->files.count && text == NULL; i++) {
        text = cddp_safetensors_metadata(at->weights->files.files[i], "heads");
    }
    if (text != NULL && (!cddpi_parse_integer(text, 1, shape->embed, &shape->heads) ||
                         shape->embed % shape->heads != 0)) {
        return cddpi_fail(
            CDDP_ERR_FORMAT,
            "%s: its metadata has \"%s\" heads, which do not divide the embed size of "
            "%lld",
            at->path, cddpi_printable(text, shown, sizeof shown), (long long)shape->embed);
    }
    return CDDP_OK;
}

cddp_status cddpi_weights_place_safetensors(struct cddpi_weights *weights, const char *path)
{
    struct looking at = {.weights = weights, .path = path};
    cddp_status status;

    CDDPI_TRY_GOTO(done, status, cddpi_weights_names_init(&weights->files, path, &at.names));
    CDDPI_TRY_GOTO(done, status, find_shape(&at));
    CDDPI_TRY_GOTO(done, status, cddpi_weights_make_views(weights, path));
    CDDPI_TRY_GOTO(done, status, place_all(&at));
    CDDPI_TRY_GOTO(done, status, check_head(&at));
    CDDPI_TRY_GOTO(done, status, find_heads(&at));
done:
    cddpi_weights_names_fini(&at.names);
    return status;
}
