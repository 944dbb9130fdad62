/* tcp_connect.h - owns the way from an address to a connection on which both sides have proved that
 * they know the token. */
#ifndef CDDPI_STORE_TCP_CONNECT_H
#define CDDPI_STORE_TCP_CONNECT_H

#include "store/store_stream.h"

#include <cddp/status.h>

enum { CDDPI_ADDRESS_BYTES = 272 };

struct cddpi_address {
    char host[256]; /* a name or an address, without brackets */
    uint16_t port;
};

/** Parse "host:port" or "[address]:port". CDDP_ERR_ARGUMENT: @p text is neither. */
CDDP_CHECKED cddp_status cddpi_address_parse(const char *text, struct cddpi_address *out);

/** Write @p address as "tcp://host:port". */
void cddpi_address_url(const struct cddpi_address *address, char out[CDDPI_ADDRESS_BYTES]);

/** Connect to @p address ("host:port" or "[address]:port"). Try again until @p deadline_ns if the
 *  server does not listen yet or is full.
 *  @param out  Non-blocking. The caller closes its fd and destroys its cipher. */
cddp_status cddpi_tcp_connect(const char *address, const char *token, int64_t deadline_ns,
                              struct cddpi_store_stream *out);

#endif
