/* safetensors_write.c - owns writing safetensors files. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/replace.h"
#include "checkpoint/safetensors.h"

#include <assert.h>
#include <jansson.h>
#include <string.h>

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "safetensors data is little-endian");

enum { LENGTH_BYTES = 8 };

const char *const cddpi_safetensors_types[CDDPI_TYPES] = {
    [CDDP_F32] = "F32",   [CDDP_F64] = "F64", [CDDP_F16] = "F16",
    [CDDP_BF16] = "BF16", [CDDP_I32] = "I32", [CDDP_I64] = "I64",
    [CDDP_U8] = "U8",     [CDDP_I8] = "I8",   [CDDP_BOOL] = "BOOL"};

bool cddpi_tensor_bytes(cddp_type type, int dims, const int64_t *shape, size_t *out)
{
    int64_t bytes = (int64_t)cddp_type_bytes(type);

    for (int i = 0; i < dims; i++) {
        if (shape[i] < 0 || __builtin_mul_overflow(bytes, shape[i], &bytes)) {
            return false;
        }
    }
    *out = (size_t)bytes;
    return true;
}

/* Check one of the caller's tensors. */
static cddp_status check_tensor(const char *shown, const cddp_tensor *tensor, size_t index,
                                size_t *out_bytes)
{
    char name[CDDPI_SAFETENSORS_NAME_SHOWN];
    cddp_status status;
    size_t bytes;

    if (tensor->name == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "%s: tensor %zu has no name", shown, index);
    }
    cddpi_printable(tensor->name, name, sizeof name);
    if (strcmp(tensor->name, "__metadata__") == 0) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "%s: no tensor may be named %s", shown, name);
    }
    if (cddp_type_bytes(tensor->type) == 0) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "%s: tensor \"%s\": there is no type %d", shown, name,
                          (int)tensor->type);
    }
    if (tensor->dims < 0 || tensor->dims > CDDP_MAX_DIMS) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "%s: tensor \"%s\": %d dimensions, but only 0 to %d are possible", shown,
                          name, tensor->dims, CDDP_MAX_DIMS);
    }
    if (!cddpi_tensor_bytes(tensor->type, tensor->dims, tensor->shape, &bytes)) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "%s: tensor \"%s\": its shape is negative or overflows", shown, name);
    }
    status = cddpi_flags_check(tensor->flags, CDDPI_RESERVED_OF(tensor));
    if (status != CDDP_OK) {
        return cddpi_fail_prefix(status, "%s: tensor \"%s\"", shown, name);
    }
    *out_bytes = bytes;
    return CDDP_OK;
}

/* A tensor's entry in the header: {"dtype":"F32","shape":[2,3],"data_offsets":[0,24]}. NULL: no
 * memory. */
static json_t *tensor_entry(const cddp_tensor *tensor, size_t begin, size_t end)
{
    json_t *shape = json_array();

    for (int i = 0; i < tensor->dims && shape != NULL; i++) {
        if (json_array_append_new(shape, json_integer(tensor->shape[i])) != 0) {
            json_decref(shape);
            shape = NULL;
        }
    }
    return json_pack("{s:s, s:o, s:[I,I]}", "dtype", cddpi_safetensors_types[tensor->type], "shape",
                     shape, "data_offsets", (json_int_t)begin, (json_int_t)end);
}

static cddp_status add_tensors(const char *shown, json_t *root, const cddp_tensor *tensors,
                               size_t count)
{
    size_t offset = 0;

    for (size_t i = 0; i < count; i++) {
        char name[CDDPI_SAFETENSORS_NAME_SHOWN];
        size_t bytes = 0;
        json_t *entry;

        CDDPI_TRY(check_tensor(shown, &tensors[i], i, &bytes));
        cddpi_printable(tensors[i].name, name, sizeof name);
        if (json_object_get(root, tensors[i].name) != NULL) {
            return cddpi_fail(CDDP_ERR_ARGUMENT, "%s: two tensors are named \"%s\"", shown, name);
        }
        if (bytes > INT64_MAX - offset) {
            return cddpi_fail(CDDP_ERR_ARGUMENT, "%s: tensor \"%s\": too many bytes in all", shown,
                              name);
        }
        entry = tensor_entry(&tensors[i], offset, offset + bytes);
        if (entry == NULL) {
            return cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory for the header", shown);
        }
        if (json_object_set_new(root, tensors[i].name, entry) != 0) {
            return cddpi_fail(CDDP_ERR_ARGUMENT, "%s: tensor \"%s\": its name is not UTF-8", shown,
                              name);
        }
        offset += bytes;
    }
    return CDDP_OK;
}

