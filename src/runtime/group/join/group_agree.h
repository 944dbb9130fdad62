/* group_agree.h - owns collective helpers for steps that each rank takes alone: agree on one
 * status, and exchange small structs. */
#ifndef CDDPI_GROUP_AGREE_H
#define CDDPI_GROUP_AGREE_H

#include "base/error.h"

#include <cddp/group.h>

/** Gather every rank's @p record of @p bytes bytes in rank order. @p bytes is the same on all
 *  ranks; records have no pointers. Collective. A rank without memory aborts the group, since the
 *  others wait for it.
 *  @param out  Release with cddpi_free(). */
CDDP_CHECKED cddp_status cddpi_all_gather_bytes(cddp_group *group, const void *record, size_t bytes,
                                                void **out);

/** Agree on one status from all ranks' @p mine. The text of a failure is this thread's last error.
 *  Collective, and so also a barrier. Costs one exchange of a few bytes if all ranks pass CDDP_OK.
 *  @return CDDP_OK if all ranks passed CDDP_OK; else, on every rank, the status and text of the
 *          lowest rank that failed, with its name. Or an error of the group. */
CDDP_CHECKED cddp_status cddpi_agree(cddp_group *group, cddp_status mine);

/** The second half of cddpi_agree(), if all ranks already know that some rank failed: the ranks
 *  exchange their @p own failures (status CDDP_OK on a rank that did not fail). Collective.
 *  @param most  How many failed ranks the text names at most, lowest first. If above 1, the text
 *               also says how many failed ranks it does not name.
 *  @return On every rank, the status and failure of the lowest rank that failed. */
CDDP_CHECKED cddp_status cddpi_agree_on_failure(cddp_group *group, const struct cddpi_failure *own,
                                                int most);

/** How small structs are exchanged where there may be no group, among ranks that a device transport
 *  connects. @p all_gather is collective. */
struct cddpi_exchange {
    void *context;
    int world_size;
    cddp_status (*all_gather)(void *context, const void *own, size_t bytes, void *out_all);
    /* CDDP_OK, or the reason why a rank will not take part in the next exchange; does not wait.
     * NULL: not known.
     */
    cddp_status (*check)(void *context);
};

/** cddpi_agree() through @p exchange. A rank without memory does not take part. */
CDDP_CHECKED cddp_status cddpi_agree_by(const struct cddpi_exchange *exchange, cddp_status mine);

/** cddpi_agree_by() that also gathers, in the same exchange, @p own of @p bytes bytes from every
 *  rank. A rank that has failed may pass NULL for @p own.
 *  @param out  The data of all ranks, by rank. Release with cddpi_free(). */
CDDP_CHECKED cddp_status cddpi_agree_and_gather_by(const struct cddpi_exchange *exchange,
                                                   cddp_status mine, const void *own, size_t bytes,
                                                   void **out);

#endif
