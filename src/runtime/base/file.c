/* file.c - owns the system calls that create and change files, and reports their failures. */
#include "base/file.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/launcher_report.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

enum { BUFFER_BYTES = 256 << 10, WRITE_BYTES_MAX = 64 << 20 };

static _Atomic(int (*)(const char *)) test_hook;

void cddpi_file_set_hook(int (*hook)(const char *operation))
{
    test_hook = hook;
}

/* Whether a test makes this operation fail; sets errno if so. */
static bool refused(const char *operation)
{
    int (*hook)(const char *) = test_hook;
    int error = hook != NULL ? hook(operation) : 0;

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

void cddpi_fd_close(int *fd)
{
    if (*fd >= 0) {
        close(*fd);
    }
    *fd = -1;
}

void cddpi_stream_close(FILE *stream)
{
    if (stream != NULL) {
        fclose(stream);
    }
}

const char *cddpi_file_kind_text(mode_t mode)
{
    switch (mode & S_IFMT) {
    case S_IFREG:
        return "a regular file";
    case S_IFDIR:
        return "a folder";
    case S_IFLNK:
        return "a symbolic link";
    case S_IFIFO:
        return "a named pipe (FIFO)";
    case S_IFSOCK:
        return "a socket";
    default:
        return "a device";
    }
}

static cddp_status check_regular(const struct stat *info)
{
    return S_ISREG(info->st_mode)
               ? CDDP_OK
               : cddpi_fail(CDDP_ERR_IO, "it is %s, where a regular file is needed",
                            cddpi_file_kind_text(info->st_mode));
}

cddp_status cddpi_file_open_regular(const char *path, int flags, mode_t mode, int *out_fd)
{
    struct stat info;
    int follow = (flags & O_NOFOLLOW) != 0 ? AT_SYMLINK_NOFOLLOW : 0;
    cddp_status status;
    int fd;

    /* Check before opening, since opening a device may have effects, and again after, since the
     * path may lead to another file by then. */
    if (fstatat(AT_FDCWD, path, &info, follow) == 0) {
        CDDPI_TRY(check_regular(&info));
    }
    fd = open(path, flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, mode);
    if (fd < 0) {
        int error_number = errno;

        status = cddpi_fail(CDDP_ERR_IO, "%s", strerror(error_number));
        cddpi_error_number(error_number);
        return status;
    }
    status = fstat(fd, &info) == 0 ? check_regular(&info)
                                   : cddpi_fail_errno(CDDP_ERR_IO, errno, "fstat");
    if (status != CDDP_OK) {
        close(fd);
        return status;
    }
    *out_fd = fd;
    return CDDP_OK;
}

/* Whether a new file beside @p path would belong to @p user. */
static bool would_be_of(const char *path, uid_t user)
{
    char *beside = cddpi_format("%s.owner-%ld", path, (long)getpid());
    struct stat info = {.st_uid = (uid_t)-1};
    int fd = beside != NULL
                 ? open(beside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, S_IRUSR)
                 : -1;
    bool is_so = fd >= 0 && fstat(fd, &info) == 0 && info.st_uid == user;

    if (fd >= 0) {
        close(fd);
        (void)unlink(beside);
    }
    cddpi_free(beside);
    return is_so;
}

cddp_status cddpi_file_open_own(const char *path, int flags, mode_t mode, bool or_made_alike,
                                int *out_fd)
{
    struct stat info = {.st_uid = (uid_t)-1};
    int fd = -1;

    CDDPI_TRY(cddpi_file_open_regular(path, flags | O_NOFOLLOW, mode, &fd));
    if (fstat(fd, &info) == 0 &&
        (info.st_uid == geteuid() || (or_made_alike && would_be_of(path, info.st_uid)))) {
        *out_fd = fd;
        return CDDP_OK;
    }
    close(fd);
    return cddpi_fail(CDDP_ERR_IO, "it is another user's (%ld)", (long)info.st_uid);
}

cddp_status cddpi_file_stream(const char *path, const char *form, FILE **out)
{
    int flags = form[0] == 'a' ? O_WRONLY | O_CREAT | O_APPEND : O_RDONLY;
    int fd = -1;
    cddp_status status = cddpi_file_open_regular(path, flags, 0666, &fd);

    *out = status == CDDP_OK ? fdopen(fd, form) : NULL;
    if (*out != NULL) {
        return CDDP_OK;
    }
    if (fd >= 0) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory");
        close(fd);
    } else if (cddpi_last_errno() == ENOENT || cddpi_last_errno() == ENOTDIR) {
        status = CDDP_ERR_NOT_FOUND;
    }
    return cddpi_fail_prefix(status, "%s", path);
}

