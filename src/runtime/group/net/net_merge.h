/* net_merge.h - what the sums of a round of a schedule are. */
#ifndef CDDPI_GROUP_NET_MERGE_H
#define CDDPI_GROUP_NET_MERGE_H

#include "group/net/net_collective.h"
#include "kernels/cpu/reduce.h"

/* A round's merges, in memory of the piece's arena. */
struct net_merging {
    struct cddpi_reduce_merges how;
    struct cddpi_reduce_merge *merges; /* those of `how`, to be written */
    size_t begin, end;                 /* the range, in elements of the piece */
    bool is_empty;                     /* the round has none */
    bool finishes;                     /* how.root is the result */
};

/** The merges of the piece's present round of @p schedule, whose operands are the slots. Where the
 *  round ends with the result, the caller says where that goes. */
cddp_status cddpi_net_merging(const struct net_backend *net,
                              const struct net_collective *collective, struct net_piece *piece,
                              const struct cddpi_net_schedule *schedule, struct net_merging *out);

#endif
