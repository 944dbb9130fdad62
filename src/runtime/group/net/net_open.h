/* net_open.h - opens a group over several hosts: see struct cddpi_transport. */
#ifndef CDDPI_GROUP_NET_OPEN_H
#define CDDPI_GROUP_NET_OPEN_H

#include "group/net/net.h"

cddp_status cddpi_net_open(const struct cddpi_members *members, struct cddpi_backend **out);
cddp_status cddpi_net_split(cddp_group *group, const struct cddpi_open_params *params, int first,
                            bool joins, struct cddpi_backend **out);
void cddpi_net_release(struct net_backend *net);

extern const struct cddpi_backend_ops cddpi_net_ops; /* net_transport.c */

#endif
