/* pieces.h - cuts a collective into pieces, and moves them. */
#ifndef CDDPI_GROUP_NET_PIECES_H
#define CDDPI_GROUP_NET_PIECES_H

#include "group/net/net_collective.h"

/** Decide into how many pieces the data is cut, and how many leaders share them. */
void cddpi_net_pieces_cut(struct net_backend *net);
/** Advance the pieces. @p out_done: all pieces are done on this rank. */
cddp_status cddpi_net_pieces_advance(struct net_backend *net, bool *out_done);

#endif
