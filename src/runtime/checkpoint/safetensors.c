/* safetensors.c - owns reading safetensors files. It checks everything in them, since they may come
 * from strangers. */
#include "checkpoint/safetensors.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/foreign.h"
#include "base/handle.h"
#include "base/mapped_file.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { LENGTH_BYTES = 8 };

struct safetensors_entry {
    cddp_tensor tensor; /* must be first: by_name points to it. Its name belongs to `root` */
    size_t begin;
    size_t end;
};

struct cddp_safetensors {
    struct cddpi_handle handle;
    const char *path; /* for errors; borrowed while opening */
    struct cddpi_mapped_file *mapped;
    const unsigned char *map;         /* the whole file */
    size_t bytes;                     /* the file's length */
    size_t data_begin;                /* offset in the file where the header ends */
    json_t *root;                     /* owns all names and the metadata */
    const json_t *pairs;              /* the metadata, or NULL */
    struct safetensors_entry *sorted; /* by offset in the file */
    const cddp_tensor **by_name;
    size_t count;
};

/* Put "FILE: tensor "NAME": " before the stored text. */
static cddp_status tensor_failed(const cddp_safetensors *file, const char *name, cddp_status status)
{
    char shown[CDDPI_SAFETENSORS_NAME_SHOWN];

    return cddpi_fail_prefix(status, "%s: tensor \"%s\"", file->path,
                             cddpi_printable(name, shown, sizeof shown));
}

static cddp_status map_file(cddp_safetensors *file)
{
    struct stat info;
    cddp_status status = CDDP_OK;
    int fd = -1;

    CDDPI_TRY(cddpi_checkpoint_open(file->path, &fd));
    if (fstat(fd, &info) != 0) {
        status = cddpi_fail_errno(CDDP_ERR_IO, errno, "stat %s", file->path);
    } else if (!S_ISREG(info.st_mode)) {
        status = cddpi_fail(CDDP_ERR_FORMAT, "%s: %s", file->path,
                            S_ISDIR(info.st_mode)
                                ? "it is a folder: name the file of safetensors in it"
                                : "not a regular file");
    } else if (info.st_size < LENGTH_BYTES) {
        status = cddpi_fail(CDDP_ERR_FORMAT, "%s: %lld bytes are too few for a safetensors file",
                            file->path, (long long)info.st_size);
    } else {
        status = cddpi_mapped_file_open(fd, file->path, &info, &file->mapped);
        if (status == CDDP_OK) {
            file->map = cddpi_mapped_file_data(file->mapped);
            file->bytes = (size_t)info.st_size;
        }
    }
    close(fd);
    return status;
}

/* The header is wrong. If the first bytes show another format, name that format. */
static cddp_status header_failed(const cddp_safetensors *file, cddp_status status)
{
    char words[CDDPI_FOREIGN_WORDS_BYTES];

    return cddpi_fail_suffix(status, "%s", cddpi_foreign_words(file->map, file->bytes, words));
}

