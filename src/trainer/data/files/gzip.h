/* gzip.h - inflating a whole gzip file (RFC 1952, one or more members) into a growable mapping. */
#ifndef CDDPI_DATA_FILES_GZIP_H
#define CDDPI_DATA_FILES_GZIP_H

#include "data/files/growable_mapping.h"

/** Whether the contents begin as a gzip file does. */
bool cddpi_is_gzip(const uint8_t *in, size_t in_bytes);

/** The size of contents that begin with @p head, as they say themselves; 0: they do not. */
typedef uint64_t (*cddpi_size_of)(const uint8_t *head, size_t head_bytes);

/** Inflate @p in, checking every member's CRC and length. What a gzip file says about its length is
 *  only a first guess; the result is bounded by what so many bytes can hold, by the memory that
 *  is left, and by 16 GiB.
 *  @param path       For texts of failures.
 *  @param size_of    The result is not larger than this says, and memory for it is there before it
 *                    is made; NULL: it is not known.
 *  @param shareable  Into a memory file, if the system has them.
 *  @param out        Exactly as long as the contents. Release with cddpi_growable_mapping_free().
 *  @return CDDP_OK, CDDP_ERR_FORMAT, CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_gunzip(const char *path, const uint8_t *in, size_t in_bytes,
                                      bool shareable, cddpi_size_of size_of,
                                      struct cddpi_growable_mapping *out);

#endif
