/* snapshot_read.c - owns finding the newest complete snapshot, and loading a snapshot. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/folder.h"
#include "checkpoint/safetensors.h"
#include "checkpoint/snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* Check that the file exists and has the size and checksum that state.json says. */
static cddp_status check_file(const char *path, const json_t *expected)
{
    const char *hex = json_string_value(json_object_get(expected, "blake2b"));
    json_int_t bytes = json_integer_value(json_object_get(expected, "bytes"));
    char present_hex[CDDPI_DIGEST_HEX_BYTES];
    uint64_t present;

    if (hex == NULL) {
        return cddpi_fail(CDDP_ERR_FORMAT, "%s: state.json does not know it", path);
    }
    CDDPI_TRY(cddpi_file_digest(path, &present, present_hex));
    if (present != (uint64_t)bytes) {
        return cddpi_fail(CDDP_ERR_FORMAT, "%s: %" PRIu64 " bytes, but %lld were written", path,
                          present, (long long)bytes);
    }
    if (strcmp(present_hex, hex) != 0) {
        return cddpi_fail(CDDP_ERR_FORMAT, "%s: its contents do not match their checksum: damaged",
                          path);
    }
    return CDDP_OK;
}

/* The path of file @p index of the snapshot at @p path. NULL: no memory, and an error text is set.
 */
static char *file_path(const char *path, int index)
{
    char *name = cddpi_format("%s/%s", path, cddpi_snapshot_files[index]);

    if (name == NULL) {
        (void)cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory for a name", path);
    }
    return name;
}

static cddp_status read_document(const char *path, json_t **out)
{
    char *name = file_path(path, CDDPI_SNAPSHOT_STATE);
    cddp_status status = name != NULL ? cddpi_state_read(name, out) : CDDP_ERR_NO_MEMORY;

    cddpi_free(name);
    return status;
}

/* Check the checksum of data file @p index of the snapshot at @p path, and open it. */
static cddp_status open_checked(const char *path, const json_t *document, int index,
                                cddp_safetensors **out)
{
    char *name = file_path(path, index);
    cddp_status status;

    if (name == NULL) {
        return CDDP_ERR_NO_MEMORY;
    }
    status = check_file(
        name, json_object_get(json_object_get(document, "files"), cddpi_snapshot_files[index]));
    status = status == CDDP_OK ? cddp_safetensors_open(name, out) : status;
    cddpi_free(name);
    return status;
}

/* Check the first @p files data files, and the step unless @p step is NULL. */
static cddp_status verify(const char *path, const uint64_t *step, int files)
{
    json_t *document;
    cddp_status status = CDDP_OK;

    CDDPI_TRY(read_document(path, &document));
    if (step != NULL && (uint64_t)json_integer_value(json_object_get(document, "step")) != *step) {
        status = cddpi_fail(CDDP_ERR_FORMAT, "%s: its state is that of step %lld", path,
                            (long long)json_integer_value(json_object_get(document, "step")));
    }
    for (int i = 0; i < files && status == CDDP_OK; i++) {
        cddp_safetensors *file = NULL;

        status = open_checked(path, document, i, &file);
        cddp_safetensors_close(file);
    }
    json_decref(document);
    return status;
}

cddp_status cddpi_snapshot_verify(const char *path, uint64_t step)
{
    return verify(path, &step, CDDPI_SNAPSHOT_DATA_FILES);
}

cddp_status cddpi_snapshot_verify_model(const char *path)
{
    return verify(path, NULL, CDDPI_SNAPSHOT_MODEL + 1);
}

/* Append the text of the last failure to @p skipped, as a line. */
static cddp_status note_skipped(char **skipped)
{
    char *text = cddpi_format("%s%s%s", *skipped != NULL ? *skipped : "",
                              *skipped != NULL ? "\n" : "", cddp_last_error());

    CDDPI_TRY_MEMORY(text != NULL, "find a checkpoint: no memory for a line of text");
    cddpi_free(*skipped);
    *skipped = text;
    return CDDP_OK;
}

bool cddpi_snapshot_is_broken(cddp_status status)
{
    int error_number = cddpi_last_errno();

    return status == CDDP_ERR_FORMAT || status == CDDP_ERR_NOT_FOUND ||
           (status == CDDP_ERR_IO && (error_number == EIO || error_number == ENOTDIR ||
                                      error_number == ELOOP || error_number == EISDIR));
}

/* Return the path of the first snapshot in @p entries whose first @p files data files are whole.
 * Broken ones are noted in @p skipped; any other failure ends the search. */
static cddp_status find_whole(const char *dir, const struct cddpi_snapshot_entry *entries,
                              size_t count, int files, char **out_path, char **skipped)
{
    for (size_t i = 0; i < count; i++) {
        char *path;
        cddp_status status;

        if (entries[i].kind != CDDPI_SNAPSHOT_WHOLE && entries[i].kind != CDDPI_SNAPSHOT_OLD) {
            continue;
        }
        path = cddpi_format("%s/%s", dir, entries[i].name);
        if (path == NULL) {
            return cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory for a name", dir);
        }
        status = verify(path, &entries[i].step, files);
        if (status == CDDP_OK) {
            *out_path = path;
            return CDDP_OK;
        }
        cddpi_free(path);
        if (!cddpi_snapshot_is_broken(status)) {
            return status;
        }
        CDDPI_TRY(note_skipped(skipped));
    }
    if (*skipped != NULL) {
        return cddpi_fail(CDDP_ERR_NOT_FOUND, "%s: no checkpoint is complete:\n%s", dir, *skipped);
    }
    return cddpi_fail(CDDP_ERR_NOT_FOUND, "%s: there are no checkpoints", dir);
}

