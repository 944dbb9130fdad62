/* paths.h - finds the files that names and glob patterns stand for. */
#ifndef CDDPI_DATA_FILES_PATHS_H
#define CDDPI_DATA_FILES_PATHS_H

#include <cddp/status.h>

struct cddpi_paths {
    char **names;
    size_t count;
};

/** Find the files of @p patterns (see glob(7)). A pattern that is the name of an existing file
 *  means that file. The result is in the order of the patterns, and by bytes within a pattern.
 *  @param out  Release with cddpi_paths_fini().
 *  @return CDDP_OK; CDDP_ERR_NOT_FOUND: a pattern matches no file; CDDP_ERR_ARGUMENT: a file is
 *          named twice, or there are no patterns; CDDP_ERR_IO, CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_paths_find(char *const *patterns, size_t count,
                                          struct cddpi_paths *out);
void cddpi_paths_fini(struct cddpi_paths *paths); /* accepts a zeroed one */

#endif
