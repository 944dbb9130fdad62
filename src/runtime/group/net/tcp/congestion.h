/* congestion.h - chooses the kernel's congestion control algorithm for data connections. */
#ifndef CDDPI_GROUP_NET_TCP_CONGESTION_H
#define CDDPI_GROUP_NET_TCP_CONGESTION_H

#include <cddp/status.h>

#include <stdbool.h>
#include <stdint.h>

/** CDDP_ERR_ARGUMENT with a text: the kernel does not let this process use CDDP_CONGESTION. */
cddp_status cddpi_tcp_congestion_check(void);

/** Whether @p system, the host's default algorithm, is unsuitable for a peer with a round trip of
 *  @p round_trip_us. */
bool cddpi_tcp_congestion_is_unfit(const char *system, uint32_t round_trip_us);

/** Use CDDP_CONGESTION for the connected socket @p fd; if it is not set, the algorithm that suits
 *  the peer. */
void cddpi_tcp_congestion_choose(int fd);
#endif
