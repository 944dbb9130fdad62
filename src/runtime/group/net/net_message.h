/* net_message.h - owns send and recv of a group over several hosts. */
#ifndef CDDPI_GROUP_NET_MESSAGE_H
#define CDDPI_GROUP_NET_MESSAGE_H

#include "group/net/net.h"

cddp_status cddpi_net_message(struct net_backend *net, struct cddpi_group_op *op, bool *out_done);
void cddpi_net_message_drop(struct net_backend *net, struct cddpi_group_op *op);
/** The inner operation that carries the message; NULL: the message is between hosts. */
const struct cddpi_group_op *cddpi_net_message_inside(const struct cddpi_group_op *op);

#endif
