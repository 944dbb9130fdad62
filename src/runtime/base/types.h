/* types.h - reads and fills structs of the caller that begin with `size_t struct_size`. That
 * size says which fields the caller knew when it was compiled: only those are read or filled. A
 * struct_size of 0 is refused with the same words everywhere. */
#ifndef CDDPI_BASE_TYPES_H
#define CDDPI_BASE_TYPES_H

#include "base/shared.h"

#include <cddp/status.h>

/** Copy the fields that the caller knows from @p from (not NULL) to @p to, which holds the
 *  defaults. @p known is the struct's size in this version, @p least its size in the first version.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT ("NAME: struct_size is 0: begin with INIT"). */
CDDPI_SHARED cddp_status cddpi_struct_read(const char *name, const char *init, const void *from,
                                           size_t known, size_t least, void *to);

/** Fill the fields that the caller knows in @p to, except struct_size. A NULL @p to is refused. */
CDDPI_SHARED cddp_status cddpi_struct_fill(const char *name, const char *init, const void *from,
                                           size_t known, void *to);

#endif
