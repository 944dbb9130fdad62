/* group_entry.h - owns how every public call of a group begins and ends, and checks the memory that
 * callers pass. */
#ifndef CDDPI_GROUP_ENTRY_H
#define CDDPI_GROUP_ENTRY_H

#include "base/handle.h"
#include "group/group.h"

#include <cddp/group.h>

/** Begin the public call @p call (its name without cddp_) on @p group in this function. The call
 *  ends when the function returns, at any place: see base/handle.h. */
#define CDDPI_ENTER_GROUP(group, call) CDDPI_ENTER(&(group)->handle, cddpi_group_enter(group, call))

/** Begin the public call @p call (its name without cddp_) on @p group, which may be NULL: see
 *  base/handle.h. On CDDP_OK the call ends with cddpi_group_leave(). */
cddp_status cddpi_group_enter(cddp_group *group, const char *call);
/** The same for objects that keep the group alive, even after the caller has destroyed it. */
cddp_status cddpi_group_enter_kept(cddp_group *group, const char *call);
/** End the call. Returns @p status. */
static inline cddp_status cddpi_group_leave(cddp_group *group, cddp_status status)
{
    return cddpi_handle_leave(&group->handle, status);
}
/** Whether read-only questions about @p group are allowed: by any thread, and also in a forked
 *  child. */
bool cddpi_group_may_ask(const cddp_group *group, const char *call);

/** Note that the public call that has just begun belongs to a cddp_ddp. */
static inline void cddpi_group_call_of_ddp(cddp_group *group)
{
    if (group->handle.depth == 0) {
        group->call_is_of_ddp = true;
    }
}

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
