/* file.h - file operations of checkpoints: relative to an open folder, complete or reported with
 * file, bytes and cause, and each one of them can be made to fail by a test. */
#ifndef CDDPI_CHECKPOINT_FILE_H
#define CDDPI_CHECKPOINT_FILE_H

#include <cddp/status.h>

#include <sodium.h>
#include <stdbool.h>

enum { CDDPI_DIGEST_BYTES = 32, CDDPI_DIGEST_HEX_BYTES = 2 * CDDPI_DIGEST_BYTES + 1 };

/** Tests only, this thread: called before each operation that changes a file system ("open",
 * "write", "fsync", "rename", "mkdir", "unlink", "rmdir"); what it returns, unless 0, is the errno
 * with which the operation fails. While a hook is set, writes are short ones. NULL ends it. */
void cddpi_checkpoint_set_hook(int (*hook)(const char *operation));

/* As the calls they are named after: -1 and errno. fsync takes a file system's "I cannot" (EINVAL,
 * for folders) for success. */
int cddpi_file_mkdirat(int dir, const char *name);
int cddpi_file_renameat(int dir, const char *from, const char *to);
int cddpi_file_unlinkat(int dir, const char *name, int flags);
int cddpi_file_fsync(int fd);

/** Make the folder @p path and its parents where they are missing, durably; open it. */
cddp_status cddpi_file_open_dir(const char *path, int *out);

/* A file being written: buffered, hashed on the way. The state of the hash wants 64-byte alignment,
 * so this lives on the stack. */
struct cddpi_writer {
    crypto_generichash_state hash;
    const char *shown; /* what errors call the file; borrowed */
    unsigned char *buffer;
    size_t used;
    uint64_t bytes; /* put so far */
    int fd;
};

/** Create @p name in @p dir, which must not exist. On failure nothing stays open; what was created
 * is the caller's to remove. */
cddp_status cddpi_writer_open(struct cddpi_writer *writer, int dir, const char *name,
                              const char *shown);
cddp_status cddpi_writer_put(struct cddpi_writer *writer, const void *data, size_t bytes);
/** Write what is buffered and flush the file to the disk. @p out_digest (may be NULL) gets the
 * BLAKE2b-256 of the contents. */
cddp_status cddpi_writer_finish(struct cddpi_writer *writer,
                                unsigned char out_digest[CDDPI_DIGEST_BYTES]);
/** Close without more ado, finished or not. */
void cddpi_writer_close(struct cddpi_writer *writer);

/** Makes the new file @p name in @p dir and flushes it; errors call it @p shown. On failure what
 * there is of it is the caller's to remove. */
typedef cddp_status (*cddpi_file_make_fn)(void *context, int dir, const char *name,
                                          const char *shown);
/** Let @p make write a temporary file beside @p path, then rename it to @p path. On failure an
 * older file of that name is as it was. */
cddp_status cddpi_file_replace(const char *path, cddpi_file_make_fn make, void *context);

/** Bytes and BLAKE2b-256 (as hex digits) of the regular file @p path. */
cddp_status cddpi_file_digest(const char *path, uint64_t *out_bytes,
                              char out_hex[CDDPI_DIGEST_HEX_BYTES]);

/** @p text with control characters replaced and its length bounded, for error texts: names in files
 * come from strangers. Returns @p buffer. */
const char *cddpi_printable(const char *text, char *buffer, size_t bytes);

#endif
