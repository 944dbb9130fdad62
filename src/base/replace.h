/* replace.h - a file that appears under its name whole or not at all: made under another name
 * beside its place, flushed, renamed, and its folder flushed. Any thread. */
#ifndef CDDPI_REPLACE_H
#define CDDPI_REPLACE_H

#include "base/file.h"

/* A file on its way. Zeroed: closed. */
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
 *  was and nothing is left beside it; unless only the folder could not be flushed, of which the
 *  text tells: then the new file is there. */
CDDP_CHECKED cddp_status cddpi_replacement_finish(struct cddpi_replacement *replacement,
                                                  const char *path);

/** Remove what was written; accepts a closed one. */
void cddpi_replacement_discard(struct cddpi_replacement *replacement);

/** Puts all of a file. */
typedef cddp_status (*cddpi_file_put_fn)(void *context, struct cddpi_writer *writer);

/** All of that at once: what @p put puts becomes the file @p path. */
CDDP_CHECKED cddp_status cddpi_file_replace(const char *path, cddpi_file_put_fn put, void *context);

/** @p text and a newline become the file @p path. */
CDDP_CHECKED cddp_status cddpi_file_replace_line(const char *path, const char *text);

#endif
