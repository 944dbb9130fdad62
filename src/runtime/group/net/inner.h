/* inner.h - runs the operations inside a host that are parts of a collective. */
#ifndef CDDPI_GROUP_NET_INNER_H
#define CDDPI_GROUP_NET_INNER_H

#include "group/net/net_collective.h"

/** Begin an operation among this host's ranks, as a part of @p collective.
 *  @param root  A rank of the group; the first leader if @p kind has no root. */
void cddpi_net_inner_begin(struct net_backend *net, struct net_collective *collective,
                           enum cddpi_kind kind, int root, const void *in, void *out, size_t bytes);
/** Advance that operation. @p out_done: it has ended, or there was no operation. */
cddp_status cddpi_net_inner_advance(struct net_backend *net, struct net_collective *collective,
                                    bool *out_done);

#endif
