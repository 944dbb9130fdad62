/* net_open.h - opens a group over several hosts (see struct cddpi_transport), and measures the link
 * between them. */
#ifndef CDDPI_GROUP_NET_OPEN_H
#define CDDPI_GROUP_NET_OPEN_H

#include "group/net/net.h"

cddp_status cddpi_net_open(const struct cddpi_members *members, struct cddpi_backend **out);
cddp_status cddpi_net_split(cddp_group *group, const struct cddpi_open_params *params, int first,
                            bool joins, struct cddpi_backend **out);
void cddpi_net_release(struct net_backend *net);

/* net_measure.c */

/** Measure the link between hosts. Collective among all ranks, which get the same numbers. */
cddp_status cddpi_net_measure(struct net_backend *net, const struct cddpi_exchange *exchange);

/** Set how many leaders each host has: CDDP_LEADERS, or the smallest number beyond which more
 *  leaders are not clearly faster. Also set the rate of all leaders together. Collective among all
 *  ranks, which get the same numbers. */
cddp_status cddpi_net_choose_leaders(struct net_backend *net,
                                     const struct cddpi_exchange *exchange);

extern const struct cddpi_backend_ops cddpi_net_ops; /* net_transport.c */

#endif
