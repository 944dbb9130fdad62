/* reach.h - finds out which of a host's addresses this host can reach, for a rendezvous. */
#ifndef CDDPI_GROUP_NET_TCP_REACH_H
#define CDDPI_GROUP_NET_TCP_REACH_H

#include "group/net/tcp/address.h"

enum { TCP_HOST_TEXT_BYTES = 46 };

/** Try to connect to all addresses of @p peer at its port at once. @p out: the first address that
 *  answers, as text.
 *  @return CDDP_OK; CDDP_ERR_UNAVAILABLE with the reason: no address answers; errors of
 *  cddpi_tcp_offer_make(). */
CDDP_CHECKED cddp_status cddpi_tcp_reachable(const struct tcp_offer *peer, uint32_t timeout_ms,
                                             char out[TCP_HOST_TEXT_BYTES]);

#endif
