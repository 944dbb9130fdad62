/* congestion.h - which algorithm of the kernel decides how fast a data connection sends. */
#ifndef CDDPI_GROUP_NET_TCP_CONGESTION_H
#define CDDPI_GROUP_NET_TCP_CONGESTION_H

#include <cddp/status.h>

#include <stdbool.h>
#include <stdint.h>

/** CDDP_ERR_ARGUMENT with a text: the kernel does not let this process use CDDP_CONGESTION. */
cddp_status cddpi_tcp_congestion_check(void);

/** Whether @p system, a host's default, is not for a peer whose answers take @p round_trip_us. */
bool cddpi_tcp_congestion_is_unfit(const char *system, uint32_t round_trip_us);

/** Use CDDP_CONGESTION for the connected socket @p fd, or what fits its peer. */
void cddpi_tcp_congestion_choose(int fd);
#endif
