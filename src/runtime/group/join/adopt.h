/* adopt.h - memory of the caller's that ranks of one machine come to share where it lies. */
#ifndef CDDPI_GROUP_ADOPT_H
#define CDDPI_GROUP_ADOPT_H

#include <cddp/group.h>

/* What of a block became shared. Byte `low` of the block is the first that it is for all ranks, and
 * `high` the first behind. */
struct cddpi_adopted {
    void *pages; /* for cddp_group_free(), which gives them back; NULL: nothing became shared */
    size_t low;
    size_t high;
};

/** Let all ranks of @p group map the whole pages of [memory, memory + bytes), which keep their
 *  address and contents, so that reductions read and write them in place. Only private memory of
 *  the process can be: not what is mapped from a file, the stack's, a device's, or shared already.
 *  Where it cannot, on any rank, all stays as it is, and the log says what that costs. Collective,
 *  the same @p bytes everywhere. No other thread may write to the memory meanwhile.
 *  @param element  Bytes of an element: parts begin at whole ones.
 *  @return as cddp_group_alloc(). */
CDDP_CHECKED cddp_status cddpi_group_adopt(cddp_group *group, void *memory, size_t bytes,
                                           size_t element, struct cddpi_adopted *out);

#endif
