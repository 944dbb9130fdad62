/* interface.h - selects network interfaces, in the syntax of NCCL_SOCKET_IFNAME, and checks
 * addresses of this machine. Any thread. */
#ifndef CDDPI_INTERFACE_H
#define CDDPI_INTERFACE_H

#include <cddp/status.h>

#include <stdbool.h>
#include <sys/socket.h>

/** Whether the interface @p name matches @p patterns, a list of prefixes separated by commas. A
 *  leading "=" means exact names; a leading "^" excludes the matching interfaces. NULL or ""
 *  matches every interface. */
bool cddpi_interface_matches(const char *patterns, const char *name);

/** If @p host is this machine's loopback address, check that its interface is up.
 *  @return CDDP_OK, CDDP_ERR_UNAVAILABLE: the interface is down; the text says so. */
CDDP_CHECKED cddp_status cddpi_interface_check_loopback(const char *host);

/** Whether @p address is a loopback address. */
bool cddpi_address_is_loopback(const struct sockaddr *address);

/** Try to connect to @p address for at most @p timeout_ms. Returns 0 or an errno; EINPROGRESS: no
 *  answer. */
int cddpi_address_probe(const struct sockaddr *address, socklen_t bytes, int timeout_ms);

#endif
