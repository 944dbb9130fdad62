/* handles.h - handles of operations, which a group uses again. */
#ifndef CDDPI_GROUP_HANDLES_H
#define CDDPI_GROUP_HANDLES_H

#include "base/handle.h"
#include "group/operation.h"

#include <cddp/group.h>

struct cddp_work {
    struct cddpi_handle handle;
    struct cddpi_group_op op;
    cddp_group *group;               /* NULL once the group is destroyed */
    struct cddpi_pending *pending;   /* of the group's device; NULL: the queue runs it */
    struct cddp_work *next;          /* in its channel, the incoming list or the free list */
    struct cddp_work *newer, *older; /* handles that the caller has */
    struct cddp_work *before;        /* the operation before this one in the same call, which this
                                        handle also stands for; NULL: this is the only one */
    cddp_status status;
    _Atomic uint32_t done; /* 0 no, 1 yes, 2 no and someone sleeps on it */
};

/** A handle for the caller, begun as a copy of @p start; NULL with a text: no memory. */
struct cddp_work *cddpi_work_take(cddp_group *group, const struct cddp_work *start);
/** The caller has given the handle back, and nobody waits for it: it may be used again. */
void cddpi_work_put(struct cddp_work *work);

#endif
