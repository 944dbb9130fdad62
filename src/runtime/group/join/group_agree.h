/* group_agree.h - what ranks do together around a step that each takes alone: compare how it went,
 * and exchange small structs. */
#ifndef CDDPI_GROUP_AGREE_H
#define CDDPI_GROUP_AGREE_H

#include "base/error.h"

#include <cddp/group.h>

/** Gather every rank's @p record of @p bytes bytes (the same number everywhere, no pointers in it)
 *  in rank order. Collective. A rank without memory aborts the group: the others wait for it.
 *  @param out  Release with cddpi_free(). */
CDDP_CHECKED cddp_status cddpi_all_gather_bytes(cddp_group *group, const void *record, size_t bytes,
                                                void **out);

/** Make one outcome of all ranks' @p mine, whose failure is this thread's last. Collective, and so
 *  also a barrier: one exchange of a few bytes if all pass CDDP_OK.
 *  @return CDDP_OK if all ranks passed that; else, on every rank, the status of the lowest rank
 *          that failed, with its failure and its name. Or an error of the group. */
CDDP_CHECKED cddp_status cddpi_agree(cddp_group *group, cddp_status mine);

/** The second half of cddpi_agree(), for when all ranks know already that some have failed: they
 *  exchange their @p own failures (status CDDP_OK on a rank that did not fail). Collective.
 *  @param most  How many failed ranks the text names, lowest first. If more than one, the text also
 *               says how many it leaves out.
 *  @return On every rank the status and the failure of the lowest rank that failed. */
CDDP_CHECKED cddp_status cddpi_agree_on_failure(cddp_group *group, const struct cddpi_failure *own,
                                                int most);

/** How small structs are exchanged where there may be no group: among ranks that a device's
 *  transport connects. @p all_gather is collective. */
struct cddpi_exchange {
    void *context;
    int world_size;
    cddp_status (*all_gather)(void *context, const void *own, size_t bytes, void *out_all);
    /* CDDP_OK, or why a rank will not come to the next exchange; does not wait. NULL: nobody knows.
     */
    cddp_status (*check)(void *context);
};

/** cddpi_agree() by @p exchange; a rank without memory takes part in nothing. */
CDDP_CHECKED cddp_status cddpi_agree_by(const struct cddpi_exchange *exchange, cddp_status mine);

/** cddpi_agree_by(), and in the same exchange what ranks tell each other if all have succeeded:
 * each its @p own @p bytes bytes, of which @p out_all gets all ranks', unless the call fails. A
 * rank that has failed may have neither. */
CDDP_CHECKED cddp_status cddpi_agree_and_gather_by(const struct cddpi_exchange *exchange,
                                                   cddp_status mine, const void *own, size_t bytes,
                                                   void *out_all);

#endif
