/* net_move.h - owns the collectives that move blocks between hosts. */
#ifndef CDDPI_GROUP_NET_MOVE_H
#define CDDPI_GROUP_NET_MOVE_H

#include "group/net/net_collective.h"

cddp_status cddpi_net_move_begin(struct net_backend *net, struct net_piece *piece);
cddp_status cddpi_net_move_advance(struct net_backend *net, struct net_piece *piece,
                                   bool *out_done);

#endif
