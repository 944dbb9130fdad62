/* growable_mapping.h - owns writable memory that grows by remapping: decoded and inflated files go
 * there. */
#ifndef CDDPI_DATA_FILES_GROWABLE_MAPPING_H
#define CDDPI_DATA_FILES_GROWABLE_MAPPING_H

#include <cddp/status.h>

#include <stdbool.h>

struct cddpi_growable_mapping {
    uint8_t *data;
    size_t bytes;
    int fd; /* its memory file; -1: private memory */
};

/** @param path       For error texts.
 *  @param bytes      > 0; zeros, which take no memory until they are written.
 *  @param shareable  Use a memory file, if the system has them.
 *  @param out        Release with cddpi_growable_mapping_free().
 *  @return CDDP_OK, CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_growable_mapping_create(const char *path, size_t bytes,
                                                       bool shareable,
                                                       struct cddpi_growable_mapping *out);

/** Grow or shrink @p mapping; its data may move. Returns as create. */
CDDP_CHECKED cddp_status cddpi_growable_mapping_resize(const char *path, size_t bytes,
                                                       struct cddpi_growable_mapping *mapping);
void cddpi_growable_mapping_free(struct cddpi_growable_mapping *mapping);

#endif
