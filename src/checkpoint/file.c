/* file.c - owns the system calls by which checkpoints change a file system, and their failures. */
#include "checkpoint/file.h"

#include "base/alloc.h"
#include "base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUFFER_BYTES = 256 << 10, WRITE_BYTES_MAX = 1 << 30 };

static _Thread_local int (*test_hook)(const char *operation);

void cddpi_checkpoint_set_hook(int (*hook)(const char *operation))
{
    test_hook = hook;
}

/* Whether a test wants this operation to fail; errno is then set. */
static bool refused(const char *operation)
{
    int error = test_hook != NULL ? test_hook(operation) : 0;

    if (error != 0) {
        errno = error;
    }
    return error != 0;
}

int cddpi_file_mkdirat(int dir, const char *name)
{
    return refused("mkdir") ? -1 : mkdirat(dir, name, 0777);
}

int cddpi_file_renameat(int dir, const char *from, const char *to)
{
    return refused("rename") ? -1 : renameat(dir, from, dir, to);
}

int cddpi_file_unlinkat(int dir, const char *name, int flags)
{
    return refused(flags == AT_REMOVEDIR ? "rmdir" : "unlink") ? -1 : unlinkat(dir, name, flags);
}

int cddpi_file_fsync(int fd)
{
    if (refused("fsync")) {
        return -1;
    }
    while (fsync(fd) != 0) {
        if (errno == EINVAL || errno == ENOTSUP) {
            return 0;
        }
        if (errno != EINTR) {
            return -1;
        }
    }
    return 0;
}

static int open_dir_at(int dir, const char *path)
{
    return openat(dir, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* Make the folder @path, of which all parents exist, and flush its parent's entry for it. */
static int make_dir(char *path)
{
    char *slash = strrchr(path, '/');
    int parent;
    int result;

    if (cddpi_file_mkdirat(AT_FDCWD, path) != 0) {
        return errno == EEXIST ? 0 : -1;
    }
    if (slash == NULL) {
        parent = open_dir_at(AT_FDCWD, ".");
    } else {
        *slash = '\0';
        parent = open_dir_at(AT_FDCWD, slash == path ? "/" : path);
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
        if (make_dir(part) != 0) {
            status = cddpi_fail_errno(CDDP_ERR_IO, errno, "make the folder %s", part);
        }
        part[i] = path[i];
    }
    cddpi_free(part);
    return status;
}

cddp_status cddpi_file_open_dir(const char *path, int *out)
{
    int dir = open_dir_at(AT_FDCWD, path);

    if (dir < 0 && errno == ENOENT) {
        cddp_status status = make_dirs(path);

        if (status != CDDP_OK) {
            return status;
        }
        dir = open_dir_at(AT_FDCWD, path);
    }
    if (dir < 0) {
        return cddpi_fail_errno(CDDP_ERR_IO, errno, "open the folder %s", path);
    }
    *out = dir;
    return CDDP_OK;
}

cddp_status cddpi_writer_open(struct cddpi_writer *writer, int dir, const char *name,
                              const char *shown)
{
    if (sodium_init() < 0) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "%s: libsodium does not start", shown);
    }
    writer->buffer = cddpi_alloc_aligned(BUFFER_BYTES);
    if (writer->buffer == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory for %d bytes", shown, BUFFER_BYTES);
    }
    writer->fd = refused("open") ? -1
                                 : openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (writer->fd < 0) {
        cddpi_free(writer->buffer);
        return cddpi_fail_errno(CDDP_ERR_IO, errno, "create %s", shown);
    }
    crypto_generichash_init(&writer->hash, NULL, 0, CDDPI_DIGEST_BYTES);
    writer->shown = shown;
    writer->used = 0;
    writer->bytes = 0;
    return CDDP_OK;
}

