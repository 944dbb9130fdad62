/* handles.c - owns the handles of works: those that callers have, and those to be used again. */
#include "base/alloc.h"
#include "base/error.h"
#include "group/group.h"

struct cddp_work *cddpi_work_take(cddp_group *group, const struct cddp_work *start)
{
    struct cddp_work *work = group->free_works;

    if (work != NULL) {
        group->free_works = work->next;
    } else {
        work = cddpi_zalloc(sizeof *work);
    }
    if (work == NULL) {
        (void)cddpi_fail_rank(CDDP_ERR_NO_MEMORY, group->rank, "no memory for a work handle");
        return NULL;
    }
    *work = *start;
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
    work->next = group->free_works;
    group->free_works = work;
}
