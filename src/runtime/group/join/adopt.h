/* adopt.h - makes the caller's own memory shared among the ranks of one machine, without moving
 * it. */
#ifndef CDDPI_GROUP_ADOPT_H
#define CDDPI_GROUP_ADOPT_H

#include <cddp/group.h>

/* The part of a block that became shared: bytes `low` (included) to `high` (excluded) of the block
 * are shared by all ranks. */
struct cddpi_adopted {
    void *pages; /* pass it to cddp_group_free(), which makes the pages private again; NULL: nothing
                    became shared */
    size_t low;
    size_t high;
};

/** Let all ranks of @p group map the whole pages of [memory, memory + bytes), which keep their
 *  address and contents, so that reductions read and write them in place. Only private memory of
 *  the process can be shared: not a mapped file, the stack, device memory or memory that is already
 *  shared. If sharing fails on any rank, nothing changes on all ranks, and the log says what that
 *  costs. Collective, with the same @p bytes on all ranks. No other thread may write to the memory
 *  during the call.
 *  @param element  Bytes per element: the ranks' parts start at element boundaries.
 *  @param allowed  The caller lets its pages become shared. false: nothing changes, and rank 0's
 *                  log says what that costs. The same on all ranks.
 *  @return Like cddp_group_alloc(). */
CDDP_CHECKED cddp_status cddpi_group_adopt(cddp_group *group, void *memory, size_t bytes,
                                           size_t element, bool allowed, struct cddpi_adopted *out);

#endif
