/* group_check.h - checks the memory that callers pass to public calls. */
#ifndef CDDPI_GROUP_CHECK_H
#define CDDPI_GROUP_CHECK_H

#include <cddp/group.h>

/** Check that @p data can be @p count elements of @p type: either @p count is 0, or @p data is not
 *  NULL, is aligned to the element's size and fits into the address space. @p call and the
 *  argument's name @p which are for the error text. @p type must be valid.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT. */
cddp_status cddpi_check_memory(const cddp_group *group, const char *call, const char *which,
                               const void *data, size_t count, cddp_type type);

/** Check that @p in and @p out, with the given numbers of bytes, do not overlap: CDDP_OK,
 *  CDDP_ERR_ARGUMENT. */
cddp_status cddpi_check_apart(const cddp_group *group, const char *call, const void *in,
                              size_t in_bytes, const void *out, size_t out_bytes);

#endif
