/* names.c - knows which prefixes of a tensor's name belong to wrappers, and words the error for a
 * missing name. */
#include "nn/weights/weights_file.h"

#include "base/alloc.h"
#include "base/choices.h"
#include "base/error.h"
#include "checkpoint/safetensors.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { COMPARED = 4096, SHOWN = 3 };

/* No module of a GPT-2 itself has one of these names. */
static bool is_wrapper(const char *part, size_t bytes)
{
    static const char *const wrappers[] = {
        "module", "_orig_mod",  "_fsdp_wrapped_module", "_checkpoint_wrapped_module",
        "model",  "transformer"};

    for (size_t i = 0; i < sizeof wrappers / sizeof *wrappers; i++) {
        if (strlen(wrappers[i]) == bytes && memcmp(wrappers[i], part, bytes) == 0) {
            return true;
        }
    }
    return false;
}

/* Copy @p name without its wrappers to @p out, which has room for all of it. Returns the bytes
 * written. The last component is the tensor's own and is always kept. */
static size_t unwrap(const char *name, char *out)
{
    size_t used = 0;

    for (const char *dot; (dot = strchr(name, '.')) != NULL; name = dot + 1) {
        size_t bytes = (size_t)(dot - name);

        if (!is_wrapper(name, bytes)) {
            memcpy(out + used, name, bytes + 1);
            used += bytes + 1;
        }
    }
    memcpy(out + used, name, strlen(name) + 1);
    return used + strlen(name) + 1;
}

static int compare_rows(const void *left, const void *right)
{
    const struct cddpi_named_tensor *a = left;
    const struct cddpi_named_tensor *b = right;
    int order = strcmp(a->name, b->name);

    return order != 0 ? order : strcmp(a->tensor->name, b->tensor->name);
}

static void fill_names(const struct cddpi_weights_files *files, struct cddpi_weights_names *names)
{
    const cddp_tensor *tensor;
    size_t count = 0;
    size_t used = 0;

    for (size_t f = 0; f < files->count; f++) {
        for (size_t i = 0; (tensor = cddp_safetensors_at(files->files[f], i)) != NULL; i++) {
            names->rows[count++] = (struct cddpi_named_tensor){names->text + used, tensor, f};
            used += unwrap(tensor->name, names->text + used);
        }
    }
    qsort(names->rows, count, sizeof *names->rows, compare_rows);
}

static cddp_status check_distinct(const struct cddpi_weights_names *names, const char *path)
{
    char one[CDDPI_SAFETENSORS_NAME_SHOWN];
    char other[CDDPI_SAFETENSORS_NAME_SHOWN];

    for (size_t i = 1; i < names->count; i++) {
        if (strcmp(names->rows[i - 1].name, names->rows[i].name) == 0) {
            return cddpi_fail(CDDP_ERR_FORMAT,
                              "%s: tensors \"%s\" and \"%s\" are one and the same of a GPT-2", path,
                              cddpi_printable(names->rows[i - 1].tensor->name, one, sizeof one),
                              cddpi_printable(names->rows[i].tensor->name, other, sizeof other));
        }
    }
    return CDDP_OK;
}

cddp_status cddpi_weights_names_init(const struct cddpi_weights_files *files, const char *path,
                                     struct cddpi_weights_names *out)
{
    struct cddpi_weights_names names = {NULL, 0, NULL};
    const cddp_tensor *tensor;
    size_t bytes = 0;
    cddp_status status;

    for (size_t f = 0; f < files->count; f++) {
        for (size_t i = 0; (tensor = cddp_safetensors_at(files->files[f], i)) != NULL; i++) {
            bytes += strlen(tensor->name) + 1;
            names.count++;
        }
    }
    names.rows = cddpi_zalloc_array(names.count + 1, sizeof *names.rows);
    names.text = cddpi_zalloc(bytes + 1);
    if (names.rows == NULL || names.text == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory for %zu tensors", path, names.count);
    } else {
        fill_names(files, &names);
        status = check_distinct(&names, path);
    }
    if (status != CDDP_OK) {
        cddpi_weights_names_fini(&names);
        return status;
    }
    *out = names;
    return CDDP_OK;
}

void cddpi_weights_names_fini(struct cddpi_weights_names *names)
{
    cddpi_free(names->rows);
    cddpi_free(names->text);
    *names = (struct cddpi_weights_names){NULL, 0, NULL};
}

static int compare_name(const void *key, const void *row)
{
    return strcmp(key, ((const struct cddpi_named_tensor *)row)->name);
}

const struct cddpi_named_tensor *cddpi_weights_names_find(const struct cddpi_weights_names *names,
                                                          const char *name)
{
    return bsearch(name, names->rows, names->count, sizeof *names->rows, compare_name);
}

/* Whether the file is one of several shards, so that other tensors are in files beside it. */
static bool is_shard(const char *path)
{
    const char *of = strstr(path, "-of-");

    while (of != NULL && strstr(of + 1, "-of-") != NULL) {
        of = strstr(of + 1, "-of-");
    }
    return of != NULL && strchr(of, '/') == NULL && of[4] >= '0' && of[4] <= '9';
}

/* The tensor with the most similar name, if one is similar at all. */
static const cddp_tensor *find_nearest(const struct cddpi_weights_names *names, const char *name)
{
    const cddp_tensor *nearest = NULL;
    unsigned least = (unsigned)strlen(name) / 3 + 1;

    for (size_t i = 0; i < names->count && i < COMPARED; i++) {
        unsigned distance = cddpi_edit_distance(names->rows[i].name, name);

        if (distance < least) {
            least = distance;
            nearest = names->rows[i].tensor;
        }
    }
    return nearest;
}

cddp_status cddpi_weights_names_missing(const struct cddpi_weights_names *names, const char *path,
                                        const char *name)
{
    const cddp_tensor *nearest = find_nearest(names, name);
    char shown[CDDPI_SAFETENSORS_NAME_SHOWN];
    char list[SHOWN * (CDDPI_SAFETENSORS_NAME_SHOWN + 4) + 1] = "";
    int used = 0;

    if (is_shard(path)) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s: tensor \"%s\" is missing: the file is one shard of several: name "
                          "their folder, or the index in it",
                          path, name);
    }
    if (names->count == 0) {
        return cddpi_fail(CDDP_ERR_FORMAT, "%s: tensor \"%s\" is missing: there is none at all",
                          path, name);
    }
    if (nearest != NULL) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s: tensor \"%s\" is missing; the nearest name in it is \"%s\"", path,
                          name, cddpi_printable(nearest->name, shown, sizeof shown));
    }
    for (size_t i = 0; i < names->count && i < SHOWN; i++) {
        used += snprintf(list + used, sizeof list - (size_t)used, "%s\"%s\"", i > 0 ? ", " : "",
                         cddpi_printable(names->rows[i].tensor->name, shown, sizeof shown));
    }
    return cddpi_fail(CDDP_ERR_FORMAT,
                      "%s: tensor \"%s\" is missing, and none has a name like it: it holds %s%s",
                      path, name, list, names->count > SHOWN ? " and others" : "");
}