static cddp_status add_metadata(const char *shown, json_t *root, const char *const *metadata)
{
    json_t *pairs;

    if (metadata == NULL || metadata[0] == NULL) {
        return CDDP_OK;
    }
    pairs = json_object();
    for (; metadata[0] != NULL; metadata += 2) {
        if (metadata[1] == NULL || json_object_get(pairs, metadata[0]) != NULL ||
            json_object_set_new(pairs, metadata[0], json_string(metadata[1])) != 0) {
            char key[CDDPI_SAFETENSORS_NAME_SHOWN];

            json_decref(pairs);
            return cddpi_fail(CDDP_ERR_ARGUMENT,
                              "%s: metadata \"%s\" has no value, is there twice or is not UTF-8",
                              shown, cddpi_printable(metadata[0], key, sizeof key));
        }
    }
    if (json_object_set_new(root, "__metadata__", pairs) != 0) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory for the metadata", shown);
    }
    return CDDP_OK;
}

/* Build one block of the header's length, its JSON and the padding. */
static cddp_status lay_out(const char *shown, const json_t *root, char **out, size_t *out_bytes)
{
    size_t text = json_dumpb(root, NULL, 0, JSON_COMPACT);
    size_t bytes = cddpi_align(LENGTH_BYTES + text);
    char *block;

    if (text == 0 || bytes - LENGTH_BYTES > CDDPI_SAFETENSORS_HEADER_MAX) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "%s: a header of %zu bytes; the format allows 1 to %d",
                          shown, text, CDDPI_SAFETENSORS_HEADER_MAX);
    }
    block = cddpi_zalloc(bytes);
    if (block == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory for %zu bytes", shown, bytes);
    }
    for (int i = 0; i < LENGTH_BYTES; i++) {
        block[i] = (char)((uint64_t)(bytes - LENGTH_BYTES) >> 8 * i);
    }
    if (json_dumpb(root, block + LENGTH_BYTES, text, JSON_COMPACT) != text) {
        cddpi_free(block);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory for the header", shown);
    }
    memset(block + LENGTH_BYTES + text, ' ', bytes - LENGTH_BYTES - text);
    *out = block;
    *out_bytes = bytes;
    return CDDP_OK;
}

/* Check all of @p tensors and build the beginning of a file: the header's length and the header,
 * padded so that the data begins at a multiple of 64 bytes.
 * @param shown  Names the file in errors.
 * @param out    @p out_bytes bytes; release with cddpi_free(). */
static cddp_status make_header(const char *shown, const cddp_tensor *tensors, size_t count,
                               const char *const *metadata, char **out, size_t *out_bytes)
{
    json_t *root = json_object();
    cddp_status status;

    if (root == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory for the header", shown);
    }
    CDDPI_TRY_GOTO(done, status, add_metadata(shown, root, metadata));
    CDDPI_TRY_GOTO(done, status, add_tensors(shown, root, tensors, count));
    status = lay_out(shown, root, out, out_bytes);

done:
    json_decref(root);
    return status;
}

/* A cddpi_tensor_data_fn for tensors in memory. */
static cddp_status put_memory(void *context, size_t index, struct cddpi_writer *writer)
{
    const cddp_tensor *tensor = (const cddp_tensor *)context + index;

    return cddpi_writer_put(writer, tensor->data, cddpi_tensor_size(tensor));
}

cddp_status cddpi_safetensors_check(const char *shown, const cddp_tensor *tensors, size_t count)
{
    if (count > CDDPI_BYTES_MAX / sizeof *tensors) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "%s: %zu tensors are too many", shown, count);
    }
    for (size_t i = 0; i < count; i++) {
        char name[CDDPI_SAFETENSORS_NAME_SHOWN];
        size_t bytes = 0;

        CDDPI_TRY(check_tensor(shown, &tensors[i], i, &bytes));
        if (tensors[i].data == NULL && bytes > 0) {
            return cddpi_fail(CDDP_ERR_ARGUMENT, "%s: tensor \"%s\" has no data", shown,
                              cddpi_printable(tensors[i].name, name, sizeof name));
        }
    }
    return CDDP_OK;
}

