/* file.h - the system calls that change a file system, and a file being written: complete or
 * reported with file, bytes and cause, and each one of them can be made to fail by a test. */
#ifndef CDDPI_BASE_FILE_H
#define CDDPI_BASE_FILE_H

#include <cddp/status.h>

/** Tests only, this thread: called before each operation that changes a file system ("open",
 * "write", "fsync", "rename", "mkdir", "unlink", "rmdir"); what it returns, unless 0, is the errno
 * with which the operation fails. While a hook is set, writes are short ones. NULL ends it. */
void cddpi_file_set_hook(int (*hook)(const char *operation));

/* As the calls they are named after: -1 and errno. fsync takes a file system's "I cannot" (EINVAL,
 * for folders) for success. */
int cddpi_file_mkdirat(int dir, const char *name);
int cddpi_file_renameat(int dir, const char *from, const char *to);
int cddpi_file_unlinkat(int dir, const char *name, int flags);
int cddpi_file_fsync(int fd);

/* A file being written, through a buffer. */
struct cddpi_writer {
    const char *shown; /* what errors call the file; borrowed */
    /* Optional: sees all that is put, in order, such as to hash it. */
    void (*watch)(void *context, const void *data, size_t bytes);
    void *context;
    unsigned char *buffer;
    size_t used;
    uint64_t bytes; /* put so far */
    int fd;
};

/** Create @p name in @p dir, which must not exist. On failure nothing stays open; what was created
 * is the caller's to remove. */
CDDP_CHECKED cddp_status cddpi_writer_open(struct cddpi_writer *writer, int dir, const char *name,
                                           const char *shown);
CDDP_CHECKED cddp_status cddpi_writer_put(struct cddpi_writer *writer, const void *data,
                                          size_t bytes);
/** Put @p text and a newline. */
CDDP_CHECKED cddp_status cddpi_writer_put_line(struct cddpi_writer *writer, const char *text);
/** Write over the beginning of the file, which has that many bytes; nobody watches. */
CDDP_CHECKED cddp_status cddpi_writer_put_head(struct cddpi_writer *writer, const void *data,
                                               size_t bytes);
/** Write what is buffered and flush the file to the disk. */
CDDP_CHECKED cddp_status cddpi_writer_finish(struct cddpi_writer *writer);
/** Close without more ado, finished or not. */
void cddpi_writer_close(struct cddpi_writer *writer);

#endif
