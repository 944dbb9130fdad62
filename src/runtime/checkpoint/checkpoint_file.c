/* checkpoint_file.c - owns creating durable folders and hashing files. */
#include "checkpoint/checkpoint_file.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/folder.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUFFER_BYTES = 256 << 10 };

cddp_status cddpi_checkpoint_open(const char *path, int *out)
{
    int fd = cddpi_file_open_read(path);

    if (fd < 0) {
        return cddpi_fail_errno(errno == ENOENT ? CDDP_ERR_NOT_FOUND : CDDP_ERR_IO, errno,
                                "open %s", path);
    }
    *out = fd;
    return CDDP_OK;
}

/* Create the folder @p path, whose parents exist, and flush its parent folder, so that the new
 * entry survives a crash. */
static int make_dir(char *path)
{
    char *slash = strrchr(path, '/');
    int parent;
    int result;

    if (cddpi_file_mkdirat(AT_FDCWD, path) != 0) {
        return errno == EEXIST ? 0 : -1;
    }
    if (slash != NULL) {
        *slash = '\0';
    }
    parent = cddpi_folder_open_fd(AT_FDCWD, slash == NULL ? "." : slash == path ? "/" : path, true);
    if (slash != NULL) {
        *slash = '/';
    }
    if (parent < 0) {
        return -1;
    }
    result = cddpi_file_fsync(parent);
    close(parent);
    return result;
}

static cddp_status make_dirs(const char *path)
{
    char *part = cddpi_strdup(path);
    cddp_status status = CDDP_OK;

    if (part == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory for %zu bytes", path, strlen(path));
    }
    for (size_t i = 1; status == CDDP_OK && part[i - 1] != '\0'; i++) {
        if (part[i] != '/' && part[i] != '\0') {
            continue;
        }
        part[i] = '\0';
        if (access(part, F_OK) != 0) {
            status = cddpi_folder_check_name(path, i);
        }
        if (status == CDDP_OK && make_dir(part) != 0) {
            status = cddpi_fail_errno(CDDP_ERR_IO, errno, "make the folder %s", part);
        }
        part[i] = path[i];
    }
    cddpi_free(part);
    return status;
}

cddp_status cddpi_file_open_dir(const char *path, int *out)
{
    int dir = cddpi_folder_open_fd(AT_FDCWD, path, true);

    if (dir < 0 && errno == ENOENT) {
        CDDPI_TRY(make_dirs(path));
        dir = cddpi_folder_open_fd(AT_FDCWD, path, true);
    }
    if (dir < 0) {
        return cddpi_fail_errno(CDDP_ERR_IO, errno, "open the folder %s", path);
    }
    *out = dir;
    return CDDP_OK;
}

static void hash_more(void *context, const void *data, size_t bytes)
{
    struct cddpi_digest *digest = context;

    crypto_generichash_update(&digest->hash, data, bytes);
}

cddp_status cddpi_digest_watch(struct cddpi_digest *digest, struct cddpi_writer *writer)
{
    if (sodium_init() < 0) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "%s: libsodium does not start", writer->shown);
    }
    crypto_generichash_init(&digest->hash, NULL, 0, CDDPI_DIGEST_BYTES);
    writer->watch = hash_more;
    writer->context = digest;
    return CDDP_OK;
}

void cddpi_digest_take(struct cddpi_digest *digest, unsigned char out[CDDPI_DIGEST_BYTES])
{
    crypto_generichash_final(&digest->hash, out, CDDPI_DIGEST_BYTES);
}

/* Hash the rest of @p fd, in pieces of @p buffer. */
static int hash_file(int fd, unsigned char *buffer, uint64_t *bytes,
                     unsigned char digest[CDDPI_DIGEST_BYTES])
{
    crypto_generichash_state hash;

    crypto_generichash_init(&hash, NULL, 0, CDDPI_DIGEST_BYTES);
    *bytes = 0;
    for (;;) {
        ssize_t got = read(fd, buffer, BUFFER_BYTES);

        if (got < 0 && errno == EINTR) {
            continue;
        }
        if (got <= 0) {
            crypto_generichash_final(&hash, digest, CDDPI_DIGEST_BYTES);
            return got < 0 ? -1 : 0;
        }
        crypto_generichash_update(&hash, buffer, (size_t)got);
        *bytes += (uint64_t)got;
    }
}

cddp_status cddpi_file_digest(const char *path, uint64_t *out_bytes,
                              char out_hex[CDDPI_DIGEST_HEX_BYTES])
{
    unsigned char digest[CDDPI_DIGEST_BYTES];
    unsigned char *buffer = cddpi_alloc_aligned(BUFFER_BYTES);
    uint64_t bytes;
    cddp_status status;
    struct stat info;
    int fd = -1;

    if (buffer == NULL || sodium_init() < 0) {
        cddpi_free(buffer);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory for %d bytes", path, BUFFER_BYTES);
    }
    CDDPI_TRY_GOTO(done, status, cddpi_checkpoint_open(path, &fd));
    if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        status = cddpi_fail(CDDP_ERR_FORMAT, "%s: not a regular file", path);
    } else if (hash_file(fd, buffer, &bytes, digest) != 0) {
        status = cddpi_fail_errno(CDDP_ERR_IO, errno, "read %s", path);
    } else {
        *out_bytes = bytes;
        sodium_bin2hex(out_hex, CDDPI_DIGEST_HEX_BYTES, digest, sizeof digest);
    }
    close(fd);

done:
    cddpi_free(buffer);
    return status;
}

const char *cddpi_printable(const char *text, char *buffer, size_t bytes)
{
    size_t length = 0;

    while (text[length] != '\0' && length + 1 < bytes) {
        unsigned char c = (unsigned char)text[length];

        buffer[length++] = c < 0x20 || c == 0x7f ? '?' : (char)c;
    }
    if (text[length] != '\0' && bytes > 3) {
        memcpy(buffer + bytes - 4, "...", 3);
    }
    buffer[length] = '\0';
    return buffer;
}
