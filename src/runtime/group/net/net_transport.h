/* net_transport.h - owns the transport "net" and its functions. */
#ifndef CDDPI_GROUP_NET_TRANSPORT_H
#define CDDPI_GROUP_NET_TRANSPORT_H

#include "group/net/net.h"

extern const struct cddpi_backend_ops cddpi_net_ops;

#endif
