/* growable_mapping.h - writable memory that grows by remapping, for what files are turned into. */
#ifndef CDDPI_DATA_FILES_GROWABLE_MAPPING_H
#define CDDPI_DATA_FILES_GROWABLE_MAPPING_H

#include <cddp/status.h>

#include <stdbool.h>

struct cddpi_growable_mapping {
    uint8_t *data;
    size_t bytes;
    int fd; /* its memory file, or -1: private memory */
};

/** @param path       For texts of failures.
 *  @param bytes      > 0; zeros, which take no memory before they are written.
 *  @param shareable  A memory file, if the system has them.
 *  @param out        Release with cddpi_growable_mapping_free(). @return CDDP_OK,
 * CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_growable_mapping_create(const char *path, size_t bytes,
                                                       bool shareable,
                                                       struct cddpi_growable_mapping *out);

/** Grow or shrink @p mapping, which may move; likewise. */
CDDP_CHECKED cddp_status cddpi_growable_mapping_resize(const char *path, size_t bytes,
                                                       struct cddpi_growable_mapping *mapping);
void cddpi_growable_mapping_free(struct cddpi_growable_mapping *mapping);

#endif
