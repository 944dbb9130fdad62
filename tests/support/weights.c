/* weights.c - the weights of a small GPT-2 for tests, and weight files as other programs write
 * them. */
#include "support/weights.h"
#include "support/failure.h"

float element(size_t i, size_t e)
{
    return (float)((long)((i * 7919 + e * 104729) % 4001) - 2000) / 1000.0f;
}

size_t elements(const cddp_param *tensor)
{
    size_t count = 1;

    for (int i = 0; i < tensor->dims; i++) {
        count *= (size_t)tensor->shape[i];
    }
    return count;
}

void make_params(struct params *params, const struct cddpi_gpt2_shape *shape, bool filled)
{
    params->count = cddpi_gpt2_tensor_count(shape);
    assert_true(params->count <= MOST_TENSORS);
    memset(params->data, 0xff, sizeof params->data);
    for (size_t i = 0; i < params->count; i++) {
        struct cddpi_gpt2_tensor tensor;
        cddp_param *to = &params->tensors[i];

        cddpi_gpt2_tensor_at(shape, i, &tensor);
        memcpy(params->names[i], tensor.name, sizeof tensor.name);
        *to = (cddp_param){.name = params->names[i], .type = CDDP_F32, .dims = tensor.dims};
        to->shape[0] = tensor.dims == 1 ? tensor.columns : tensor.rows;
        to->shape[1] = tensor.dims == 1 ? 0 : tensor.columns;
        to->data = params->data[i];
        assert_true(elements(to) <= MOST_ELEMENTS);
        for (size_t e = 0; filled && e < elements(to); e++) {
            params->data[i][e] = element(i, e);
        }
    }
}

void assert_filled(const struct params *params)
{
    for (size_t i = 0; i < params->count; i++) {
        for (size_t e = 0; e < elements(&params->tensors[i]); e++) {
            if (params->data[i][e] != element(i, e)) {
                fail_msg("%s[%zu] is %g, not %g", params->names[i], e, (double)params->data[i][e],
                         (double)element(i, e));
            }
        }
    }
}

static bool is_linear(const char *name)
{
    return strncmp(name, "h.", 2) == 0 && strstr(name, ".c_") != NULL &&
           strstr(name, ".weight") != NULL;
}

void make_hf(struct hf_file *file, const char *prefix)
{
    static struct params params;

    make_params(&params, &small, true);
    file->count = params.count;
    for (size_t i = 0; i < file->count; i++) {
        const cddp_param *from = &params.tensors[i];
        size_t rows = (size_t)from->shape[0];
        size_t columns = (size_t)from->shape[1];

        file->tensors[i] = *from;
        file->tensors[i].data = file->data[i];
        file->tensors[i].name = file->names[i];
        snprintf(file->names[i], sizeof file->names[i], "%s%s", prefix, from->name);
        memcpy(file->data[i], params.data[i], sizeof file->data[i]);
        if (is_linear(from->name)) {
            file->tensors[i].shape[0] = from->shape[1];
            file->tensors[i].shape[1] = from->shape[0];
            for (size_t r = 0; r < rows; r++) {
                for (size_t c = 0; c < columns; c++) {
                    file->data[i][c * rows + r] = params.data[i][r * columns + c];
                }
            }
        }
    }
}

cddp_param *hf_find(struct hf_file *file, const char *name)
{
    for (size_t i = 0; i < file->count; i++) {
        if (strcmp(file->tensors[i].name, name) == 0) {
            return &file->tensors[i];
        }
    }
    fail_msg("there is no %s", name);
    return NULL;
}

cddp_param *hf_add(struct hf_file *file, const char *name, cddp_type type, int dims,
                   const int64_t *shape)
{
    size_t i = file->count++;
    cddp_param *added;

    assert_true(i < MOST_TENSORS);
    snprintf(file->names[i], sizeof file->names[i], "%s", name);
    memset(file->data[i], 0, sizeof file->data[i]);
    memmove(&file->tensors[1], &file->tensors[0], i * sizeof file->tensors[0]);
    added = &file->tensors[0];
    *added = (cddp_param){
        .name = file->names[i], .type = type, .dims = dims, .data = file->data[i]};
    memcpy(added->shape, shape, (size_t)dims * sizeof *shape);
    return added;
}

void write_params(const cddp_param *params, size_t count, const char *name,
                  const char *const *metadata)
{
    cddp_tensor tensors[MOST_TENSORS];

    assert_true(count <= MOST_TENSORS);
    assert_int_equal(cddp_tensors_of(params, count, tensors), CDDP_OK);
    assert_int_equal(cddp_safetensors_write(in_folder(name), tensors, count, metadata), CDDP_OK);
}

void write_hf(const struct hf_file *file, const char *name, const char *const *metadata)
{
    write_params(file->tensors, file->count, name, metadata);
}

void convert(const char *in, const char *out, enum cddpi_weights_format format, cddp_type type)
{
    struct cddpi_weights *weights = NULL;

    if (cddpi_weights_open(in_folder(in), &weights) != CDDP_OK) {
        fail_msg("%s: %s", in, cddp_last_error());
    }
    if (cddpi_weights_write(weights, in_folder(out), format, type, HEADS) != CDDP_OK) {
        fail_msg("%s: %s", out, cddp_last_error());
    }
    cddpi_weights_close(weights);
}

void write_cddp(const char *name)
{
    static struct params params;

    make_params(&params, &small, true);
    write_params(params.tensors, params.count, name, NULL);
}

unsigned char *read_all(const char *name, size_t *out_bytes)
{
    FILE *file = fopen(in_folder(name), "rbe");
    unsigned char *all = malloc(1 << 20);

    assert_non_null(file);
    *out_bytes = fread(all, 1, 1 << 20, file);
    fclose(file);
    return all;
}

void assert_same_bytes(const char *left, const char *right)
{
    size_t left_bytes;
    size_t right_bytes;
    unsigned char *a = read_all(left, &left_bytes);
    unsigned char *b = read_all(right, &right_bytes);

    assert_int_equal(left_bytes, right_bytes);
    assert_memory_equal(a, b, left_bytes);
    free(a);
    free(b);
}

void assert_refused(const char *name, const char *text)
{
    struct cddpi_weights *weights = NULL;
    const char *path = in_folder(name);
    cddp_status status = cddpi_weights_open(path, &weights);

    if (status != CDDP_ERR_FORMAT || !last_error_has(text) || !last_error_has(path)) {
        fail_msg("status %d, \"%s\" does not say \"%s\"", status, cddp_last_error(), text);
    }
    assert_null(weights);
}
