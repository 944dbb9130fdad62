/* watch.h - other hosts, by what carries data and what watches beside it. */
#ifndef CDDPI_GROUP_NET_WATCH_H
#define CDDPI_GROUP_NET_WATCH_H

#include "group/net/net.h"

/** Open what watches where the carrier does not. Collective among all ranks. */
cddp_status cddpi_net_watch_open(struct net_backend *net,
                                 const struct cddpi_carrier_params *params);
void cddpi_net_watch_close(struct net_backend *net);
/** As check(), aborted(), describe() and interface() of struct cddpi_carrier_ops. */
cddp_status cddpi_net_check_hosts(struct net_backend *net);
bool cddpi_net_hosts_aborted(struct net_backend *net, struct cddpi_failure *out);
void cddpi_net_describe_peer(struct net_backend *net, int rank, char *out, size_t bytes);
bool cddpi_net_interface(struct cddpi_backend *backend, char *out, size_t bytes);
/** Let other hosts fail as @p failure says, unless they have been told. Any thread. */
void cddpi_net_abort_hosts(struct net_backend *net, const struct cddpi_failure *failure);

#endif
