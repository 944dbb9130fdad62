/* group_entry.c - owns the entry into a group's public calls, and the checks of a caller's memory
 * before an operation starts. */
#include "group/engine/group_entry.h"

#include "base/alloc.h"
#include "base/error.h"
#include "group/group.h"

#include <stdint.h>

cddp_status cddpi_group_enter_kept(cddp_group *group, const char *call)
{
    CDDPI_TRY(cddpi_handle_enter((struct cddpi_handle *)group, CDDPI_HANDLE_GROUP, call));
    if (group->handle.depth == 0) {
        group->call_is_counted = group->call_is_of_ddp = false;
        group->call_found_broken = atomic_load_explicit(&group->broken, memory_order_acquire);
    }
    return CDDP_OK;
}

cddp_status cddpi_group_enter(cddp_group *group, const char *call)
{
    cddp_status status = cddpi_group_enter_kept(group, call);

    if (status == CDDP_OK && group->is_closed && group->handle.depth == 0) {
        return cddpi_group_leave(group, cddpi_fail(CDDP_ERR_CLOSED,
                                                   "%s: the group was destroyed before, and lives "
                                                   "on only for its cddp_ddp",
                                                   call));
    }
    return status;
}

bool cddpi_group_may_ask(const cddp_group *group, const char *call)
{
    return cddpi_handle_check_life((const struct cddpi_handle *)group, CDDPI_HANDLE_GROUP, call) ==
           CDDP_OK;
}

cddp_status cddpi_check_memory(const cddp_group *group, const char *call, const char *which,
                               const void *data, size_t count, cddp_type type)
{
    size_t element = cddp_type_bytes(type);

    if (count == 0) {
        return CDDP_OK;
    }
    if (data == NULL) {
        return cddpi_fail_rank(CDDP_ERR_ARGUMENT, group->rank, "%s: %s is NULL", call, which);
    }
    if (count > CDDPI_BYTES_MAX / element || (uintptr_t)data > UINTPTR_MAX - count * element) {
        return cddpi_fail_rank(CDDP_ERR_ARGUMENT, group->rank,
                               "%s: %zu elements at %p (%s) are too many", call, count, data,
                               which);
    }
    /* Loops read and write whole elements, so C requires aligned addresses. */
    if ((uintptr_t)data % element != 0) {
        return cddpi_fail_rank(CDDP_ERR_ARGUMENT, group->rank,
                               "%s: %s lies at %p, which is not a multiple of the %zu bytes of %s",
                               call, which, data, element, cddp_type_name(type));
    }
    return CDDP_OK;
}

cddp_status cddpi_check_apart(const cddp_group *group, const char *call, const void *in,
                              size_t in_bytes, const void *out, size_t out_bytes)
{
    if (in_bytes == 0 || out_bytes == 0 || (uintptr_t)in >= (uintptr_t)out + out_bytes ||
        (uintptr_t)out >= (uintptr_t)in + in_bytes) {
        return CDDP_OK;
    }
    return cddpi_fail_rank(
        CDDP_ERR_ARGUMENT, group->rank,
        "%s: in (%zu bytes at %p) and out (%zu bytes at %p) overlap, but are not "
        "in place: see cddp/group.h",
        call, in_bytes, in, out_bytes, out);
}
