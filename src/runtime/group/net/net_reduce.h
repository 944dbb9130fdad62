/* net_reduce.h - owns all_reduce and reduce between hosts. */
#ifndef CDDPI_GROUP_NET_REDUCE_H
#define CDDPI_GROUP_NET_REDUCE_H

#include "group/net/net_collective.h"

cddp_status cddpi_net_reduce_choose(struct net_backend *net, struct net_collective *collective);
cddp_status cddpi_net_reduce_begin(struct net_backend *net, struct net_collective *collective,
                                   struct net_piece *piece);
cddp_status cddpi_net_reduce_advance(struct net_backend *net, struct net_collective *collective,
                                     struct net_piece *piece, bool *out_done);
/** Initialise @p slots with this host's parts of block @p block of the piece. */
cddp_status cddpi_net_own_parts(struct net_backend *net, const struct net_collective *collective,
                                struct net_piece *piece, size_t block, struct net_slot *slots);
/** Compute factors from the weights, once all are known. */
void cddpi_net_use_weights(struct net_backend *net, struct net_collective *collective);

#endif
