/* server_listener.h - whom the TCP store's server lets in: how many clients may be there without a
 * proof of the token, and what happens to newcomers when descriptors run out. All of it belongs to
 * the server's thread, but for the fields that say otherwise. */
#ifndef CDDPI_STORE_SERVER_LISTENER_H
#define CDDPI_STORE_SERVER_LISTENER_H

#include "store/server_client.h"

struct cddpi_listener {
    int listen_fd;
    int spare_fd; /* given up for a moment to tell a client that there are no descriptors left */
    uint16_t port;
    uint32_t auth_timeout_ms;
    int reserved;            /* descriptors that are not for clients; changed under the lock */
    int64_t listen_again_ns; /* 0, or when accepting is tried again */
    bool reported_limit;
};

/** Accept new connections, a bounded number of them. */
void cddpi_listener_accept(struct cddpi_listener *listener, struct cddpi_client_host *host);

/** Drop clients that should have proved the token by now, the oldest first, until as many are left
 * as may be silent. Returns when there may be more to drop; INT64_MAX: not before others come. */
int64_t cddpi_listener_drop_silent(struct cddpi_listener *listener, struct cddpi_client_host *host);

/** Let epoll report new connections, or not. */
void cddpi_listener_watch(struct cddpi_listener *listener, struct cddpi_client_host *host, bool on);

#endif
