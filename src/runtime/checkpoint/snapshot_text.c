/* snapshot_text.c - owns the two text files of snapshots: the document in state.json, with its
 * checksum and what makes it valid, and `latest`. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/folder.h"
#include "base/log.h"
#include "base/types.h"
#include "checkpoint/snapshot.h"

#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static bool digest_document(const json_t *document, char out_hex[CDDPI_DIGEST_HEX_BYTES])
{
    unsigned char digest[CDDPI_DIGEST_BYTES];
    char *text = json_dumps(document, JSON_COMPACT | JSON_SORT_KEYS);

    if (text == NULL || sodium_init() < 0) {
        free(text);
        return false;
    }
    crypto_generichash(digest, sizeof digest, (const unsigned char *)text, strlen(text), NULL, 0);
    sodium_bin2hex(out_hex, CDDPI_DIGEST_HEX_BYTES, digest, sizeof digest);
    free(text); /* jansson allocated it */
    return true;
}

bool cddpi_state_seal(json_t *document)
{
    char hex[CDDPI_DIGEST_HEX_BYTES];

    (void)json_object_del(document, "blake2b"); /* from an earlier attempt to write */
    return digest_document(document, hex) &&
           json_object_set_new(document, "blake2b", json_string(hex)) == 0;
}

/* Remove the checksum from the document. Returns whether it was right. */
static bool unseal(json_t *document)
{
    char present[CDDPI_DIGEST_HEX_BYTES];
    char hex[CDDPI_DIGEST_HEX_BYTES];
    const char *text = json_string_value(json_object_get(document, "blake2b"));

    if (text == NULL || strlen(text) >= sizeof present) {
        return false;
    }
    memcpy(present, text, strlen(text) + 1);
    return json_object_del(document, "blake2b") == 0 && digest_document(document, hex) &&
           strcmp(hex, present) == 0;
}

static cddp_status parse(const char *path, json_t **out)
{
    cddp_status status = CDDP_OK;
    json_error_t error;
    struct stat info;
    int fd = -1;

    CDDPI_TRY(cddpi_checkpoint_open(path, &fd));
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode) ||
        info.st_size > CDDPI_STATE_BYTES_MAX + 1) {
        status = cddpi_fail(CDDP_ERR_FORMAT, "%s: not a regular file of at most %d bytes", path,
                            CDDPI_STATE_BYTES_MAX);
    } else {
        json_t *document = (errno = 0, json_loadfd(fd, JSON_REJECT_DUPLICATES, &error));
        int error_number = errno;
        char shown[JSON_ERROR_TEXT_LENGTH];

        if (document != NULL) {
            *out = document;
        } else if (error_number != 0 && error_number != ERANGE) { /* ERANGE: bad number */
            status = cddpi_fail_errno(CDDP_ERR_IO, error_number, "read %s", path);
        } else if (json_error_code(&error) == json_error_out_of_memory) {
            status = cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory for its contents", path);
        } else {
            status = cddpi_fail(CDDP_ERR_FORMAT, "%s: not valid JSON: line %d: %s", path,
                                error.line, cddpi_printable(error.text, shown, sizeof shown));
        }
    }
    close(fd);
    return status;
}

static cddp_status check(const char *path, json_t *document)
{
    const char *format = json_string_value(json_object_get(document, "format"));
    json_int_t version = json_integer_value(json_object_get(document, "version"));

    if (format == NULL || strcmp(format, "cddp snapshot") != 0) {
        return cddpi_fail(CDDP_ERR_FORMAT, "%s: not the state of a cddp checkpoint", path);
    }
    if (version != CDDPI_STATE_VERSION) {
        return cddpi_fail(CDDP_ERR_FORMAT, "%s: version %lld, but this cddp reads version %d", path,
                          (long long)version, CDDPI_STATE_VERSION);
    }
    if (!unseal(document)) {
        return cddpi_fail(CDDP_ERR_FORMAT, "%s: does not match its own checksum: damaged or edited",
                          path);
    }
    if (!json_is_integer(json_object_get(document, "step")) ||
        json_integer_value(json_object_get(document, "step")) < 0 ||
        !json_is_object(json_object_get(document, "files")) ||
        !json_is_object(json_object_get(document, "state"))) {
        return cddpi_fail(CDDP_ERR_FORMAT, "%s: step, files or state are missing", path);
    }
    return CDDP_OK;
}

cddp_status cddpi_state_read(const char *path, json_t **out)
{
    json_t *document;
    cddp_status status;

    CDDPI_TRY(parse(path, &document));
    status = check(path, document);
    if (status != CDDP_OK) {
        json_decref(document);
        return status;
    }
    *out = document;
    return CDDP_OK;
}

