/* net_describe.h - describes the link of a group over several hosts. */
#ifndef CDDPI_GROUP_NET_DESCRIBE_H
#define CDDPI_GROUP_NET_DESCRIBE_H

#include "group/net/net.h"

bool cddpi_net_link(const struct cddpi_backend *backend, cddp_type type,
                    struct cddpi_group_link *out);

#endif
