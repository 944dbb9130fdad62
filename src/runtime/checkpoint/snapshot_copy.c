/* snapshot_copy.c - owns copies of snapshots, which are written while the originals change. */
#include "base/alloc.h"
#include "base/error.h"
#include "checkpoint/saving.h"

#include <string.h>

/* Where the next part of a copy goes: data, tensors, and texts follow each other in one block. */
struct copy_place {
    unsigned char *data; /* NULL: it stays where it is */
    cddp_tensor *tensors;
    char *texts;
};

static size_t text_bytes(const char *text)
{
    return text != NULL ? strlen(text) + 1 : 0;
}

/* Add the bytes that copies of the data, and of the names, of @p tensors take. */
static void add_bytes(const cddp_tensor *tensors, size_t count, size_t *data, size_t *texts)
{
    for (size_t i = 0; i < count; i++) {
        *data += cddpi_align(cddpi_tensor_size(&tensors[i]));
        *texts += text_bytes(tensors[i].name);
    }
}

/* The bytes of each part. There is a tensor more than needed, so that no part is empty. */
static void measure(const cddp_snapshot *snapshot, size_t *data, size_t *tensors, size_t *texts)
{
    *data = 0;
    *texts = text_bytes(snapshot->state_json);
    *tensors = (snapshot->model_count + snapshot->optimizer_count + 1) * sizeof(cddp_tensor);
    add_bytes(snapshot->model, snapshot->model_count, data, texts);
    add_bytes(snapshot->optimizer, snapshot->optimizer_count, data, texts);
}

size_t cddpi_snapshot_copy_bytes(const cddp_snapshot *snapshot)
{
    size_t data, tensors, texts;

    measure(snapshot, &data, &tensors, &texts);
    return data + tensors + texts;
}

static const char *copy_text(const char *text, struct copy_place *to)
{
    size_t bytes = text_bytes(text);
    char *copy = to->texts;

    to->texts += bytes;
    return bytes > 0 ? memcpy(copy, text, bytes) : NULL;
}

/* Copy the tensors of file @p file, and return the copies. */
static cddp_status copy_tensors(const cddp_tensor *from, size_t count, int file,
                                const struct cddpi_snapshot_source *source, struct copy_place *to,
                                const cddp_tensor **out)
{
    cddp_status status = CDDP_OK;

    *out = to->tensors;
    for (size_t i = 0; i < count && status == CDDP_OK; i++) {
        size_t bytes = cddpi_tensor_size(&from[i]);
        cddp_tensor *tensor = to->tensors++;

        *tensor = from[i];
        tensor->name = copy_text(from[i].name, to);
        if (to->data == NULL) {
            continue;
        }
        tensor->data = bytes > 0 ? to->data : NULL;
        if (bytes > 0 && from[i].data != NULL) {
            memcpy(to->data, from[i].data, bytes);
        } else if (bytes > 0) {
            status = source->fetch(source->contexts[file], i, to->data);
        }
        to->data += cddpi_align(bytes);
    }
    return status;
}

cddp_status cddpi_snapshot_copy_take(struct cddpi_snapshot_copy *copy, const cddp_snapshot *from,
                                     const struct cddpi_snapshot_source *source)
{
    size_t data, tensors, texts;
    struct copy_place to;

    measure(from, &data, &tensors, &texts);
    data = copy->shared != NULL ? 0 : data;
    if (copy->memory == NULL || copy->bytes < data + tensors + texts) {
        cddpi_free(copy->memory);
        copy->bytes = data + tensors + texts;
        copy->memory = cddpi_alloc_aligned(copy->bytes);
        CDDPI_TRY_MEMORY(copy->memory != NULL,
                         "snapshot_write: no memory for a copy of %zu tensors with %zu bytes",
                         from->model_count + from->optimizer_count, data);
    }
    to.data = copy->shared != NULL ? NULL : copy->memory;
    to.tensors = (cddp_tensor *)(void *)(copy->memory + data);
    to.texts = (char *)(copy->memory + data + tensors);
    copy->snapshot = *from;
    copy->snapshot.state_json = copy_text(from->state_json, &to);
    CDDPI_TRY(copy_tensors(from->model, from->model_count, CDDPI_SNAPSHOT_MODEL, source, &to,
                           &copy->snapshot.model));
    return copy_tensors(from->optimizer, from->optimizer_count, CDDPI_SNAPSHOT_OPTIMIZER, source,
                        &to, &copy->snapshot.optimizer);
}

void cddpi_snapshot_copy_release(struct cddpi_snapshot_copy *copy)
{
    cddpi_free(copy->memory);
    *copy = (struct cddpi_snapshot_copy){.memory = NULL};
}
