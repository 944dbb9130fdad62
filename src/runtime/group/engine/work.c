/* work.c - owns test, wait and destroy of work handles, wherever their operation runs. */
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "group/device/group_device.h"
#include "group/engine/group_entry.h"
#include "group/engine/group_state.h"
#include "group/engine/handles.h"

/* The status of a work that is done: that of the first failed work in its chain. */
static cddp_status result_of(const struct cddp_work *work)
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

/* Begin the call @p call. A work and its group, if that still exists, count as one object: only one
 * thread at a time may be in calls of either. */
static cddp_status enter_work(cddp_work *work, const char *call)
{
    CDDPI_TRY(cddpi_handle_check((struct cddpi_handle *)work, CDDPI_HANDLE_WORK, call));
    return work->group != NULL ? cddpi_group_enter_kept(work->group, call) : CDDP_OK;
}

#define ENTER_WORK(work, call)                                                                     \
    CDDPI_ENTER((work)->group != NULL ? &(work)->group->handle : NULL, enter_work(work, call))

cddp_status cddp_work_test(cddp_work *work, bool *out_done)
{
    ENTER_WORK(work, "work_test");
    if (out_done == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "work_test: out_done is NULL");
    }
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
    return result_of(work);
}

cddp_status cddp_work_wait(cddp_work *work)
{
    ENTER_WORK(work, "work_wait");
    if (work->pending != NULL) {
        return cddpi_group_device_order(work);
    }
    if (work->group != NULL) {
        (void)cddpi_queue_wait(work->group, work, 0);
    }
    return result_of(work);
}

cddp_status cddp_work_wait_host(cddp_work *work, uint32_t timeout_ms, bool *out_done)
{
    int64_t deadline;

    ENTER_WORK(work, "work_wait_host");
    if (out_done == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "work_wait_host: out_done is NULL");
    }
    /* without one, the operation's own deadline ends the wait */
    deadline = timeout_ms != CDDP_TIMEOUT_DEFAULT ? cddpi_deadline_ns(timeout_ms) : 0;
    if (work->pending != NULL) {
        return cddpi_group_device_wait(work, deadline, out_done);
    }
    *out_done = work->group == NULL || cddpi_queue_wait(work->group, work, deadline);
    return *out_done ? result_of(work) : CDDP_OK;
}

/* Destroy the handle of a group that still exists, which also ends the call. */
static void destroy_entered(cddp_work *work, cddp_group *group)
{
    cddp_work_destroy(work->before);
    if (!cddpi_handle_is_own(&group->handle)) {
        return; /* a forked child: the handle is released with the child's copy of the group */
    }
    if (work->pending != NULL) {
        cddpi_group_device_drop(work);
    } else {
        (void)cddpi_queue_wait(group, work, 0);
        if (work->status != CDDP_OK && !group->is_told) {
            (void)result_of(work);
            cddpi_log(CDDPI_LOG_WARN,
                      "a work handle is destroyed without a wait, so nobody gets its "
                      "error: %s",
                      cddp_last_error());
        }
    }
    cddpi_work_put(work);
    (void)cddpi_group_leave(group, CDDP_OK);
}

void cddp_work_destroy(cddp_work *work)
{
    if (work == NULL ||
        !cddpi_handle_enter_last(&work->handle, CDDPI_HANDLE_WORK, "work_destroy")) {
        return;
    }
    if (work->group == NULL) {
        cddp_work_destroy(work->before);
        cddpi_handle_release(&work->handle, sizeof *work);
    } else if (cddpi_handle_enter_last(&work->group->handle, CDDPI_HANDLE_GROUP, "work_destroy")) {
        destroy_entered(work, work->group);
    } else {
        (void)cddpi_handle_leave(&work->handle, CDDP_OK);
    }
}
