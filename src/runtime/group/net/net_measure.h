/* net_measure.h - measures the link between hosts when a group is created, and chooses how many
 * leaders each host has. */
#ifndef CDDPI_GROUP_NET_MEASURE_H
#define CDDPI_GROUP_NET_MEASURE_H

#include "group/net/net.h"

/** Measure the link between hosts. Collective among all ranks, which get the same numbers. */
cddp_status cddpi_net_measure(struct net_backend *net, const struct cddpi_exchange *exchange);

/** Set how many leaders each host has: CDDP_LEADERS, or the smallest number beyond which more
 *  leaders are not clearly faster. Also set the rate of all leaders together. Collective among all
 *  ranks, which get the same numbers. */
cddp_status cddpi_net_choose_leaders(struct net_backend *net,
                                     const struct cddpi_exchange *exchange);

#endif
