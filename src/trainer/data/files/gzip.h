/* gzip.h - inflates a whole gzip file (RFC 1952, one or more members) into a growable mapping. */
#ifndef CDDPI_DATA_FILES_GZIP_H
#define CDDPI_DATA_FILES_GZIP_H

#include "data/files/growable_mapping.h"

/** Whether the contents begin as a gzip file does. */
bool cddpi_is_gzip(const uint8_t *in, size_t in_bytes);

/** The size of the contents that begin with @p head, according to their own header; 0: unknown. */
typedef uint64_t (*cddpi_size_of)(const uint8_t *head, size_t head_bytes);

/** Inflate @p in, checking every member's CRC and length. The length in a gzip file is only a first
 *  guess. The result is bounded by what @p in_bytes can hold, by the free memory, and by 16 GiB.
 *  @param path       For error texts.
 *  @param size_of    Upper bound of the result; memory for it is reserved before inflating. NULL:
 *                    unknown.
 *  @param shareable  Inflate into a memory file, if the system has them.
 *  @param out        Exactly as long as the contents. Release with cddpi_growable_mapping_free().
 *  @return CDDP_OK, CDDP_ERR_FORMAT, CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_gunzip(const char *path, const uint8_t *in, size_t in_bytes,
                                      bool shareable, cddpi_size_of size_of,
                                      struct cddpi_growable_mapping *out);

#endif
