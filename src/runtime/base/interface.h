/* interface.h - selects network interfaces, in the syntax of NCCL_SOCKET_IFNAME. */
#ifndef CDDPI_INTERFACE_H
#define CDDPI_INTERFACE_H

#include <cddp/status.h>

#include <stdbool.h>

/** Whether the interface @p name matches @p patterns, a list of prefixes separated by commas. A
 *  leading "=" means exact names; a leading "^" excludes the matching interfaces. NULL or ""
 *  matches every interface. Any thread. */
bool cddpi_interface_matches(const char *patterns, const char *name);

/** If @p host is this machine's loopback address, check that its interface is up.
 *  @return CDDP_OK, CDDP_ERR_UNAVAILABLE: the interface is down; the text says so. */
CDDP_CHECKED cddp_status cddpi_interface_check_loopback(const char *host);

#endif
