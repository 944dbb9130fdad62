/* snapshot_state.c - owns the document in state.json: its checksum, and what makes it valid. */
#include "base/error.h"
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
    int fd = cddpi_file_open_read(path);

    if (fd < 0) {
        return cddpi_fail_errno(errno == ENOENT ? CDDP_ERR_NOT_FOUND : CDDP_ERR_IO, errno,
                                "open %s", path);
    }
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

cddp_status cddpi_snapshot_check(const char *call, const char *path, const cddp_snapshot *snapshot)
{
    cddp_snapshot known;

    if (path == NULL || snapshot == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "%s: the %s is NULL", call,
                          path == NULL ? "path" : "snapshot");
    }
    CDDPI_TRY(cddpi_struct_read("snapshot", "CDDP_SNAPSHOT_INIT", snapshot, sizeof known,
                                sizeof known, &known));
    if ((snapshot->model == NULL && snapshot->model_count > 0) ||
        (snapshot->optimizer == NULL && snapshot->optimizer_count > 0)) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "%s: the snapshot's %s is NULL", call,
                          snapshot->model == NULL && snapshot->model_count > 0 ? "model"
                                                                               : "optimizer");
    }
    return CDDP_OK;
}
