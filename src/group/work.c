/* work.c - work handles: test, wait, destroy, wherever their operation runs. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "group/device/device.h"

/* What became of a work that is done: of the first of those that go with it, if that failed. */
static cddp_status result(const struct cddp_work *work)
{
    for (const struct cddp_work *part = work->before; part != NULL; part = part->before) {
        work = part->status != CDDP_OK ? part : work;
    }
    if (work->status == CDDP_OK) {
        return CDDP_OK;
    }
    if (work->group == NULL) {
        return work->status == CDDP_ERR_CLOSED
                   ? cddpi_fail(work->status, "the group was destroyed before this work was done")
                   : cddpi_fail(work->status, "work of a group that is gone: %s",
                                cddp_status_text(work->status));
    }
    return cddpi_group_fail_broken(work->group, work->status);
}

cddp_status cddp_work_test(cddp_work *work, bool *out_done)
{
    if (work->pending != NULL) {
        return cddpi_group_device_test(work, out_done);
    }
    if (work->group != NULL && atomic_load_explicit(&work->done, memory_order_acquire) != 1) {
        cddpi_group_poll(work->group);
    }
    if (atomic_load_explicit(&work->done, memory_order_acquire) != 1) {
        *out_done = false;
        return CDDP_OK;
    }
    *out_done = true;
    return result(work);
}

cddp_status cddp_work_wait(cddp_work *work, uint32_t timeout_ms)
{
    int64_t deadline;

    if (work->pending != NULL) {
        return cddpi_group_device_wait(work, timeout_ms);
    }
    deadline = timeout_ms != 0 ? cddpi_deadline_ns(timeout_ms) : 0;
    if (work->group != NULL && !cddpi_queue_wait(work->group, work, deadline)) {
        return cddpi_fail_rank(CDDP_ERR_TIMEOUT, work->group->rank,
                               "the work was not done within %u ms", timeout_ms);
    }
    return result(work);
}

void cddp_work_destroy(cddp_work *work)
{
    cddp_group *group;

    if (work == NULL) {
        return;
    }
    group = work->group;
    cddp_work_destroy(work->before);
    if (group == NULL) {
        cddpi_free(work);
        return;
    }
    if (work->pending != NULL) {
        cddpi_group_device_drop(work);
    } else {
        (void)cddpi_queue_wait(group, work, 0);
    }
    cddpi_work_put(work);
}
