/* leaders.h - how many leaders each host has. */
#ifndef CDDPI_GROUP_NET_LEADERS_H
#define CDDPI_GROUP_NET_LEADERS_H

#include "group/net/net.h"

/** Set how many leaders each host has: CDDP_LEADERS, or as many as together move
 *  distinctly more than fewer do; and what they move together. Collective among all ranks, which
 *  get the same numbers. */
cddp_status cddpi_net_choose_leaders(struct net_backend *net,
                                     const struct cddpi_exchange *exchange);

#endif