/* All of @data to the disk's cache; @offset, for the text only, is where in the file it goes. */
static cddp_status write_all(struct cddpi_writer *writer, const unsigned char *data, size_t bytes,
                             uint64_t offset)
{
    while (bytes > 0) {
        size_t wanted = bytes < WRITE_BYTES_MAX ? bytes : WRITE_BYTES_MAX;
        ssize_t written;

        if (test_hook != NULL && wanted > 1) {
            wanted = (wanted + 1) / 2;
        }
        written = refused("write") ? -1 : write(writer->fd, data, wanted);
        if (written < 0 && errno == EINTR) {
            continue;
        }
        if (written <= 0) {
            return cddpi_fail_errno(CDDP_ERR_IO, written < 0 ? errno : EIO,
                                    "write %zu bytes at offset %llu of %s", bytes,
                                    (unsigned long long)offset, writer->shown);
        }
        data += written;
        bytes -= (size_t)written;
        offset += (uint64_t)written;
    }
    return CDDP_OK;
}

static cddp_status empty_buffer(struct cddpi_writer *writer)
{
    size_t used = writer->used;

    writer->used = 0;
    return write_all(writer, writer->buffer, used, writer->bytes - used);
}

cddp_status cddpi_writer_put(struct cddpi_writer *writer, const void *data, size_t bytes)
{
    cddp_status status;

    if (bytes == 0) {
        return CDDP_OK;
    }
    crypto_generichash_update(&writer->hash, data, bytes);
    if (bytes > BUFFER_BYTES - writer->used) {
        status = empty_buffer(writer);
        if (status != CDDP_OK) {
            return status;
        }
    }
    if (bytes >= BUFFER_BYTES) {
        status = write_all(writer, data, bytes, writer->bytes);
        writer->bytes += bytes;
        return status;
    }
    memcpy(writer->buffer + writer->used, data, bytes);
    writer->used += bytes;
    writer->bytes += bytes;
    return CDDP_OK;
}

cddp_status cddpi_writer_finish(struct cddpi_writer *writer,
                                unsigned char out_digest[CDDPI_DIGEST_BYTES])
{
    cddp_status status = empty_buffer(writer);

    if (status != CDDP_OK) {
        return status;
    }
    if (cddpi_file_fsync(writer->fd) != 0) {
        return cddpi_fail_errno(CDDP_ERR_IO, errno, "flush %llu bytes of %s",
                                (unsigned long long)writer->bytes, writer->shown);
    }
    if (out_digest != NULL) {
        crypto_generichash_final(&writer->hash, out_digest, CDDPI_DIGEST_BYTES);
    }
    return CDDP_OK;
}

void cddpi_writer_close(struct cddpi_writer *writer)
{
    close(writer->fd); /* fsync has reported what close could */
    cddpi_free(writer->buffer);
}

/* Hash @fd to its end through @buffer. */
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
        if (got < 0) {
            return -1;
        }
        if (got == 0) {
            break;
        }
        crypto_generichash_update(&hash, buffer, (size_t)got);
        *bytes += (uint64_t)got;
    }
    crypto_generichash_final(&hash, digest, CDDPI_DIGEST_BYTES);
    return 0;
}

cddp_status cddpi_file_digest(const char *path, uint64_t *out_bytes,
                              char out_hex[CDDPI_DIGEST_HEX_BYTES])
{
    unsigned char digest[CDDPI_DIGEST_BYTES];
    unsigned char *buffer = cddpi_alloc_aligned(BUFFER_BYTES);
    uint64_t bytes;
    cddp_status status = CDDP_OK;
    struct stat info;
    int fd;

    if (buffer == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory for %d bytes", path, BUFFER_BYTES);
    }
    /* non-blocking: a pipe of that name must not hold us up */
    fd = sodium_init() < 0 ? -1 : open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) {
        status = cddpi_fail_errno(errno == ENOENT ? CDDP_ERR_NOT_FOUND : CDDP_ERR_IO, errno,
                                  "open %s", path);
    } else if (fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) {
        status = cddpi_fail(CDDP_ERR_FORMAT, "%s: not a regular file", path);
    } else if (hash_file(fd, buffer, &bytes, digest) != 0) {
        status = cddpi_fail_errno(CDDP_ERR_IO, errno, "read %s", path);
    } else {
        *out_bytes = bytes;
        sodium_bin2hex(out_hex, CDDPI_DIGEST_HEX_BYTES, digest, sizeof digest);
    }
    if (fd >= 0) {
        close(fd);
    }
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
