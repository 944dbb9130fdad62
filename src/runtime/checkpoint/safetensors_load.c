/* safetensors_load.c - owns copying a safetensors file into the caller's tensors. */
#include "base/alloc.h"
#include "base/choices.h"
#include "base/error.h"
#include "checkpoint/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

const char *cddpi_shape_describe(cddp_type type, int dims, const int64_t *shape,
                                 char text[CDDPI_TENSOR_KIND_BYTES])
{
    int length = snprintf(text, CDDPI_TENSOR_KIND_BYTES, "%s [", cddp_type_name(type));

    for (int i = 0; i < dims; i++) {
        length += snprintf(text + length, (size_t)(CDDPI_TENSOR_KIND_BYTES - length), "%s%lld",
                           i > 0 ? ", " : "", (long long)shape[i]);
    }
    snprintf(text + length, (size_t)(CDDPI_TENSOR_KIND_BYTES - length), "]");
    return text;
}

int cddpi_tensor_by_name(const void *left, const void *right)
{
    const char *const *const *a = left; /* both structs begin with the name */
    const char *const *const *b = right;

    return strcmp(**a, **b);
}

/* A tensor in the file that may be the missing one: its name is @p wanted after a wrapper's prefix
 * ("module."), or differs in few letters. NULL: there is no such tensor. */
static const char *find_similar(const cddp_safetensors *file, const char *wanted)
{
    enum { COMPARED = 4096 };
    size_t length = strlen(wanted);
    unsigned least = (unsigned)length / 3 + 1;
    const char *similar = NULL;
    const cddp_tensor *present;

    for (size_t i = 0; i < COMPARED && (present = cddp_safetensors_at(file, i)) != NULL; i++) {
        size_t bytes = strlen(present->name);
        unsigned distance = cddpi_edit_distance(present->name, wanted);

        if (bytes > length && present->name[bytes - length - 1] == '.' &&
            strcmp(present->name + bytes - length, wanted) == 0) {
            return present->name;
        }
        if (distance < least) {
            least = distance;
            similar = present->name;
        }
    }
    return similar;
}

static cddp_status fail_missing(const cddp_safetensors *file, const char *shown,
                                const cddp_param *wanted, const char *name)
{
    const char *similar = find_similar(file, wanted->name);
    char expected[CDDPI_TENSOR_KIND_BYTES];
    char other[CDDPI_SAFETENSORS_NAME_SHOWN];

    (void)cddpi_fail(CDDP_ERR_FORMAT, "%s: tensor \"%s\" (%s) is missing", shown, name,
                     cddpi_shape_describe(wanted->type, wanted->dims, wanted->shape, expected));
    return similar == NULL
               ? CDDP_ERR_FORMAT
               : cddpi_fail_suffix(CDDP_ERR_FORMAT, "; the nearest name in it is \"%s\"",
                                   cddpi_printable(similar, other, sizeof other));
}

static cddp_status match_one(const cddp_safetensors *file, const char *shown,
                             const cddp_param *wanted)
{
    char name[CDDPI_SAFETENSORS_NAME_SHOWN];
    char expected[CDDPI_TENSOR_KIND_BYTES];
    char present[CDDPI_TENSOR_KIND_BYTES];
    const cddp_tensor *found;
    cddp_status status;
    size_t bytes;

    if (wanted->name == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "%s: load into a tensor without name", shown);
    }
    cddpi_printable(wanted->name, name, sizeof name);
    if (wanted->dims < 0 || wanted->dims > CDDP_MAX_DIMS || cddp_type_bytes(wanted->type) == 0 ||
        !cddpi_tensor_bytes(wanted->type, wanted->dims, wanted->shape, &bytes)) {
        return cddpi_fail(
            CDDP_ERR_ARGUMENT,
            "%s: tensor \"%s\" is wanted with type %d and %d dimensions: these or its "
            "sizes are impossible",
            shown, name, (int)wanted->type, wanted->dims);
    }
    status = cddpi_flags_check(wanted->flags & ~(uint32_t)CDDP_PARAM_FROZEN,
                               CDDPI_RESERVED_OF(wanted));
    if (status != CDDP_OK) {
        return cddpi_fail_prefix(status, "%s: tensor \"%s\"", shown, name);
    }
    found = cddp_safetensors_find(file, wanted->name);
    if (found == NULL) {
        return fail_missing(file, shown, wanted, name);
    }
    if (found->type != wanted->type || found->dims != wanted->dims ||
        memcmp(found->shape, wanted->shape, (size_t)found->dims * sizeof found->shape[0]) != 0) {
        return cddpi_fail(
            CDDP_ERR_FORMAT, "%s: tensor \"%s\" is %s, but %s is wanted", shown, name,
            cddpi_shape_describe(found->type, found->dims, found->shape, present),
            cddpi_shape_describe(wanted->type, wanted->dims, wanted->shape, expected));
    }
    return CDDP_OK;
}

