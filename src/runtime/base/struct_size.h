/* struct_size.h - structs of the caller's that begin with `size_t struct_size`, which says what of
 * them the caller knew when it was compiled: read and filled up to that, and refused in the same
 * words everywhere where it was not set. */
#ifndef CDDPI_STRUCT_SIZE_H
#define CDDPI_STRUCT_SIZE_H

#include <cddp/status.h>

/** Copy what the caller knows of the struct at @p from (not NULL) to @p to, which holds the
 *  defaults. @p known: its size in this version; @p least: that of the first version.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT ("NAME: struct_size is 0: begin with INIT"). */
cddp_status cddpi_struct_read(const char *name, const char *init, const void *from, size_t known,
                              size_t least, void *to);

/** Fill what the caller knows of the struct at @p to, except struct_size; it may be NULL, which is
 *  refused. */
cddp_status cddpi_struct_fill(const char *name, const char *init, const void *from, size_t known,
                              void *to);

#endif
