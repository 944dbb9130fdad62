/* shards.c - owns the safetensors files of a model: one file, or the shards that an index lists, as
 * Hugging Face's libraries write them (model.safetensors.index.json). The index is not trusted: its
 * files must be in its own folder, and it must agree with the shards about every tensor. */
#include "base/alloc.h"
#include "base/error.h"
#include "checkpoint/safetensors.h"
#include "nn/weights/weights_file.h"

#include <string.h>

enum { INDEX_BYTES_MAX = 1 << 24, SHARDS_MAX = 4096 };

/* An index that is being read. */
struct index {
    const char *path;
    json_t *root;
    json_t *map;    /* "weight_map" of the root: tensor to file */
    json_t *places; /* a file's number, by its name */
    struct cddpi_weights_files *files;
};

bool cddpi_weights_is_index(const char *path)
{
    return cddpi_name_ends_with(path, ".index.json");
}

static cddp_status no_memory(const char *path)
{
    return cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory for its shards", path);
}

static const char *shown_name(const char *name, char buffer[CDDPI_SAFETENSORS_NAME_SHOWN])
{
    return cddpi_printable(name, buffer, CDDPI_SAFETENSORS_NAME_SHOWN);
}

/* A file in the index's folder: the name must not contain a path. */
static bool is_plain_name(const char *name)
{
    for (const char *c = name; *c != '\0'; c++) {
        if (*c == '/' || (unsigned char)*c < 0x20 || *c == 0x7f) {
            return false;
        }
    }
    return name[0] != '\0' && name[0] != '.';
}

/* Assign a number to the file of one tensor, unless the file has one. */
static cddp_status add_file(struct index *index, const char *tensor, const json_t *file)
{
    const char *name = json_string_value(file);
    char shown_tensor[CDDPI_SAFETENSORS_NAME_SHOWN];
    char shown[CDDPI_SAFETENSORS_NAME_SHOWN];

    if (name == NULL) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s: weight_map: the file of tensor \"%s\" is not a string", index->path,
                          shown_name(tensor, shown_tensor));
    }
    if (!is_plain_name(name)) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s: weight_map: \"%s\", the file of tensor \"%s\", is not the name of a "
                          "file beside it",
                          index->path, shown_name(name, shown), shown_name(tensor, shown_tensor));
    }
    if (json_object_get(index->places, name) != NULL) {
        return CDDP_OK;
    }
    if (index->files->count == SHARDS_MAX) {
        return cddpi_fail(CDDP_ERR_FORMAT, "%s: it names more than %d files", index->path,
                          SHARDS_MAX);
    }
    if (json_object_set_new(index->places, name, json_integer((json_int_t)index->files->count)) !=
        0) {
        return no_memory(index->path);
    }
    index->files->count++;
    return CDDP_OK;
}

static cddp_status read_index(struct index *index)
{
    const char *tensor;
    json_t *file;

    CDDPI_TRY(cddpi_weights_read_json(index->path, INDEX_BYTES_MAX, &index->root));
    index->map = json_object_get(index->root, "weight_map");
    if (!json_is_object(index->map) || json_object_size(index->map) == 0) {
        return cddpi_fail(CDDP_ERR_FORMAT,
                          "%s: it has no weight_map, or one that names no tensor: it is not the "
                          "index of safetensors files",
                          index->path);
    }
    index->places = json_object();
    if (index->places == NULL) {
        return no_memory(index->path);
    }
    json_object_foreach(index->map, tensor, file)
    {
        CDDPI_TRY(add_file(index, tensor, file));
    }
    return CDDP_OK;
}

/* Open the file @p name, which has number @p place. */
static cddp_status open_shard(struct index *index, const char *name, size_t place)
{
    struct cddpi_weights_files *files = index->files;
    char shown[CDDPI_SAFETENSORS_NAME_SHOWN];
    cddp_status status;

    files->paths[place] = cddpi_weights_beside(index->path, name);
    if (files->paths[place] == NULL) {
        return no_memory(index->path);
    }
    status = cddp_safetensors_open(files->paths[place], &files->files[place]);
    if (status == CDDP_ERR_NOT_FOUND) {
        return cddpi_fail(status,
                          "%s: the shard %s that it names, one of %zu, is not beside it: fetch the "
                          "whole folder",
                          index->path, shown_name(name, shown), files->count);
    }
    return status;
}