static cddp_status parse_header(cddp_safetensors *file)
{
    const char *text = (const char *)file->map + LENGTH_BYTES;
    uint64_t length = 0;
    json_error_t error;

    for (int i = 0; i < LENGTH_BYTES; i++) {
        length |= (uint64_t)file->map[i] << 8 * i;
    }
    if (length <= CDDPI_SAFETENSORS_HEADER_MAX && length > file->bytes - LENGTH_BYTES &&
        file->bytes > LENGTH_BYTES && text[0] == '{') {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s: cut short: a header of %" PRIu64 " bytes in a file of %zu",
                          file->path, length, file->bytes);
    }
    if (length > CDDPI_SAFETENSORS_HEADER_MAX || length > file->bytes - LENGTH_BYTES) {
        return header_failed(file, cddpi_fail(CDDP_ERR_FORMAT,
                                              "%s: a header of %" PRIu64
                                              " bytes in a file of %zu (at most %d allowed): "
                                              "not a safetensors file, or cut short",
                                              file->path, length, file->bytes,
                                              CDDPI_SAFETENSORS_HEADER_MAX));
    }
    if (length == 0 || text[0] != '{') {
        return header_failed(
            file,
            cddpi_fail(CDDP_ERR_FORMAT, "%s: the header does not begin with '{'", file->path));
    }
    file->root = json_loadb(text, (size_t)length, JSON_REJECT_DUPLICATES, &error);
    if (file->root == NULL) {
        char shown[JSON_ERROR_TEXT_LENGTH];
        bool memory = json_error_code(&error) == json_error_out_of_memory;

        return cddpi_fail(memory ? CDDP_ERR_NO_MEMORY : CDDP_ERR_FORMAT,
                          "%s: the header is not valid JSON: byte %d: %s", file->path,
                          error.position, cddpi_printable(error.text, shown, sizeof shown));
    }
    file->data_begin = LENGTH_BYTES + (size_t)length;
    return CDDP_OK;
}

static cddp_status take_metadata(cddp_safetensors *file)
{
    json_t *pairs = json_object_get(file->root, "__metadata__");
    const char *key;
    json_t *value;

    if (pairs == NULL) {
        return CDDP_OK;
    }
    if (!json_is_object(pairs)) {
        return cddpi_fail(CDDP_ERR_FORMAT, "%s: __metadata__ is not an object", file->path);
    }
    json_object_foreach(pairs, key, value)
    {
        if (!json_is_string(value)) {
            char shown[CDDPI_SAFETENSORS_NAME_SHOWN];

            return cddpi_fail(CDDP_ERR_FORMAT, "%s: __metadata__: \"%s\" is not a string",
                              file->path, cddpi_printable(key, shown, sizeof shown));
        }
    }
    file->pairs = pairs;
    return CDDP_OK;
}

static cddp_status take_type(const json_t *json, cddp_tensor *tensor)
{
    const char *text = json_string_value(json_object_get(json, "dtype"));
    char shown[24];

    if (text == NULL) {
        return cddpi_fail(CDDP_ERR_FORMAT, "it has no dtype, or one that is not a string");
    }
    for (int type = 0; type < CDDPI_TYPES; type++) {
        if (strcmp(text, cddpi_safetensors_types[type]) == 0) {
            tensor->type = (cddp_type)type;
            return CDDP_OK;
        }
    }
    return cddpi_fail(CDDP_ERR_FORMAT, "dtype %s is not one that cddp can read",
                      cddpi_printable(text, shown, sizeof shown));
}

/* A hint for error texts if the number is written as 8.0: the format's reference library refuses
 * that, too. */
static const char *with_point(const json_t *json)
{
    return json_is_real(json) ? ": it is written with a point, as 8.0 for 8" : "";
}

static cddp_status take_shape(const json_t *json, cddp_tensor *tensor)
{
    const json_t *shape = json_object_get(json, "shape");

    if (!json_is_array(shape)) {
        return cddpi_fail(CDDP_ERR_FORMAT, "it has no shape, or one that is not an array");
    }
    if (json_array_size(shape) > CDDP_MAX_DIMS) {
        return cddpi_fail(CDDP_ERR_FORMAT, "%zu dimensions, but cddp holds at most %d",
                          json_array_size(shape), CDDP_MAX_DIMS);
    }
    tensor->dims = (int)json_array_size(shape);
    for (int i = 0; i < tensor->dims; i++) {
        const json_t *size = json_array_get(shape, (size_t)i);

        if (!json_is_integer(size) || json_integer_value(size) < 0) {
            return cddpi_fail(CDDP_ERR_FORMAT, "dimension %d is not a whole number >= 0%s", i,
                              with_point(size));
        }
        tensor->shape[i] = json_integer_value(size);
    }
    return CDDP_OK;
}