int cddpi_file_open_read(const char *path)
{
    return open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

int cddpi_file_open_read_at(int dir, const char *name)
{
    return openat(dir, name, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | O_NOFOLLOW);
}

cddp_status cddpi_writer_open(struct cddpi_writer *writer, int dir, const char *name,
                              const char *shown)
{
    unsigned char *buffer = cddpi_alloc_aligned(BUFFER_BYTES);
    int fd;

    CDDPI_TRY_MEMORY(buffer != NULL, "%s: no memory for %d bytes", shown, BUFFER_BYTES);
    fd = refused("open") ? -1 : openat(dir, name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (fd < 0) {
        cddpi_free(buffer);
        return cddpi_fail_errno(CDDP_ERR_IO, errno, "create %s", shown);
    }
    *writer = (struct cddpi_writer){.shown = shown, .buffer = buffer, .fd = fd};
    return CDDP_OK;
}

cddp_status cddpi_writer_join(struct cddpi_writer *writer, int dir, const char *name,
                              const char *shown)
{
    int fd = refused("open")
                 ? -1
                 : openat(dir, name, O_WRONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);

    if (fd < 0) {
        return cddpi_fail_errno(CDDP_ERR_IO, errno, "open %s", shown);
    }
    *writer = (struct cddpi_writer){.shown = shown, .fd = fd};
    return CDDP_OK;
}

/* Write all of @p data at @p offset of the file. Does not flush the file to the disk. */
static cddp_status write_all(struct cddpi_writer *writer, const unsigned char *data, size_t bytes,
                             uint64_t offset)
{
    while (bytes > 0) {
        size_t wanted = bytes < WRITE_BYTES_MAX ? bytes : WRITE_BYTES_MAX;
        ssize_t written;

        if (test_hook != NULL && wanted > 1) {
            wanted = (wanted + 1) / 2;
        }
        written = refused("write") ? -1 : pwrite(writer->fd, data, wanted, (off_t)offset);
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
        cddpi_launcher_report_alive();
    }
    return CDDP_OK;
}

cddp_status cddpi_writer_flush(struct cddpi_writer *writer)
{
    size_t used = writer->used;

    writer->used = 0;
    return write_all(writer, writer->buffer, used, writer->bytes - used);
}

cddp_status cddpi_writer_put(struct cddpi_writer *writer, const void *data, size_t bytes)
{
    if (bytes == 0) {
        return CDDP_OK;
    }
    if (writer->watch != NULL) {
        writer->watch(writer->context, data, bytes);
    }
    if (bytes > BUFFER_BYTES - writer->used) {
        CDDPI_TRY(cddpi_writer_flush(writer));
    }
    if (bytes >= BUFFER_BYTES) {
        writer->bytes += bytes;
        return write_all(writer, data, bytes, writer->bytes - bytes);
    }
    memcpy(writer->buffer + writer->used, data, bytes);
    writer->used += bytes;
    writer->bytes += bytes;
    return CDDP_OK;
}

cddp_status cddpi_writer_skip(struct cddpi_writer *writer, const void *data, size_t bytes)
{
    CDDPI_TRY(cddpi_writer_flush(writer));
    if (writer->watch != NULL) {
        writer->watch(writer->context, data, bytes);
    }
    writer->bytes += bytes;
    return CDDP_OK;
}

cddp_status cddpi_writer_put_line(struct cddpi_writer *writer, const char *text)
{
    CDDPI_TRY(cddpi_writer_put(writer, text, strlen(text)));
    return cddpi_writer_put(writer, "\n", 1);
}

cddp_status cddpi_writer_put_at(struct cddpi_writer *writer, const void *data, size_t bytes,
                                uint64_t offset)
{
    CDDPI_TRY(cddpi_writer_flush(writer));
    return write_all(writer, data, bytes, offset);
}

cddp_status cddpi_writer_put_head(struct cddpi_writer *writer, const void *data, size_t bytes)
{
    return cddpi_writer_put_at(writer, data, bytes, 0);
}

cddp_status cddpi_writer_finish(struct cddpi_writer *writer)
{
    cddp_status status = cddpi_writer_flush(writer);

    cddpi_launcher_report_alive();
    CDDPI_TRY(status);
    return cddpi_file_fsync(writer->fd) == 0
               ? CDDP_OK
               : cddpi_fail_errno(CDDP_ERR_IO, errno, "flush %llu bytes of %s",
                                  (unsigned long long)writer->bytes, writer->shown);
}

void cddpi_writer_close(struct cddpi_writer *writer)
{
    close(writer->fd); /* any error of close() was already reported by fsync() */
    cddpi_free(writer->buffer);
}

int cddpi_file_resize(int fd, uint64_t bytes)
{
    struct rlimit limit;

    if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY &&
        bytes > limit.rlim_cur) {
        errno = EFBIG;
        return -1;
    }
    return ftruncate(fd, (off_t)bytes);
}
