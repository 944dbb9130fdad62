/* server_listener.h - owns which connections the TCP store's server accepts: base/listener.h, whose
 * connections are the server's clients. Use it only with the server's lock. */
#ifndef CDDPI_STORE_SERVER_LISTENER_H
#define CDDPI_STORE_SERVER_LISTENER_H

#include "base/listener.h"
#include "store/server_client.h"

struct cddpi_server_listener {
    struct cddpi_listener base;
    struct cddpi_client_host *host;
    uint32_t auth_timeout_ms;
};

/** Initialise @p listener, with no descriptor open yet. */
void cddpi_server_listener_init(struct cddpi_server_listener *listener,
                                struct cddpi_client_host *host, uint32_t auth_timeout_ms,
                                int reserved);

#endif
