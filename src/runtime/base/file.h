/* file.h - the system calls that change a file system, and a buffered writer. A write either
 * completes or reports the file, the bytes and the cause. Tests can make each call fail. */
#ifndef CDDPI_BASE_FILE_H
#define CDDPI_BASE_FILE_H

#include "base/shared.h"

#include <cddp/status.h>

#include <stdbool.h>
#include <stdio.h>
#include <sys/types.h>

/** Tests only: call @p hook, in each thread, before an operation that changes a file system
 *  ("open", "write", "fsync", "rename", "mkdir", "unlink", "rmdir"). If the hook returns an errno
 *  other than 0, the operation fails with it. While a hook is set, writes are short writes. NULL
 *  removes the hook. */
void cddpi_file_set_hook(int (*hook)(const char *operation));

/* Like the system calls of the same names: -1 and errno on failure. fsync succeeds where the file
 * system cannot flush folders (EINVAL, ENOTSUP). */
int cddpi_file_mkdirat(int dir, const char *name);
int cddpi_file_renameat(int dir, const char *from, const char *to);
int cddpi_file_unlinkat(int dir, const char *name, int flags);
int cddpi_file_fsync(int fd);

/** Close @p fd unless it is negative, and set it to -1. */
CDDPI_SHARED void cddpi_fd_close(int *fd);
/** Close @p stream, which may be NULL. */
void cddpi_stream_close(FILE *stream);

/** The kind of a file with @p mode: "a folder", "a device", "a named pipe (FIFO)" ... */
const char *cddpi_file_kind_text(mode_t mode);

/** Open the regular file @p path with @p flags. Anything else is an error and is not opened, so
 *  that the call never blocks. With O_NOFOLLOW a symbolic link is an error, too. The text says what
 *  the file is instead; it does not name the file. */
CDDP_CHECKED cddp_status cddpi_file_open_regular(const char *path, int flags, mode_t mode,
                                                 int *out_fd);
/** The same for a file that no other user can have put there: it is not a link and belongs to this
 *  user. With @p or_made_alike it may instead belong to the owner that a new file in its folder
 *  would get, because some file systems give all files the same owner. */
CDDP_CHECKED cddp_status cddpi_file_open_own(const char *path, int flags, mode_t mode,
                                             bool or_made_alike, int *out_fd);
/** Open a stream on the regular file @p path: "r" reads, "a" appends and creates the file if it is
 *  missing. The text names the file. CDDP_ERR_NOT_FOUND means only that the file does not exist;
 *  other failures are CDDP_ERR_IO, with the errno. */
CDDP_CHECKED cddp_status cddpi_file_stream(const char *path, const char *form, FILE **out);
/** Open @p path for reading; -1 with errno. The call never blocks. The file need not be regular: a
 *  caller that needs a regular file checks that and words the failure. */
CDDPI_SHARED int cddpi_file_open_read(const char *path);
/** The same for @p name in @p dir. Does not follow a symbolic link. */
int cddpi_file_open_read_at(int dir, const char *name);

/* A file that is being written through a buffer. */
struct cddpi_writer {
    const char *shown; /* what errors call the file; borrowed */
    /* Optional: called in order with all data that is put, for hashing. */
    void (*watch)(void *context, const void *data, size_t bytes);
    void *context;
    unsigned char *buffer;
    size_t used;
    uint64_t bytes; /* number of bytes put so far */
    int fd;
};

/** Like ftruncate(), except when the new size is above the limit for file sizes (ulimit -f), which
 *  also applies to shared memory. This function then fails with EFBIG, where ftruncate() would also
 *  send SIGXFSZ and end the program. */
CDDPI_SHARED int cddpi_file_resize(int fd, uint64_t bytes);

/** Create @p name in @p dir; it must not exist. On failure nothing stays open. The caller removes
 *  what was created. */
CDDP_CHECKED cddp_status cddpi_writer_open(struct cddpi_writer *writer, int dir, const char *name,
                                           const char *shown);
/** Open the file @p name in @p dir, which another process writes, to write parts of it:
 *  cddpi_writer_put_at(). Does not follow a symbolic link. */
CDDP_CHECKED cddp_status cddpi_writer_join(struct cddpi_writer *writer, int dir, const char *name,
                                           const char *shown);
CDDP_CHECKED cddp_status cddpi_writer_put(struct cddpi_writer *writer, const void *data,
                                          size_t bytes);
/** Like cddpi_writer_put(), but somebody else writes these bytes to the file. */
CDDP_CHECKED cddp_status cddpi_writer_skip(struct cddpi_writer *writer, const void *data,
                                           size_t bytes);
/** Put @p text and a newline. */
CDDP_CHECKED cddp_status cddpi_writer_put_line(struct cddpi_writer *writer, const char *text);
/** Write @p bytes bytes that were put, or skipped, at @p offset of the file. Does not call watch.
 */
CDDP_CHECKED cddp_status cddpi_writer_put_at(struct cddpi_writer *writer, const void *data,
                                             size_t bytes, uint64_t offset);
/** Overwrite the beginning of the file, which already has at least @p bytes bytes. Does not call
 *  watch. */
CDDP_CHECKED cddp_status cddpi_writer_put_head(struct cddpi_writer *writer, const void *data,
                                               size_t bytes);
/** Write the buffer to the file without flushing it to the disk. */
CDDP_CHECKED cddp_status cddpi_writer_flush(struct cddpi_writer *writer);
/** Write the buffer and flush the file to the disk. */
CDDP_CHECKED cddp_status cddpi_writer_finish(struct cddpi_writer *writer);
/** Close the file, whether finished or not. Buffered data is lost. */
void cddpi_writer_close(struct cddpi_writer *writer);

#endif
