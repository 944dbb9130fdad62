/* net_measure.h - measures the link between hosts when a group is created. */
#ifndef CDDPI_GROUP_NET_MEASURE_H
#define CDDPI_GROUP_NET_MEASURE_H

#include "group/net/net.h"

enum {
    /* a round number in tags, used with number 0, since no collective is in progress yet */
    NET_MEASURE_ROUND = 30,
    NET_MEASURED = 256 /* swaps from this index on belong to cddpi_net_choose_leaders() */
};

/** Measure the link between hosts. Collective among all ranks, which get the same numbers. */
cddp_status cddpi_net_measure(struct net_backend *net, const struct cddpi_exchange *exchange);

/** Send @p bytes to @p peer, which does the same, and receive the same number of bytes; waits.
 *  @param index   Distinguishes swaps with the same peer.
 *  @param buffer  The data to send, followed by room for the received data. */
cddp_status cddpi_net_swap(struct net_backend *net, int peer, unsigned index, unsigned char *buffer,
                           size_t bytes);

/** Like cddpi_agree_and_gather_by(), for use after messages between leaders. If this rank failed,
 *  it first notifies the ranks that may wait for its messages, and gets its own failure, since the
 *  failures of the others follow from it. */
cddp_status cddpi_net_agree_on_messages(struct net_backend *net,
                                        const struct cddpi_exchange *exchange, cddp_status mine,
                                        const void *own, size_t bytes, void *out_all);

#endif
