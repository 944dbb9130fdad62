/* group_check.h - what a caller's memory must be, in every call that gets some. */
#ifndef CDDPI_GROUP_CHECK_H
#define CDDPI_GROUP_CHECK_H

#include <cddp/group.h>

/** Whether @p data can be @p count elements of @p type, in the call @p call, whose argument is
 *  called @p which: none, or not NULL, at a multiple of the element's size, and within what a
 * process can have. @p type is one.
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT. */
cddp_status cddpi_check_memory(const cddp_group *group, const char *call, const char *which,
                               const void *data, size_t count, cddp_type type);

/** Whether @p in and @p out, of so many bytes, have none in common: CDDP_OK, CDDP_ERR_ARGUMENT. */
cddp_status cddpi_check_apart(const cddp_group *group, const char *call, const void *in,
                              size_t in_bytes, const void *out, size_t out_bytes);

#endif
