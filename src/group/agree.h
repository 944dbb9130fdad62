/* agree.h - what ranks do together around a step that each takes alone: compare how it went, and
 * exchange small records. */
#ifndef CDDPI_GROUP_AGREE_H
#define CDDPI_GROUP_AGREE_H

#include <cddp/group.h>

/** Every rank's @p record of @p bytes bytes (the same number everywhere, no pointers in it), in
 *  rank order. Collective. A rank without memory aborts the group: the others are waiting for it.
 *  @param out  Release with cddpi_free(). */
CDDP_CHECKED cddp_status cddpi_share_records(cddp_group *group, const void *record, size_t bytes,
                                             void **out);

/** Make one outcome of every rank's @p mine, whose text is cddp_last_error(). Collective, and so
 *  also a barrier.
 *  @return CDDP_OK if it was that on all ranks; else, on every rank, the status of the lowest one
 *          that failed and "rank R: " before its text. Or an error of the group. */
CDDP_CHECKED cddp_status cddpi_agree(cddp_group *group, cddp_status mine);

#endif
