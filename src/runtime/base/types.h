/* types.h - reads and fills structs of the caller that begin with `size_t struct_size`. That
 * size says which fields the caller knew when it was compiled: only those are read or filled. A
 * struct_size that no version has (0, garbage) is refused with the same words everywhere, and so
 * are values in fields that this version does not know. */
#ifndef CDDPI_BASE_TYPES_H
#define CDDPI_BASE_TYPES_H

#include "base/shared.h"

#include <cddp/types.h>

/** How many types and reductions there are. */
enum { CDDPI_TYPES = CDDP_BOOL + 1, CDDPI_OPS = CDDP_OP_XOR + 1 };

/** Copy the fields that the caller knows from @p from (not NULL) to @p to, which holds the
 *  defaults. @p known is the struct's size in this version.
 *  @return CDDP_OK; CDDP_ERR_ARGUMENT ("NAME: struct_size is 0: begin with INIT");
 *          CDDP_ERR_UNAVAILABLE (a field that this version does not know is not 0). */
CDDPI_SHARED cddp_status cddpi_struct_read(const char *name, const char *init, const void *from,
                                           size_t known, void *to);

/** Check that the @p bytes bytes of a field called reserved are 0.
 *  @return CDDP_OK, CDDP_ERR_UNAVAILABLE. */
CDDPI_SHARED cddp_status cddpi_reserved_check(const char *name, const void *reserved, size_t bytes);

/** Fill the fields that the caller knows in @p to, except struct_size: no other bytes. A NULL @p to
 * is refused. */
CDDPI_SHARED cddp_status cddpi_struct_fill(const char *name, const char *init, const void *from,
                                           size_t known, void *to);

/** All reserved words of a cddp_param or a cddp_tensor, joined by OR. */
#define CDDPI_RESERVED_OF(tensor)                                                                  \
    ((tensor)->reserved | (tensor)->reserved2[0] | (tensor)->reserved2[1])

/** Check the flags and the reserved words of a struct without struct_size.
 *  @param flags    Those that this version does not know.
 *  @param words    All reserved words, joined by OR.
 *  @return CDDP_OK; CDDP_ERR_UNAVAILABLE: a newer version may know what they ask for. */
CDDPI_SHARED cddp_status cddpi_flags_check(uint32_t flags, uint64_t words);

#endif
