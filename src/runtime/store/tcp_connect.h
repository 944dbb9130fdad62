/* tcp_connect.h - from an address to a connection on which both sides have proved the token. */
#ifndef CDDPI_STORE_TCP_CONNECT_H
#define CDDPI_STORE_TCP_CONNECT_H

#include "store/store_stream.h"

#include <cddp/status.h>

/** Connect to @p address ("host:port" or "[address]:port"). A server that does not listen yet, or
 *  has no room for another client, is tried again until @p deadline_ns.
 *  @param out  Non-blocking; the caller's to close, and its cipher to destroy. */
cddp_status cddpi_tcp_connect(const char *address, const char *token, int64_t deadline_ns,
                              struct cddpi_store_stream *out);

#endif