static cddp_status take_offsets(const cddp_safetensors *file, const json_t *json,
                                struct safetensors_entry *entry)
{
    const json_t *pair = json_object_get(json, "data_offsets");
    const json_t *begin = json_array_get(pair, 0);
    const json_t *end = json_array_get(pair, 1);
    size_t data_bytes = file->bytes - file->data_begin;
    size_t bytes;

    if (json_array_size(pair) != 2 || !json_is_integer(begin) || !json_is_integer(end)) {
        return cddpi_fail(CDDP_ERR_FORMAT, "its data_offsets are not two whole numbers%s",
                          json_is_real(begin) ? with_point(begin) : with_point(end));
    }
    if (json_integer_value(begin) < 0 || json_integer_value(end) < json_integer_value(begin) ||
        (uint64_t)json_integer_value(end) > data_bytes) {
        return cddpi_fail(
            CDDP_ERR_FORMAT, "data_offsets [%lld, %lld] do not lie in the %zu bytes of data",
            (long long)json_integer_value(begin), (long long)json_integer_value(end), data_bytes);
    }
    entry->begin = (size_t)json_integer_value(begin);
    entry->end = (size_t)json_integer_value(end);
    if (!cddpi_tensor_bytes(entry->tensor.type, entry->tensor.dims, entry->tensor.shape, &bytes)) {
        return cddpi_fail(CDDP_ERR_FORMAT, "its shape overflows");
    }
    if (bytes != entry->end - entry->begin) {
        return cddpi_fail(CDDP_ERR_FORMAT, "its shape takes %zu bytes, its data_offsets hold %zu",
                          bytes, entry->end - entry->begin);
    }
    entry->tensor.data = file->map + file->data_begin + entry->begin;
    return CDDP_OK;
}

static cddp_status take_entry(const cddp_safetensors *file, const json_t *json,
                              struct safetensors_entry *entry)
{
    if (!json_is_object(json)) {
        return cddpi_fail(CDDP_ERR_FORMAT, "its entry is not an object");
    }
    CDDPI_TRY(take_type(json, &entry->tensor));
    CDDPI_TRY(take_shape(json, &entry->tensor));
    return take_offsets(file, json, entry);
}

/* Order by offset; an empty tensor comes before a tensor that begins at the same offset. */
static int compare_places(const void *left, const void *right)
{
    const struct safetensors_entry *a = left;
    const struct safetensors_entry *b = right;

    if (a->begin != b->begin) {
        return a->begin < b->begin ? -1 : 1;
    }
    if (a->end != b->end) {
        return a->end < b->end ? -1 : 1;
    }
    return strcmp(a->tensor.name, b->tensor.name);
}

static cddp_status take_entries(cddp_safetensors *file)
{
    size_t rows = json_object_size(file->root);
    const char *name;
    json_t *json;

    file->sorted = cddpi_zalloc_array(rows, sizeof *file->sorted);
    file->by_name = cddpi_zalloc_array(rows, sizeof *file->by_name);
    if (file->sorted == NULL || file->by_name == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory for %zu tensors", file->path, rows);
    }
    json_object_foreach(file->root, name, json)
    {
        struct safetensors_entry *entry = &file->sorted[file->count];
        cddp_status status;

        if (json == file->pairs) {
            continue;
        }
        entry->tensor.name = name;
        status = take_entry(file, json, entry);
        if (status != CDDP_OK) {
            return tensor_failed(file, name, status);
        }
        file->count++;
    }
    qsort(file->sorted, file->count, sizeof *file->sorted, compare_places);
    for (size_t i = 0; i < file->count; i++) {
        file->by_name[i] = &file->sorted[i].tensor;
    }
    qsort(file->by_name, file->count, sizeof *file->by_name, cddpi_tensor_by_name);
    return CDDP_OK;
}

