/* replace.h - a file that appears under its name whole or not at all: made under another name
 * beside its place, flushed, renamed, and its folder flushed. Any thread. */
#ifndef CDDPI_REPLACE_H
#define CDDPI_REPLACE_H

#include "base/file.h"

/* A file that is being written. Zeroed: closed. */
struct cddpi_replacement {
    char *path; /* as it will be called; NULL: closed */
    char *temporary;
    int dir;                    /* the folder of both */
    struct cddpi_writer writer; /* where its contents are put; errors call the file path */
};

/** Begin the file that will be called @p path.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT (no name of a regular file), CDDP_ERR_IO, CDDP_ERR_NO_MEMORY;
 * texts, here and below, name the file. */
CDDP_CHECKED cddp_status cddpi_replacement_open(const char *path, struct cddpi_replacement *out);

/** Flush what was put and give the file its name: @p path, in the same folder, or if that is NULL
 *  the one it was opened with. Closes in any case. On failure an older file of that name is as it
 *  was and nothing is left beside it. One failure is different: if only the folder could not be
 *  flushed (the text says so), the new file is there. */
CDDP_CHECKED cddp_status cddpi_replacement_finish(struct cddpi_replacement *replacement,
                                                  const char *path);

/** Remove what was written; accepts a closed one. */
void cddpi_replacement_discard(struct cddpi_replacement *replacement);

/** Remove what writers of @p path that crashed have left beside it. Nobody else may be writing it.
 */
void cddpi_replacement_sweep(const char *path);

/** Puts all of a file. */
typedef cddp_status (*cddpi_file_put_fn)(void *context, struct cddpi_writer *writer);

/** All of that in one call: what @p put writes becomes the file @p path. */
CDDP_CHECKED cddp_status cddpi_file_replace(const char *path, cddpi_file_put_fn put, void *context);

/** The same without flushing to the disk: for what is written anew all the time, or while a job
 * ends. A loss of power may leave an empty file. */
CDDP_CHECKED cddp_status cddpi_file_replace_quickly(const char *path, cddpi_file_put_fn put,
                                                    void *context);

/** @p text and a newline become the file @p path. */
CDDP_CHECKED cddp_status cddpi_file_replace_line(const char *path, const char *text);

#endif
