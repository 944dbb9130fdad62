/* interface.h - which network interfaces a user means, in the syntax of NCCL_SOCKET_IFNAME. */
#ifndef CDDPI_INTERFACE_H
#define CDDPI_INTERFACE_H

#include <cddp/status.h>

#include <stdbool.h>

/** Whether @p name is one of @p patterns: prefixes with commas between them; behind "=" whole
 *  names; behind "^" those that are not meant. NULL or "": all are. Any thread. */
bool cddpi_interface_matches(const char *patterns, const char *name);

/** Whether @p host can be reached, if it is this machine's loopback.
 *  @return CDDP_OK, CDDP_ERR_UNAVAILABLE: its interface is down, and the text says so. */
CDDP_CHECKED cddp_status cddpi_interface_check_loopback(const char *host);

#endif
