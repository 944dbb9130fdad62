/* replace.h - replaces a file atomically: readers see the whole new file or the old one. The file
 * is written under a temporary name in the same folder, flushed and renamed; then the folder is
 * flushed. Any thread. */
#ifndef CDDPI_REPLACE_H
#define CDDPI_REPLACE_H

#include "base/file.h"

/* A file that is being written. All zeros: closed. */
struct cddpi_replacement {
    char *path; /* its final path; NULL: closed */
    char *temporary;
    int dir;                    /* the folder of both names */
    struct cddpi_writer writer; /* writes the contents; errors call the file `path` */
};

/** Begin writing the file @p path.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT (not the name of a regular file), CDDP_ERR_IO,
 *          CDDP_ERR_NO_MEMORY; texts, here and below, name the file. */
CDDP_CHECKED cddp_status cddpi_replacement_open(const char *path, struct cddpi_replacement *out);

/** Flush the contents and rename the file to @p path, which must be in the same folder. NULL: to
 *  the path that it was opened with. Always closes. On failure an older file of that name is
 *  unchanged and the temporary file is removed. One exception: if only the flush of the folder
 *  failed (the text says so), the new file is in place. */
CDDP_CHECKED cddp_status cddpi_replacement_finish(struct cddpi_replacement *replacement,
                                                  const char *path);

/** Remove the temporary file. Accepts a closed replacement. */
void cddpi_replacement_discard(struct cddpi_replacement *replacement);

/** Remove temporary files that crashed writers of @p path have left beside it. No other process may
 *  be writing @p path. */
void cddpi_replacement_sweep(const char *path);

/** The same for the file @p name in the open folder @p dir, which other processes may be writing:
 *  remove only what nobody has written to for @p seconds. */
void cddpi_replacement_sweep_old(int dir, const char *name, int seconds);

/** Writes the whole file. */
typedef cddp_status (*cddpi_file_put_fn)(void *context, struct cddpi_writer *writer);

/** All of the above in one call: what @p put writes becomes the file @p path. */
CDDP_CHECKED cddp_status cddpi_file_replace(const char *path, cddpi_file_put_fn put, void *context);

/** The same without flushing to the disk, for files that are rewritten often or while a job ends.
 *  After a power failure the file may be empty. */
CDDP_CHECKED cddp_status cddpi_file_replace_quickly(const char *path, cddpi_file_put_fn put,
                                                    void *context);

/** The same for the file of the last part of @p path in the open folder @p dir, wherever the rest
 * of
 *  @p path leads meanwhile. */
CDDP_CHECKED cddp_status cddpi_file_replace_quickly_at(int dir, const char *path,
                                                       cddpi_file_put_fn put, void *context);

/** Replace the file @p path by @p text and a newline. */
CDDP_CHECKED cddp_status cddpi_file_replace_line(const char *path, const char *text);

#endif
