/* gzip.h - inflating a whole gzip file (RFC 1952, one or more members) into pages of memory. */
#ifndef CDDPI_DATA_GZIP_H
#define CDDPI_DATA_GZIP_H

#include "data/pages.h"

/** Whether the contents begin as a gzip file does. */
bool cddpi_is_gzip(const uint8_t *in, size_t in_bytes);

/** Inflate @p in, checking every member's CRC and length. What a file says about its length is only
 *  a first guess; the result is bounded by what so many bytes can hold, and by 16 GiB.
 *  @param path       For texts of failures.
 *  @param shareable  Into a memory file, if the system has them.
 *  @param out        Exactly as long as the contents. Release with cddpi_pages_free().
 *  @return CDDP_OK, CDDP_ERR_FORMAT, CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_gunzip(const char *path, const uint8_t *in, size_t in_bytes,
                                      bool shareable, struct cddpi_pages *out);

#endif