/* What put_content() writes. */
struct content {
    const cddp_tensor *tensors; /* their data may be NULL */
    size_t count;
    const char *const *metadata;
    cddpi_tensor_data_fn put;
    cddpi_file_put_fn put_all; /* NULL: `put` puts the tensors, one by one */
    void *context;
};

static cddp_status put_tensors(const struct content *content, struct cddpi_writer *writer)
{
    uint64_t expected = writer->bytes;
    cddp_status status = CDDP_OK;

    for (size_t i = 0; i < content->count && status == CDDP_OK; i++) {
        status = content->put(content->context, i, writer);
        expected += cddpi_tensor_size(&content->tensors[i]);
        assert(status != CDDP_OK || writer->bytes == expected);
    }
    return status;
}

/* Put the header and all tensors to @p writer. */
static cddp_status put_content(void *context, struct cddpi_writer *writer)
{
    const struct content *content = context;
    char *header = NULL;
    size_t header_bytes = 0;
    cddp_status status;

    CDDPI_TRY(make_header(writer->shown, content->tensors, content->count, content->metadata,
                          &header, &header_bytes));
    status = cddpi_writer_put(writer, header, header_bytes);
    cddpi_free(header);
    CDDPI_TRY(status);
    return content->put_all != NULL ? content->put_all(content->context, writer)
                                    : put_tensors(content, writer);
}

/* Write @p content to the new file @p name, and flush it. */
static cddp_status put_file(int dir, const char *name, const char *shown, struct content *content,
                            uint64_t *out_bytes, unsigned char out_digest[CDDPI_DIGEST_BYTES])
{
    struct cddpi_writer writer;
    struct cddpi_digest digest;
    cddp_status status;

    CDDPI_TRY(cddpi_writer_open(&writer, dir, name, shown));
    CDDPI_TRY_GOTO(done, status, cddpi_digest_watch(&digest, &writer));
    CDDPI_TRY_GOTO(done, status, put_content(content, &writer));
    CDDPI_TRY_GOTO(done, status, cddpi_writer_finish(&writer));
    *out_bytes = writer.bytes;
    cddpi_digest_take(&digest, out_digest);

done:
    cddpi_writer_close(&writer);
    return status;
}

cddp_status cddpi_safetensors_put(int dir, const char *name, const char *shown,
                                  const cddp_tensor *tensors, size_t count,
                                  const char *const *metadata, cddpi_tensor_data_fn put,
                                  void *context, uint64_t *out_bytes,
                                  unsigned char out_digest[CDDPI_DIGEST_BYTES])
{
    struct content content = {tensors, count, metadata, put, NULL, context};

    return put_file(dir, name, shown, &content, out_bytes, out_digest);
}

cddp_status cddpi_safetensors_put_together(int dir, const char *name, const char *shown,
                                           const cddp_tensor *tensors, size_t count,
                                           const char *const *metadata, cddpi_file_put_fn put_all,
                                           void *context, uint64_t *out_bytes,
                                           unsigned char out_digest[CDDPI_DIGEST_BYTES])
{
    struct content content = {tensors, count, metadata, NULL, put_all, context};

    return put_file(dir, name, shown, &content, out_bytes, out_digest);
}

cddp_status cddpi_safetensors_stream(const char *path, const cddp_tensor *tensors, size_t count,
                                     const char *const *metadata, cddpi_tensor_data_fn put,
                                     void *context)
{
    struct content content = {tensors, count, metadata, put, NULL, context};

    return cddpi_file_replace(path, put_content, &content);
}

cddp_status cddp_safetensors_write(const char *path, const cddp_tensor *tensors, size_t count,
                                   const char *const *metadata)
{
    if (path == NULL || (tensors == NULL && count > 0)) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "safetensors_write: %s is NULL",
                          path == NULL ? "path" : "tensors");
    }
    CDDPI_TRY(cddpi_safetensors_check(path, tensors, count));
    return cddpi_safetensors_stream(path, tensors, count, metadata, put_memory,
                                    (void *)(uintptr_t)tensors);
}