static cddp_status find(const char *dir, int files, char **out_path, char **out_skipped)
{
    struct cddpi_snapshot_entry *entries;
    size_t count;
    char *skipped = NULL;
    cddp_status status;
    int fd;

    if (dir == NULL || out_path == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "snapshot_find: %s is NULL",
                          dir == NULL ? "dir" : "out_path");
    }
    fd = cddpi_folder_open_fd(AT_FDCWD, dir, true);
    if (fd < 0) {
        return cddpi_fail_errno(errno == ENOENT ? CDDP_ERR_NOT_FOUND : CDDP_ERR_IO, errno,
                                "open the folder %s", dir);
    }
    status = cddpi_snapshot_list(fd, dir, &entries, &count);
    close(fd);
    if (status != CDDP_OK) {
        return status;
    }
    status = find_whole(dir, entries, count, files, out_path, &skipped);
    if (status == CDDP_OK && out_skipped != NULL) {
        *out_skipped = skipped;
    } else {
        cddpi_free(skipped);
    }
    cddpi_free(entries);
    return status;
}

cddp_status cddp_snapshot_find(const char *dir, char **out_path, char **out_skipped)
{
    return find(dir, CDDPI_SNAPSHOT_DATA_FILES, out_path, out_skipped);
}

cddp_status cddpi_snapshot_find_model(const char *dir, char **out_path, char **out_skipped)
{
    return find(dir, CDDPI_SNAPSHOT_MODEL + 1, out_path, out_skipped);
}

cddp_status cddp_snapshot_read_state(const char *path, char **out_json, uint64_t *out_step)
{
    json_t *document;
    char *text;
    char *copy;

    if (path == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "snapshot_read_state: path is NULL");
    }
    CDDPI_TRY(read_document(path, &document));
    text = json_dumps(json_object_get(document, "state"), JSON_COMPACT);
    copy = cddpi_strdup(text); /* the caller releases it with cddp's free, not with jansson's */
    free(text);
    if (copy != NULL && out_step != NULL) {
        *out_step = (uint64_t)json_integer_value(json_object_get(document, "step"));
    }
    json_decref(document);
    CDDPI_TRY_MEMORY(copy != NULL, "%s: no memory for its state", path);
    if (out_json != NULL) {
        *out_json = copy;
    } else {
        cddpi_free(copy);
    }
    return CDDP_OK;
}

cddp_status cddpi_snapshot_open(const char *path, const struct cddpi_snapshot_params *into,
                                cddp_safetensors *out[CDDPI_SNAPSHOT_DATA_FILES])
{
    const cddp_param *params[] = {
        [CDDPI_SNAPSHOT_MODEL] = into->model, [CDDPI_SNAPSHOT_OPTIMIZER] = into->optimizer};
    const size_t counts[] = {[CDDPI_SNAPSHOT_MODEL] = into->model_count,
                             [CDDPI_SNAPSHOT_OPTIMIZER] = into->optimizer_count};
    json_t *document;
    cddp_status status = CDDP_OK;

    memset(out, 0, CDDPI_SNAPSHOT_DATA_FILES * sizeof(cddp_safetensors *));
    CDDPI_TRY(read_document(path, &document));
    for (int i = 0; status == CDDP_OK && i < CDDPI_SNAPSHOT_DATA_FILES; i++) {
        status = open_checked(path, document, i, &out[i]);
    }
    for (int i = 0; status == CDDP_OK && i < CDDPI_SNAPSHOT_DATA_FILES; i++) {
        status = cddpi_safetensors_match(out[i], path, params[i], counts[i]);
    }
    for (int i = 0; status != CDDP_OK && i < CDDPI_SNAPSHOT_DATA_FILES; i++) {
        cddp_safetensors_close(out[i]);
        out[i] = NULL;
    }
    json_decref(document);
    return status;
}

cddp_status cddp_snapshot_load(const char *path, const cddp_param *model, size_t model_count,
                               const cddp_param *optimizer, size_t optimizer_count)
{
    const struct cddpi_snapshot_params into = {model, model_count, optimizer, optimizer_count};
    cddp_safetensors *files[CDDPI_SNAPSHOT_DATA_FILES];
    cddp_status status;

    if (path == NULL || (model == NULL && model_count > 0) ||
        (optimizer == NULL && optimizer_count > 0)) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "snapshot_load: %s is NULL",
                          path == NULL                       ? "path"
                          : model == NULL && model_count > 0 ? "model"
                                                             : "optimizer");
    }
    CDDPI_TRY(cddpi_snapshot_open(path, &into, files));
    CDDPI_TRY_GOTO(done, status, cddpi_safetensors_fit(files[0], path, model, model_count));
    CDDPI_TRY_GOTO(done, status, cddpi_safetensors_fit(files[1], path, optimizer, optimizer_count));
    CDDPI_TRY_GOTO(done, status, cddpi_safetensors_copy(files[0], model, model_count));
    status = cddpi_safetensors_copy(files[1], optimizer, optimizer_count);

done:
    for (int i = 0; i < CDDPI_SNAPSHOT_DATA_FILES; i++) {
        cddp_safetensors_close(files[i]);
    }
    return status;
}
