/* pieces.h - cuts a collective into pieces, and moves them. */
#ifndef CDDPI_GROUP_NET_PIECES_H
#define CDDPI_GROUP_NET_PIECES_H

#include "group/net/net_collective.h"

/** Decide into how many pieces the data are cut, and how many leaders have them. */
void cddpi_net_pieces_cut(struct net_backend *net, struct net_collective *collective);
/** Move the pieces on. @p out_done: all are through on this rank. */
cddp_status cddpi_net_pieces_advance(struct net_backend *net, struct net_collective *collective,
                                     bool *out_done);

#endif
