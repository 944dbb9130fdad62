/* file.h - the system calls that change a file system, and a file being written. A write is
 * complete or reported with file, bytes and cause; tests can make each call fail. */
#ifndef CDDPI_BASE_FILE_H
#define CDDPI_BASE_FILE_H

#include <cddp/status.h>

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

/** Tests only, this thread: called before each operation that changes a file system ("open",
 * "write", "fsync", "rename", "mkdir", "unlink", "rmdir"); what it returns, unless 0, is the errno
 * with which the operation fails. While a hook is set, writes are short ones. NULL ends it. */
void cddpi_file_set_hook(int (*hook)(const char *operation));

/* As the calls they are named after: -1 and errno. fsync returns success where a file system cannot
 * flush folders (EINVAL, ENOTSUP). */
int cddpi_file_mkdirat(int dir, const char *name);
int cddpi_file_renameat(int dir, const char *from, const char *to);
int cddpi_file_unlinkat(int dir, const char *name, int flags);
int cddpi_file_fsync(int fd);

/** What a file of @p mode is: "a folder", "a device", "a named pipe (FIFO)" ... */
const char *cddpi_file_kind_text(mode_t mode);

/** Open the regular file @p path with @p flags. If it is something else, this neither waits nor
 * opens it; with O_NOFOLLOW a symbolic link is something else, too. The text says what it is
 * instead, not its name. */
CDDP_CHECKED cddp_status cddpi_file_open_regular(const char *path, int flags, mode_t mode,
                                                 int *out_fd);
/** The same for a file that no other user can have put there: it is no link, and this user's; or,
 *  if @p or_made_alike, of the owner whom a new file in its folder gets, too, since some file
 * systems give all files one owner. */
CDDP_CHECKED cddp_status cddpi_file_open_own(const char *path, int flags, mode_t mode,
                                             bool or_made_alike, int *out_fd);
/** A stream on the regular file @p path: to read ("r") or to append ("a", made if missing). The
 * text names it. Only CDDP_ERR_NOT_FOUND means that there is none; all else is CDDP_ERR_IO, with
 * the errno. */
CDDP_CHECKED cddp_status cddpi_file_stream(const char *path, const char *form, FILE **out);
/** A descriptor to read @p path by, -1 with errno. It never waits, and what it opens need not be a
 *  regular file: callers who need one look, and word it. */
int cddpi_file_open_read(const char *path);
/** The same for @p name in @p dir, through no link. */
int cddpi_file_open_read_at(int dir, const char *name);

/* A file being written, through a buffer. */
struct cddpi_writer {
    const char *shown; /* what errors call the file; borrowed */
    /* Optional: called with all that is put, in order; for hashing. */
    void (*watch)(void *context, const void *data, size_t bytes);
    void *context;
    unsigned char *buffer;
    size_t used;
    uint64_t bytes; /* put so far */
    int fd;
};

/** ftruncate(), but for a limit of files' sizes (ulimit -f), which counts for shared memory too:
 * then it fails with EFBIG, where ftruncate() would also end a program by SIGXFSZ. */
int cddpi_file_resize(int fd, uint64_t bytes);

/** Create @p name in @p dir, which must not exist. On failure nothing stays open; what was created
 * is the caller's to remove. */
CDDP_CHECKED cddp_status cddpi_writer_open(struct cddpi_writer *writer, int dir, const char *name,
                                           const char *shown);
CDDP_CHECKED cddp_status cddpi_writer_put(struct cddpi_writer *writer, const void *data,
                                          size_t bytes);
/** Put @p text and a newline. */
CDDP_CHECKED cddp_status cddpi_writer_put_line(struct cddpi_writer *writer, const char *text);
/** Overwrite the beginning of the file, which has that many bytes; watch is not called. */
CDDP_CHECKED cddp_status cddpi_writer_put_head(struct cddpi_writer *writer, const void *data,
                                               size_t bytes);
/** Write what is buffered; the disk may have it later. */
CDDP_CHECKED cddp_status cddpi_writer_flush(struct cddpi_writer *writer);
/** Write what is buffered and flush the file to the disk. */
CDDP_CHECKED cddp_status cddpi_writer_finish(struct cddpi_writer *writer);
/** Close, finished or not; what is buffered is lost. */
void cddpi_writer_close(struct cddpi_writer *writer);

#endif
