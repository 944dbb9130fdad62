/* watch.h - monitors other hosts through the carrier, or through a second one that only watches,
 * and owns what a carrier calls from its own thread. */
#ifndef CDDPI_GROUP_NET_WATCH_H
#define CDDPI_GROUP_NET_WATCH_H

#include "group/net/net.h"

/** Open the second carrier, if the first does not detect hosts that disappear. Collective among all
 *  ranks. */
cddp_status cddpi_net_watch_open(struct net_backend *net,
                                 const struct cddpi_carrier_params *params);
void cddpi_net_watch_close(struct net_backend *net);
/** Like check(), aborted(), describe() and interfaces() of struct cddpi_carrier_ops. */
cddp_status cddpi_net_check_hosts(struct net_backend *net);
bool cddpi_net_hosts_aborted(struct net_backend *net, struct cddpi_failure *out);
void cddpi_net_describe_peer(struct net_backend *net, int rank, char *out, size_t bytes);
bool cddpi_net_interfaces(struct cddpi_backend *backend, char *out, size_t bytes);
/** Make other hosts fail with @p failure, unless they already know. Any thread. */
void cddpi_net_abort_hosts(struct net_backend *net, const struct cddpi_failure *failure);

/** End this rank's sleep. Any thread. */
void cddpi_net_wake(struct cddpi_backend *backend);
/** The same, called by the carrier. @p context is the rank's struct. */
void cddpi_net_wake_by_carrier(void *context);
/** Whether the ranks of this host have failed and other hosts do not know it yet. If true, the
 *  caller must notify them. @p context is the rank's struct. Any thread. */
bool cddpi_net_host_failed(void *context, struct cddpi_failure *out);

#endif
