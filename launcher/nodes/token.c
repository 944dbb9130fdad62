/* token.c - owns the rules for a job's token: which file it may be in, and which characters it may
 * have. */
#include "launcher/nodes/token.h"

#include "base/env.h"
#include "base/error.h"
#include "base/file.h"
#include "base/log.h"
#include "base/utf8.h"
#include "launcher/output/hide_token.h"
#include "store/auth.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static cddp_status check_characters(const char *token, size_t bytes, const char *where)
{
    for (size_t i = 0; i < bytes; i++) {
        if (token[i] <= ' ' || token[i] > '~') {
            return cddpi_fail(CDDP_ERR_ARGUMENT,
                              "the token in %s may have letters, digits and signs only", where);
        }
    }
    return bytes <= CDDPI_TOKEN_BYTES
               ? CDDP_OK
               : cddpi_fail(CDDP_ERR_ARGUMENT, "the token in %s has more than %d characters", where,
                            CDDPI_TOKEN_BYTES);
}

static cddp_status check_mode(int fd, const char *path)
{
    struct stat status;

    if (fstat(fd, &status) != 0) {
        return cddpi_fail_errno(CDDP_ERR_CONFIG, errno, "%s", path);
    }
    return (status.st_mode & 0077) == 0
               ? CDDP_OK
               : cddpi_fail(CDDP_ERR_CONFIG,
                            "%s may be read by others (mode %04o), and so is no secret: chmod 600 "
                            "%s, and change the token",
                            path, (unsigned)status.st_mode & 07777, path);
}

static cddp_status read_file(const char *path, char out[CDDPI_TOKEN_BYTES + 1])
{
    char text[4096];
    ssize_t bytes;
    size_t mark;
    int fd;
    cddp_status status;

    if (cddpi_file_open_regular(path, O_RDONLY, 0, &fd) != CDDP_OK) {
        return cddpi_fail_prefix(CDDP_ERR_CONFIG, "--token-file %s", path);
    }
    status = check_mode(fd, path);
    bytes = status == CDDP_OK ? read(fd, text, sizeof text - 1) : 0;
    if (bytes < 0) {
        status = cddpi_fail_errno(CDDP_ERR_CONFIG, errno, "%s", path);
    }
    close(fd);
    if (status != CDDP_OK) {
        return status;
    }
    text[bytes] = '\0';
    mark = cddpi_utf8_mark(text, (size_t)bytes);
    memmove(text, text + mark, (size_t)bytes + 1 - mark);
    text[strcspn(text, "\r\n")] = '\0';
    if (text[0] == '\0') {
        return cddpi_fail(CDDP_ERR_CONFIG, "%s: its first line is empty", path);
    }
    CDDPI_TRY(check_characters(text, strlen(text), path));
    memcpy(out, text, strlen(text) + 1);
    return CDDP_OK;
}

cddp_status cddpi_token_read(const char *path, char out[CDDPI_TOKEN_BYTES + 1])
{
    const char *token = cddpi_env(CDDPI_ENV_TOKEN);

    out[0] = '\0';
    if (path != NULL) {
        return read_file(path, out);
    }
    if (token == NULL) {
        return CDDP_OK;
    }
    CDDPI_TRY(check_characters(token, strlen(token), "$CDDP_TOKEN"));
    memcpy(out, token, strlen(token) + 1);
    return CDDP_OK;
}

static bool is_loopback(const char *rdzv)
{
    static const char *const begins[] = {"tcp://127.", "tcp://[::1]:", "tcp://localhost:"};

    for (size_t i = 0; i < sizeof begins / sizeof *begins; i++) {
        if (strncmp(rdzv, begins[i], strlen(begins[i])) == 0) {
            return strchr(rdzv, ',') == NULL;
        }
    }
    return false;
}

cddp_status cddpi_token_suits(const char *token, const char *rdzv)
{
    char what[300];

    if (token[0] == '\0') {
        return CDDP_OK;
    }
    if (!is_loopback(rdzv)) {
        snprintf(what, sizeof what, "--rdzv %.250s", rdzv);
        return cddpi_token_check(token, what);
    }
    if (strlen(token) < CDDPI_SECRET_LEAST) {
        cddpi_log(CDDPI_LOG_WARN,
                  "the token has fewer than %d characters: it is too short to be hidden in what "
                  "ranks print",
                  CDDPI_SECRET_LEAST);
    }
    return CDDP_OK;
}
