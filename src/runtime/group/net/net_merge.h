/* net_merge.h - prepares the sums of one round of a schedule. */
#ifndef CDDPI_GROUP_NET_MERGE_H
#define CDDPI_GROUP_NET_MERGE_H

#include "group/net/net_collective.h"
#include "kernels/cpu/reduce.h"

/* The merges of one round, in memory of the piece's arena. */
struct net_merging {
    struct cddpi_reduce_merges how;
    struct cddpi_reduce_merge *merges; /* the merges of `how`, writable */
    size_t begin, end;                 /* the range, in elements of the piece */
    bool is_empty;                     /* the round has no merges */
    bool finishes;                     /* how.root is the result */
};

/** Prepare the merges of the piece's current round of @p schedule; their operands are the slots. If
 *  the round produces the result, the caller must set where it goes. */
cddp_status cddpi_net_merging(const struct net_backend *net,
                              const struct net_collective *collective, struct net_piece *piece,
                              const struct cddpi_net_schedule *schedule, struct net_merging *out);

#endif
