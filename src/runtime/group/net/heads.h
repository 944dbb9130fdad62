/* heads.h - how the ranks compare their calls. */
#ifndef CDDPI_GROUP_NET_HEADS_H
#define CDDPI_GROUP_NET_HEADS_H

#include "group/net/net_collective.h"

cddp_status cddpi_net_heads_begin(struct net_backend *net, struct net_collective *collective);
/** Whether the calls of all hosts have been compared; CDDP_ERR_MISMATCH. */
cddp_status cddpi_net_heads_advance(struct net_backend *net, struct net_collective *collective,
                                    bool *out_done);
/** The calls of this host's ranks, which are known. */
cddp_status cddpi_net_heads_compare(struct net_backend *net, struct net_collective *collective);

#endif