/* Check that the tensors, in order, cover the data without holes or overlaps. */
static cddp_status check_cover(const cddp_safetensors *file)
{
    size_t covered = 0;

    for (size_t i = 0; i < file->count; i++) {
        const struct safetensors_entry *entry = &file->sorted[i];

        if (entry->begin != covered) {
            return tensor_failed(
                file, entry->tensor.name,
                cddpi_fail(CDDP_ERR_FORMAT,
                           "it begins at byte %zu of the data, but what is before it ends at %zu%s",
                           entry->begin, covered,
                           entry->begin < covered ? ": they overlap" : ": a hole"));
        }
        covered = entry->end;
    }
    if (covered != file->bytes - file->data_begin) {
        return cddpi_fail(CDDP_ERR_FORMAT, "%s: %zu bytes after the last tensor belong to none",
                          file->path, file->bytes - file->data_begin - covered);
    }
    return CDDP_OK;
}

cddp_status cddp_safetensors_open(const char *path, cddp_safetensors **out)
{
    cddp_safetensors *file;
    cddp_status status;

    if (path == NULL || out == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "safetensors_open: %s is NULL",
                          path == NULL ? "path" : "out");
    }
    file = cddpi_zalloc(sizeof *file);
    if (file == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory for %zu bytes", path, sizeof *file);
    }
    cddpi_handle_init(&file->handle, CDDPI_HANDLE_SAFETENSORS);
    file->path = path;
    CDDPI_TRY_GOTO(done, status, map_file(file));
    CDDPI_TRY_GOTO(done, status, parse_header(file));
    CDDPI_TRY_GOTO(done, status, take_metadata(file));
    CDDPI_TRY_GOTO(done, status, take_entries(file));
    status = check_cover(file);

done:
    if (cddpi_mapped_file_check(file->mapped) != CDDP_OK) {
        status = CDDP_ERR_IO; /* the file was truncated, so any other fault may be false */
    }
    if (status != CDDP_OK) {
        cddp_safetensors_close(file);
        return status;
    }
    file->path = NULL;
    *out = file;
    return CDDP_OK;
}

void cddp_safetensors_close(cddp_safetensors *file)
{
    if (file == NULL ||
        !cddpi_handle_enter_last(&file->handle, CDDPI_HANDLE_SAFETENSORS, "safetensors_close")) {
        return;
    }
    cddpi_mapped_file_close(file->mapped);
    json_decref(file->root);
    cddpi_free(file->sorted);
    cddpi_free(file->by_name);
    cddpi_handle_release(&file->handle, sizeof *file);
}

cddp_status cddpi_safetensors_look(const cddp_safetensors *file)
{
    return cddpi_mapped_file_look(file->mapped);
}

static bool may_ask(const cddp_safetensors *file, const char *call)
{
    return cddpi_handle_check((const struct cddpi_handle *)file, CDDPI_HANDLE_SAFETENSORS, call) ==
           CDDP_OK;
}

size_t cddp_safetensors_count(const cddp_safetensors *file)
{
    return may_ask(file, "safetensors_count") ? file->count : 0;
}

const cddp_tensor *cddp_safetensors_at(const cddp_safetensors *file, size_t index)
{
    return may_ask(file, "safetensors_at") && index < file->count ? &file->sorted[index].tensor
                                                                  : NULL;
}

const cddp_tensor *cddp_safetensors_find(const cddp_safetensors *file, const char *name)
{
    const cddp_tensor wanted = {.name = name};
    const cddp_tensor *key = &wanted;
    const cddp_tensor **found;

    if (!may_ask(file, "safetensors_find") || name == NULL) {
        return NULL;
    }
    found = bsearch(&key, file->by_name, file->count, sizeof *file->by_name, cddpi_tensor_by_name);
    return found != NULL ? *found : NULL;
}

const char *cddp_safetensors_metadata(const cddp_safetensors *file, const char *key)
{
    return may_ask(file, "safetensors_metadata") && key != NULL
               ? json_string_value(json_object_get(file->pairs, key))
               : NULL;
}