static cddp_status open_shards(struct index *index)
{
    struct cddpi_weights_files *files = index->files;
    const char *name;
    json_t *place;

    files->files = cddpi_zalloc_array(files->count, sizeof *files->files);
    files->paths = cddpi_zalloc_array(files->count, sizeof *files->paths);
    if (files->files == NULL || files->paths == NULL) {
        return no_memory(index->path);
    }
    json_object_foreach(index->places, name, place)
    {
        CDDPI_TRY(open_shard(index, name, (size_t)json_integer_value(place)));
    }
    return CDDP_OK;
}

/* Check that each tensor of the index is in the file that the index says. */
static cddp_status check_map(const struct index *index)
{
    char shown_tensor[CDDPI_SAFETENSORS_NAME_SHOWN];
    char shown[CDDPI_SAFETENSORS_NAME_SHOWN];
    const char *tensor;
    json_t *file;

    json_object_foreach(index->map, tensor, file)
    {
        const char *name = json_string_value(file);
        size_t place = (size_t)json_integer_value(json_object_get(index->places, name));

        if (cddp_safetensors_find(index->files->files[place], tensor) == NULL) {
            return cddpi_fail(
                CDDP_ERR_FORMAT,
                "%s: it says that tensor \"%s\" is in %s, which has none of that name", index->path,
                shown_name(tensor, shown_tensor), shown_name(name, shown));
        }
    }
    return CDDP_OK;
}

/* Check that no file has more tensors than that, so no tensor occurs twice. */
static cddp_status check_shard(const struct index *index, size_t place)
{
    const cddp_safetensors *file = index->files->files[place];
    const char *path = index->files->paths[place];
    char shown_tensor[CDDPI_SAFETENSORS_NAME_SHOWN];
    char shown[CDDPI_SAFETENSORS_NAME_SHOWN];
    const cddp_tensor *tensor;

    for (size_t i = 0; (tensor = cddp_safetensors_at(file, i)) != NULL; i++) {
        const char *name = json_string_value(json_object_get(index->map, tensor->name));

        if (name == NULL) {
            return cddpi_fail(CDDP_ERR_FORMAT, "%s: tensor \"%s\" is in it, but not in %s", path,
                              shown_name(tensor->name, shown_tensor), index->path);
        }
        if ((size_t)json_integer_value(json_object_get(index->places, name)) != place) {
            return cddpi_fail(
                CDDP_ERR_FORMAT, "%s: tensor \"%s\" is in it, but %s says that it is in %s", path,
                shown_name(tensor->name, shown_tensor), index->path, shown_name(name, shown));
        }
    }
    return CDDP_OK;
}

static cddp_status open_index(const char *path, struct cddpi_weights_files *files)
{
    struct index index = {.path = path, .files = files};
    cddp_status status;

    CDDPI_TRY_GOTO(done, status, read_index(&index));
    CDDPI_TRY_GOTO(done, status, open_shards(&index));
    CDDPI_TRY_GOTO(done, status, check_map(&index));
    for (size_t i = 0; i < files->count; i++) {
        CDDPI_TRY_GOTO(done, status, check_shard(&index, i));
    }
done:
    if (files->files == NULL) {
        files->count = 0;
    }
    json_decref(index.places);
    json_decref(index.root);
    return status;
}

static cddp_status open_one(const char *path, struct cddpi_weights_files *files)
{
    files->files = cddpi_zalloc_array(1, sizeof *files->files);
    files->paths = cddpi_zalloc_array(1, sizeof *files->paths);
    if (files->files == NULL || files->paths == NULL) {
        return no_memory(path);
    }
    files->count = 1;
    files->paths[0] = cddpi_strdup(path);
    return files->paths[0] != NULL ? cddp_safetensors_open(path, &files->files[0])
                                   : no_memory(path);
}

cddp_status cddpi_weights_files_open(const char *path, struct cddpi_weights_files *files)
{
    return cddpi_weights_is_index(path) ? open_index(path, files) : open_one(path, files);
}

void cddpi_weights_files_close(struct cddpi_weights_files *files)
{
    for (size_t i = 0; files->paths != NULL && i < files->count; i++) {
        cddpi_free(files->paths[i]);
    }
    for (size_t i = 0; files->files != NULL && i < files->count; i++) {
        cddp_safetensors_close(files->files[i]);
    }
    cddpi_free(files->files);
    cddpi_free(files->paths);
    memset(files, 0, sizeof *files);
}

cddp_status cddpi_weights_files_look(const struct cddpi_weights_files *files)
{
    for (size_t i = 0; i < files->count; i++) {
        CDDPI_TRY(files->files[i] != NULL ? cddpi_safetensors_look(files->files[i]) : CDDP_OK);
    }
    return CDDP_OK;
}
