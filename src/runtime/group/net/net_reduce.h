/* net_reduce.h - owns all_reduce and reduce between hosts. */
#ifndef CDDPI_GROUP_NET_REDUCE_H
#define CDDPI_GROUP_NET_REDUCE_H

#include "group/net/net_collective.h"

/** Choose the plan of a collective that reduces. */
cddp_status cddpi_net_reduce_choose(struct net_backend *net);
cddp_status cddpi_net_reduce_begin(struct net_backend *net, struct net_piece *piece);
cddp_status cddpi_net_reduce_advance(struct net_backend *net, struct net_piece *piece,
                                     bool *out_done);
/** Initialise the piece's slots with this host's parts of block @p block. */
cddp_status cddpi_net_own_parts(const struct net_backend *net, struct net_piece *piece,
                                size_t block);
/** Compute factors from the weights, once all are known. */
void cddpi_net_use_weights(struct net_backend *net);

#endif
