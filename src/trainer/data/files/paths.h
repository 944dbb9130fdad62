/* paths.h - the files that names and patterns stand for. */
#ifndef CDDPI_DATA_FILES_PATHS_H
#define CDDPI_DATA_FILES_PATHS_H

#include <cddp/status.h>

struct cddpi_paths {
    char **names;
    size_t count;
};

/** Find the files of @p patterns (as glob(7); a file whose name has such characters in it is meant
 *  if it exists): those of each pattern in the order of their bytes, pattern after pattern.
 *  @param out  Release with cddpi_paths_fini().
 *  @return CDDP_OK; CDDP_ERR_NOT_FOUND: no file for one of them; CDDP_ERR_ARGUMENT: a file is named
 *          twice, or there are no patterns; CDDP_ERR_IO, CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_paths_find(char *const *patterns, size_t count,
                                          struct cddpi_paths *out);
void cddpi_paths_fini(struct cddpi_paths *paths); /* accepts a zeroed one */

#endif