cddp_status cddpi_snapshot_read(const char *dir, const cddp_snapshot *snapshot, cddp_snapshot *out)
{
    if (dir == NULL || snapshot == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "snapshot_write: the %s is NULL",
                          dir == NULL ? "dir" : "snapshot");
    }
    *out = (cddp_snapshot)CDDP_SNAPSHOT_INIT;
    CDDPI_TRY(cddpi_struct_read("snapshot", "CDDP_SNAPSHOT_INIT", snapshot, sizeof *out, out));
    if ((out->model == NULL && out->model_count > 0) ||
        (out->optimizer == NULL && out->optimizer_count > 0)) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "snapshot_write: the snapshot's %s is NULL",
                          out->model == NULL && out->model_count > 0 ? "model" : "optimizer");
    }
    if (dir[0] == '\0' || out->step > INT64_MAX) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "write a checkpoint: no folder, or a step above 2^63 - 1");
    }
    return CDDP_OK;
}

cddp_status cddpi_snapshot_write_text(int dir, const char *name, const char *shown,
                                      const char *text)
{
    struct cddpi_writer writer;
    cddp_status status;

    CDDPI_TRY(cddpi_writer_open(&writer, dir, name, shown));
    status = cddpi_writer_put_line(&writer, text);
    status = status == CDDP_OK ? cddpi_writer_finish(&writer) : status;
    cddpi_writer_close(&writer);
    return status;
}

cddp_status cddpi_pointer_write(int dir, const char *shown, const char *name)
{
    char beside[CDDPI_SNAPSHOT_NAME_BYTES];
    char *path;
    cddp_status status;

    cddpi_snapshot_name(CDDPI_SNAPSHOT_POINTER, 0, beside);
    path = cddpi_format("%s/%s", shown, beside);
    if (path == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory for a name", shown);
    }
    status = cddpi_snapshot_write_text(dir, beside, path, name);
    cddpi_free(path);
    return status;
}

cddp_status cddpi_pointer_move(int dir, const char *shown)
{
    char beside[CDDPI_SNAPSHOT_NAME_BYTES];

    cddpi_snapshot_name(CDDPI_SNAPSHOT_POINTER, 0, beside);
    if (cddpi_file_renameat(dir, beside, "latest") != 0) {
        return cddpi_fail_errno(CDDP_ERR_IO, errno, "rename %s/%s to latest", shown, beside);
    }
    if (cddpi_file_fsync(dir) != 0) {
        /* only a warning: the snapshot itself is flushed, and it is found without `latest` */
        cddpi_log(CDDPI_LOG_WARN, "checkpoint: flush the folder %s: %s", shown, strerror(errno));
    }
    return CDDP_OK;
}

void cddpi_pointer_discard(int dir)
{
    char beside[CDDPI_SNAPSHOT_NAME_BYTES];

    cddpi_snapshot_name(CDDPI_SNAPSHOT_POINTER, 0, beside);
    (void)cddpi_file_unlinkat(dir, beside, 0);
}

/* Whether `latest` contains @p name and a newline. */
static bool points_to(int dir, const char *name)
{
    char text[CDDPI_SNAPSHOT_NAME_BYTES + 1];
    size_t length = strlen(name);
    ssize_t bytes = -1;
    int fd = cddpi_file_open_read_at(dir, "latest");

    if (fd >= 0) {
        bytes = read(fd, text, sizeof text);
        close(fd);
    }
    return bytes == (ssize_t)length + 1 && memcmp(text, name, length) == 0 && text[length] == '\n';
}

void cddpi_pointer_set(int dir, const char *shown, const char *name)
{
    cddp_status status;

    if (points_to(dir, name)) {
        return;
    }
    status = cddpi_pointer_write(dir, shown, name);
    if (status != CDDP_OK && cddpi_snapshot_wants_room()) {
        cddpi_pointer_discard(dir);
        (void)cddpi_file_unlinkat(dir, "latest", 0); /* frees space for the new one */
        status = cddpi_pointer_write(dir, shown, name);
    }
    status = status == CDDP_OK ? cddpi_pointer_move(dir, shown) : status;
    if (status != CDDP_OK) {
        cddpi_log(CDDPI_LOG_WARN, "checkpoint: %s/latest does not name %s: %s", shown, name,
                  cddp_last_error());
        cddpi_pointer_discard(dir);
    }
}

cddp_status cddp_snapshot_recover(const char *dir, char **out_path, char **out_skipped)
{
    cddp_status status;
    int fd;

    if (dir == NULL || out_path == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "snapshot_recover: %s is NULL",
                          dir == NULL ? "dir" : "out_path");
    }
    cddpi_snapshot_take_turn(); /* what a thread of this process writes is not abandoned */
    fd = cddpi_folder_open_fd(AT_FDCWD, dir, true);
    if (fd >= 0) {
        cddpi_snapshot_sweep(fd, dir, true);
    }
    status = cddp_snapshot_find(dir, out_path, out_skipped); /* fails if there is no folder */
    if (status == CDDP_OK && fd >= 0) {
        cddpi_pointer_set(fd, dir, strrchr(*out_path, '/') + 1);
    }
    if (fd >= 0) {
        close(fd);
    }
    cddpi_snapshot_end_turn();
    return status;
}
