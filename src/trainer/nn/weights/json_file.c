/* json_file.c - reads the JSON files beside weights: config.json, an index. */
#include "base/alloc.h"
#include "base/error.h"
#include "base/file.h"
#include "base/foreign.h"
#include "base/json.h"
#include "checkpoint/checkpoint_file.h"
#include "nn/weights/weights_file.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

char *cddpi_weights_beside(const char *path, const char *name)
{
    const char *slash = strrchr(path, '/');

    return cddpi_format("%.*s%s", slash != NULL ? (int)(slash + 1 - path) : 0, path, name);
}

static cddp_status read_bytes(int fd, const char *path, char *text, size_t bytes)
{
    size_t done = 0;

    while (done < bytes) {
        ssize_t got = read(fd, text + done, bytes - done);

        if (got == 0) {
            return cddpi_fail(CDDP_ERR_IO, "%s: it became shorter while it was read", path);
        }
        if (got < 0 && errno != EINTR) {
            return cddpi_fail_errno(CDDP_ERR_IO, errno, "read %s", path);
        }
        done += got > 0 ? (size_t)got : 0;
    }
    return CDDP_OK;
}

/* The error for a file that is not JSON: where parsing fails, or what the file is if it does not
 * even begin as an object. */
static cddp_status json_fail(const char *path, const char *text, size_t bytes,
                             const json_error_t *error)
{
    char words[CDDPI_FOREIGN_WORDS_BYTES];
    char shown[JSON_ERROR_TEXT_LENGTH];

    if (json_error_code(error) == json_error_out_of_memory) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory to read it", path);
    }
    if (bytes == 0 || text[strspn(text, " \t\r\n\xEF\xBB\xBF")] != '{') {
        return cddpi_fail(CDDP_ERR_FORMAT, "%s: not a JSON object%s", path,
                          cddpi_foreign_words(text, bytes, words));
    }
    return cddpi_fail(CDDP_ERR_FORMAT, "%s: line %d, column %d: %s", path, error->line,
                      error->column, cddpi_printable(error->text, shown, sizeof shown));
}

static cddp_status parse(int fd, const char *path, size_t bytes, json_t **out_root)
{
    char *text = cddpi_zalloc(bytes + 1);
    json_error_t error;
    cddp_status status;

    if (text == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory for %zu bytes", path, bytes);
    }
    status = read_bytes(fd, path, text, bytes);
    if (status == CDDP_OK) {
        *out_root = cddpi_json_load(text, bytes, JSON_REJECT_DUPLICATES, &error);
        status = *out_root != NULL ? CDDP_OK : json_fail(path, text, bytes, &error);
    }
    cddpi_free(text);
    return status;
}

cddp_status cddpi_weights_read_json(const char *path, size_t most, json_t **out_root)
{
    struct stat info;
    int fd;
    cddp_status status = cddpi_file_open_regular(path, O_RDONLY | O_CLOEXEC, 0, &fd);

    *out_root = NULL;
    if (status != CDDP_OK) {
        return cddpi_fail_prefix(status, "%s", path);
    }
    if (fstat(fd, &info) != 0) {
        status = cddpi_fail_errno(CDDP_ERR_IO, errno, "stat %s", path);
    } else if ((uint64_t)info.st_size > most) {
        status = cddpi_fail(CDDP_ERR_FORMAT, "%s: %lld bytes are more than the %zu that are read",
                            path, (long long)info.st_size, most);
    } else {
        status = parse(fd, path, (size_t)info.st_size, out_root);
    }
    close(fd);
    return status;
}
