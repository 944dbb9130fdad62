/* net_measure.h - measures the link between hosts when a group forms. */
#ifndef CDDPI_GROUP_NET_MEASURE_H
#define CDDPI_GROUP_NET_MEASURE_H

#include "group/net/net.h"

enum {
    NET_MEASURE_ROUND = 30, /* in tags, with number 0: no collective is under way yet */
    NET_MEASURED = 256      /* swaps from this index on are cddpi_net_choose_leaders()'s */
};

/** Measure the link between hosts. Collective among all ranks, which get the same numbers. */
cddp_status cddpi_net_measure(struct net_backend *net, const struct cddpi_exchange *exchange);

/** Send @p bytes to @p peer, which does the same, and receive as many; waits.
 *  @param index   Tells apart swaps with the same peer.
 *  @param buffer  What is sent, followed by room for what comes. */
cddp_status cddpi_net_swap(struct net_backend *net, int peer, unsigned index, unsigned char *buffer,
                           size_t bytes);

/** As cddpi_agree_and_gather_by(), after messages between leaders. If this rank failed, those that
 *  may wait for its messages are told first, and it gets its own failure: theirs follow from it. */
cddp_status cddpi_net_agree_on_messages(struct net_backend *net,
                                        const struct cddpi_exchange *exchange, cddp_status mine,
                                        const void *own, size_t bytes, void *out_all);

#endif
