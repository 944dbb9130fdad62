/* objects.c - owns the exchange of bytes of any length: first the length, then the bytes. */
#include "base/alloc.h"
#include "base/error.h"
#include "group/engine/group_check.h"
#include "group/engine/group_entry.h"
#include "group/group.h"
#include "group/join/group_agree.h"

#include <cddp/exchange.h>

#include <string.h>

/* Allocate memory for @p bytes and a NUL byte. A rank without memory aborts the group, since the
 * others wait for it. */
static cddp_status reserve_bytes(cddp_group *group, const char *what, uint64_t bytes, char **out)
{
    cddp_status status;

    *out = bytes < CDDPI_BYTES_MAX ? cddpi_zalloc((size_t)bytes + 1) : NULL;
    if (*out != NULL) {
        return CDDP_OK;
    }
    status = cddpi_fail_rank(CDDP_ERR_NO_MEMORY, group->rank, "%s: no memory for %llu bytes", what,
                             (unsigned long long)bytes);
    cddp_group_abort(group, cddp_last_error());
    return status;
}

static cddp_status check_bytes(const cddp_group *group, const char *what, const void *data,
                               size_t bytes, const void *out)
{
    if (out == NULL) {
        return cddpi_fail_rank(CDDP_ERR_ARGUMENT, group->rank, "%s: out is NULL", what);
    }
    return cddpi_check_memory(group, what, "data", data, bytes, CDDP_U8);
}

cddp_status cddp_all_gather_bytes(cddp_group *group, const void *data, size_t bytes, void **out,
                                  size_t *out_bytes)
{
    static const char what[] = "all_gather_bytes";
    uint64_t own = bytes;
    uint64_t sum = 0;
    void *sizes = NULL;
    char *all = NULL;
    cddp_status status;

    CDDPI_ENTER_GROUP(group, what);
    CDDPI_TRY(check_bytes(group, what, data, bytes, out_bytes != NULL ? out : NULL));
    CDDPI_TRY(cddpi_all_gather_bytes(group, &own, sizeof own, &sizes));
    for (int r = 0; r < group->world_size; r++) {
        uint64_t given = ((const uint64_t *)sizes)[r];

        sum = given < UINT64_MAX - sum ? sum + given : UINT64_MAX;
        out_bytes[r] = (size_t)given;
    }
    cddpi_free(sizes);
    CDDPI_TRY(reserve_bytes(group, what, sum, &all));
    status = cddp_all_gatherv(group, data, all, out_bytes, CDDP_U8, NULL);
    if (status != CDDP_OK) {
        cddpi_free(all);
        return status;
    }
    *out = all;
    return CDDP_OK;
}

cddp_status cddp_broadcast_bytes(cddp_group *group, const void *data, size_t bytes, int root,
                                 void **out, size_t *out_bytes)
{
    static const char what[] = "broadcast_bytes";
    uint64_t length = bytes;
    char *copy = NULL;
    cddp_status status;
    bool is_root;

    CDDPI_ENTER_GROUP(group, what);
    is_root = group->rank == root;
    CDDPI_TRY(check_bytes(group, what, data, is_root ? bytes : 0, out));
    CDDPI_TRY(cddp_broadcast(group, &length, sizeof length, CDDP_U8, root, NULL));
    CDDPI_TRY(reserve_bytes(group, what, length, &copy));
    if (is_root && bytes > 0) {
        memcpy(copy, data, bytes);
    }
    status = cddp_broadcast(group, copy, (size_t)length, CDDP_U8, root, NULL);
    if (status != CDDP_OK) {
        cddpi_free(copy);
        return status;
    }
    *out = copy;
    if (out_bytes != NULL) {
        *out_bytes = (size_t)length;
    }
    return CDDP_OK;
}
