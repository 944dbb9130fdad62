/* server_listener.h - whom the TCP store's server lets in: base/listener.h with the server's
 * clients for connections. All of it belongs to the server's thread, or is changed under its lock.
 */
#ifndef CDDPI_STORE_SERVER_LISTENER_H
#define CDDPI_STORE_SERVER_LISTENER_H

#include "base/listener.h"
#include "store/server_client.h"

struct cddpi_server_listener {
    struct cddpi_listener base;
    struct cddpi_client_host *host;
    uint32_t auth_timeout_ms;
};

/** Begin with nothing open. */
void cddpi_server_listener_init(struct cddpi_server_listener *listener,
                                struct cddpi_client_host *host, uint32_t auth_timeout_ms,
                                int reserved);

#endif