/* After each of the parameters was found in the file: check that no two are the same, and that the
 * file has no others. */
static cddp_status match_all(const cddp_safetensors *file, const char *shown,
                             const cddp_param **sorted, size_t count)
{
    char name[CDDPI_SAFETENSORS_NAME_SHOWN];

    for (size_t i = 1; i < count; i++) {
        if (strcmp(sorted[i - 1]->name, sorted[i]->name) == 0) {
            return cddpi_fail(CDDP_ERR_ARGUMENT, "%s: tensor \"%s\" is wanted twice", shown,
                              cddpi_printable(sorted[i]->name, name, sizeof name));
        }
    }
    for (size_t i = 0; i < cddp_safetensors_count(file); i++) {
        const cddp_tensor *present = cddp_safetensors_at(file, i);

        if (bsearch(&present, sorted, count, sizeof *sorted, cddpi_tensor_by_name) == NULL) {
            char kind[CDDPI_TENSOR_KIND_BYTES];

            return cddpi_fail(
                CDDP_ERR_FORMAT, "%s: tensor \"%s\" (%s) is one that nothing wants", shown,
                cddpi_printable(present->name, name, sizeof name),
                cddpi_shape_describe(present->type, present->dims, present->shape, kind));
        }
    }
    return CDDP_OK;
}

cddp_status cddpi_safetensors_match(const cddp_safetensors *file, const char *shown,
                                    const cddp_param *params, size_t count)
{
    const cddp_param **sorted;
    cddp_status status;

    if (count > CDDPI_BYTES_MAX / sizeof *params) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "%s: %zu tensors are too many", shown, count);
    }
    for (size_t i = 0; i < count; i++) {
        CDDPI_TRY(match_one(file, shown, &params[i]));
    }
    sorted = cddpi_zalloc_array(count, sizeof *sorted);
    CDDPI_TRY_MEMORY(sorted != NULL, "%s: no memory for %zu tensors", shown, count);
    for (size_t i = 0; i < count; i++) {
        sorted[i] = &params[i];
    }
    qsort(sorted, count, sizeof *sorted, cddpi_tensor_by_name);
    status = match_all(file, shown, sorted, count);
    cddpi_free(sorted);
    return status;
}

static cddp_status check_memory(const char *shown, const cddp_param *params, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        char name[CDDPI_SAFETENSORS_NAME_SHOWN];

        if (params[i].data == NULL && cddpi_elements(params[i].dims, params[i].shape) > 0) {
            return cddpi_fail(CDDP_ERR_ARGUMENT, "%s: tensor \"%s\" has no memory to load into",
                              shown, cddpi_printable(params[i].name, name, sizeof name));
        }
    }
    return CDDP_OK;
}

cddp_status cddpi_safetensors_fit(const cddp_safetensors *file, const char *shown,
                                  const cddp_param *params, size_t count)
{
    CDDPI_TRY(cddpi_safetensors_match(file, shown, params, count));
    return check_memory(shown, params, count);
}

cddp_status cddpi_safetensors_copy(const cddp_safetensors *file, const cddp_param *params,
                                   size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const cddp_tensor *from = cddp_safetensors_find(file, params[i].name);
        size_t bytes = cddpi_tensor_size(from);

        if (bytes > 0) {
            memcpy(params[i].data, from->data, bytes);
        }
    }
    return cddpi_safetensors_look(file);
}

cddp_status cddp_safetensors_load(const char *path, const cddp_param *params, size_t count)
{
    cddp_safetensors *file;
    cddp_status status;

    if (params == NULL && count > 0) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "safetensors_load: params is NULL");
    }
    CDDPI_TRY(cddp_safetensors_open(path, &file));
    status = cddpi_safetensors_fit(file, path, params, count);
    if (status == CDDP_OK) {
        status = cddpi_safetensors_copy(file, params, count);
    }
    cddp_safetensors_close(file);
    return status;
}

cddp_status cddpi_safetensors_load_some(const char *path, const cddp_param *params, size_t count)
{
    cddp_safetensors *file;
    cddp_status status = CDDP_OK;

    CDDPI_TRY(cddp_safetensors_open(path, &file));
    for (size_t i = 0; i < count && status == CDDP_OK; i++) {
        status = match_one(file, path, &params[i]);
    }
    status = status == CDDP_OK ? check_memory(path, params, count) : status;
    status = status == CDDP_OK ? cddpi_safetensors_copy(file, params, count) : status;
    cddp_safetensors_close(file);
    return status;
}
