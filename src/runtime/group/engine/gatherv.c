/* gatherv.c - owns the gathering of blocks of different lengths: one broadcast per rank, from its
 * block's place to the same place on all ranks, so that nothing is padded. */
#include "base/alloc.h"
#include "base/error.h"
#include "group/device/group_device.h"
#include "group/engine/group_check.h"
#include "group/engine/group_entry.h"
#include "group/engine/handles.h"

#include <cddp/exchange.h>

#include <string.h>

/* Count the elements before each rank's block, and in total; checks for overflow. */
static cddp_status count_before(const cddp_group *group, const size_t *counts, cddp_type type,
                                size_t *out_own, size_t *out_all)
{
    size_t most = CDDPI_BYTES_MAX / cddp_type_bytes(type);
    size_t all = 0;

    for (int r = 0; r < group->world_size; r++) {
        if (r == group->rank) {
            *out_own = all;
        }
        if (counts[r] > most - all) {
            return cddpi_fail_rank(CDDP_ERR_ARGUMENT, group->rank,
                                   "all_gatherv: %zu elements of rank %d are too many", counts[r],
                                   r);
        }
        all += counts[r];
    }
    *out_all = all;
    return CDDP_OK;
}

static cddp_status check_blocks(const cddp_group *group, const void *in, const void *out,
                                const size_t *counts, cddp_type type, size_t *out_own)
{
    static const char call[] = "all_gatherv";
    size_t element = cddp_type_bytes(type);
    size_t all = 0;

    if (element == 0) {
        return cddpi_fail_rank(CDDP_ERR_ARGUMENT, group->rank, "%s: there is no element type %d",
                               call, (int)type);
    }
    if (counts == NULL) {
        return cddpi_fail_rank(CDDP_ERR_ARGUMENT, group->rank, "%s: counts is NULL", call);
    }
    CDDPI_TRY(count_before(group, counts, type, out_own, &all));
    CDDPI_TRY(cddpi_check_memory(group, call, "in", in, counts[group->rank], type));
    CDDPI_TRY(cddpi_check_memory(group, call, "out", out, all, type));
    if (out == NULL ||
        in == (const char *)out + *out_own * element) { /* NULL: no rank has any elements */
        return CDDP_OK;
    }
    return cddpi_check_apart(group, call, in, counts[group->rank] * element, out, all * element);
}

/* Copy this rank's block to its place, in CPU or device memory. */
static cddp_status place_own(cddp_group *group, void *to, const void *from, size_t bytes)
{
    struct cddpi_device *device = cddpi_group_on_device(group);

    if (to == from || bytes == 0) {
        return CDDP_OK;
    }
    if (cddpi_group_has_device(group) && device->ops->owns(device, to)) {
        return device->ops->copy(device, CDDPI_STREAM_COMPUTE, to, from, bytes);
    }
    memmove(to, from, bytes);
    return CDDP_OK;
}

/* Start the broadcasts. Their handles are linked to that of the last broadcast, which is done after
 * all others. */
static cddp_status start_all(cddp_group *group, unsigned char *out, const size_t *counts,
                             cddp_type type, cddp_work **out_last)
{
    cddp_work *last = NULL;
    size_t element = cddp_type_bytes(type);

    for (int r = 0; r < group->world_size; r++) {
        cddp_work *work = NULL;
        cddp_status status = cddp_broadcast(group, out, counts[r], type, r, &work);

        if (status != CDDP_OK) {
            struct cddpi_failure failure = *cddpi_last_failure();

            /* the other ranks will start this broadcast */
            cddp_group_abort(group, cddp_last_error());
            cddp_work_destroy(last);
            return cddpi_fail_again(status, &failure);
        }
        work->before = last;
        last = work;
        out += counts[r] * element;
    }
    *out_last = last;
    return CDDP_OK;
}

cddp_status cddp_all_gatherv(cddp_group *group, const void *in, void *out, const size_t *counts,
                             cddp_type type, cddp_work **work)
{
    /* placeholder for blocks without elements, if the caller has no memory */
    static unsigned char nothing;
    size_t element = cddp_type_bytes(type);
    cddp_work *last = NULL;
    size_t own = 0;
    cddp_status status;

    CDDPI_ENTER_GROUP(group, "all_gatherv");
    CDDPI_TRY(check_blocks(group, in, out, counts, type, &own));
    out = out != NULL ? out : &nothing;
    CDDPI_TRY(place_own(group, (char *)out + own * element, in, counts[group->rank] * element));
    CDDPI_TRY(start_all(group, out, counts, type, &last));
    if (work != NULL) {
        *work = last;
        return CDDP_OK;
    }
    status = cddp_work_wait(last, 0);
    cddp_work_destroy(last);
    return status;
}
