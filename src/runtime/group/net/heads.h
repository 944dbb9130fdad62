/* heads.h - compares the calls of ranks on several hosts. */
#ifndef CDDPI_GROUP_NET_HEADS_H
#define CDDPI_GROUP_NET_HEADS_H

#include "group/net/net_collective.h"

cddp_status cddpi_net_heads_begin(struct net_backend *net);
/** Advance the comparison of all hosts' calls. @p out_done: they have been compared.
 *  CDDP_ERR_MISMATCH: the calls differ. */
cddp_status cddpi_net_heads_advance(struct net_backend *net, bool *out_done);
/** Compare the calls of this host's ranks, which are known by now. */
cddp_status cddpi_net_heads_compare(const struct net_backend *net);

#endif
