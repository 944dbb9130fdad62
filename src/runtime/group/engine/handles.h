/* handles.h - owns the handles of operations, which a group reuses. */
#ifndef CDDPI_GROUP_HANDLES_H
#define CDDPI_GROUP_HANDLES_H

#include "base/handle.h"
#include "group/operation.h"

#include <cddp/group.h>

struct cddp_work {
    struct cddpi_handle handle;
    struct cddpi_group_op op;
    cddp_group *group; /* NULL once the group is destroyed */
    /* the operation on the group's device; NULL: the queue runs it */
    struct cddpi_pending *pending;
    struct cddp_work *next;          /* in its channel, in the incoming list or in the free list */
    struct cddp_work *newer, *older; /* list of handles that the caller has */
    struct cddp_work *before; /* the previous operation of the same call, which this handle also
                                 covers; NULL: this is the only one */
    cddp_status status;
    _Atomic uint32_t done; /* 0: no, 1: yes, 2: no, and a thread sleeps on it */
};

/** Get a handle for the caller, initialised as a copy of @p start; NULL with an error text: no
 *  memory. */
struct cddp_work *cddpi_work_take(cddp_group *group, const struct cddp_work *start);
/** Put the handle into the free list. The caller has released it, and no thread waits for it. */
void cddpi_work_put(struct cddp_work *work);

#endif
