/* source.h - the contents of one data file as read-only memory: a plain file is mapped as it is, a
 * gzip'd one inflated. Other processes of the machine can map what one of them has opened. */
#ifndef CDDPI_DATA_SOURCE_H
#define CDDPI_DATA_SOURCE_H

#include "data/pages.h"

struct cddpi_source {
    const uint8_t *data; /* NULL: closed */
    size_t bytes;
    int fd; /* what other processes may map, -1 for nothing; see cddpi_source_close_fd() */
};

/* Where a process's source is found by the others of its machine. */
struct cddpi_source_address {
    int64_t pid;
    int64_t fd;          /* of that process; -1: cannot be shared */
    uint64_t dev, inode; /* of the file behind it, against numbers of another process namespace */
    uint64_t bytes;
};

/** Map or inflate the file at @p path.
 *  @param shareable  Keep a descriptor, and inflate into memory that has one, where there is such.
 *  @param out        Release with cddpi_source_close().
 *  @return CDDP_OK, CDDP_ERR_NOT_FOUND, CDDP_ERR_IO, CDDP_ERR_FORMAT, CDDP_ERR_NO_MEMORY; texts
 *          begin with the path. */
CDDP_CHECKED cddp_status cddpi_source_open(const char *path, bool shareable,
                                           struct cddpi_source *out);
void cddpi_source_close(struct cddpi_source *source); /* accepts a zeroed or closed one */

/** Map the file at @p path as it is, for this process only; likewise. */
CDDP_CHECKED cddp_status cddpi_source_open_plain(const char *path, struct cddpi_source *out);

/** Make a source of @p pages: read-only from now on, also for others that map it. @p pages are left
 *  to the caller on failure only. */
CDDP_CHECKED cddp_status cddpi_source_freeze(const char *path, struct cddpi_pages *pages,
                                             struct cddpi_source *out);

/** Others have mapped it by now: only the memory stays. */
void cddpi_source_close_fd(struct cddpi_source *source);

/** Where this process's @p source is. */
void cddpi_source_address(const struct cddpi_source *source, struct cddpi_source_address *out);

/** Map another process's source. Fails where processes cannot see each other's files (containers):
 *  CDDP_ERR_UNAVAILABLE; the caller then opens the file itself. */
CDDP_CHECKED cddp_status cddpi_source_map(const struct cddpi_source_address *address,
                                          struct cddpi_source *out);

#endif
