/* tcp_connect.h - owns the way from an address to a connection on which both sides have proved that
 * they know the token. */
#ifndef CDDPI_STORE_TCP_CONNECT_H
#define CDDPI_STORE_TCP_CONNECT_H

#include "store/store_stream.h"

#include <cddp/status.h>

/** Connect to @p address ("host:port" or "[address]:port"). Try again until @p deadline_ns if the
 *  server does not listen yet or is full.
 *  @param out  Non-blocking. The caller closes its fd and destroys its cipher. */
cddp_status cddpi_tcp_connect(const char *address, const char *token, int64_t deadline_ns,
                              struct cddpi_store_stream *out);

#endif
