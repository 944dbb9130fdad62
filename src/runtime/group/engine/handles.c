/* handles.c - owns the handles of works: those that callers have, and the free ones. */
#include "group/engine/handles.h"

#include "base/alloc.h"
#include "base/error.h"
#include "group/group.h"

/* How many destroyed handles are kept before the oldest is reused. While kept, the use of a
 * destroyed handle is detected. */
enum { RESTING = 16 };

struct cddp_work *cddpi_work_take(cddp_group *group, const struct cddp_work *start)
{
    struct cddp_work *work = group->free_works;

    if (group->free_count > RESTING) {
        group->free_works = work->next;
        group->free_count--;
    } else {
        work = cddpi_zalloc(sizeof *work);
    }
    if (work == NULL) {
        (void)cddpi_fail_rank(CDDP_ERR_NO_MEMORY, group->rank, "no memory for a work handle");
        return NULL;
    }
    *work = *start;
    cddpi_handle_init(&work->handle, CDDPI_HANDLE_WORK);
    work->older = group->newest;
    if (group->newest != NULL) {
        group->newest->newer = work;
    }
    group->newest = work;
    return work;
}

void cddpi_work_put(struct cddp_work *work)
{
    cddp_group *group = work->group;

    if (work->newer != NULL) {
        work->newer->older = work->older;
    } else {
        group->newest = work->older;
    }
    if (work->older != NULL) {
        work->older->newer = work->newer;
    }
    cddpi_handle_end(&work->handle);
    work->next = NULL;
    if (group->free_works == NULL) {
        group->free_works = work;
    } else {
        group->free_last->next = work;
    }
    group->free_last = work;
    group->free_count++;
}
