/* leaders.h - chooses how many leaders each host has. */
#ifndef CDDPI_GROUP_NET_LEADERS_H
#define CDDPI_GROUP_NET_LEADERS_H

#include "group/net/net.h"

/** Set how many leaders each host has: CDDP_LEADERS, or the smallest number beyond which more
 *  leaders are not clearly faster. Also set the rate of all leaders together. Collective among all
 *  ranks, which get the same numbers. */
cddp_status cddpi_net_choose_leaders(struct net_backend *net,
                                     const struct cddpi_exchange *exchange);

#endif
