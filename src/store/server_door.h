/* server_door.h - whom the TCP store's server lets in: how many may be there without a proof of the
 * token, and what becomes of callers when descriptors run out. All of it belongs to the server's
 * thread, but for the fields that say otherwise. */
#ifndef CDDPI_STORE_SERVER_DOOR_H
#define CDDPI_STORE_SERVER_DOOR_H

#include "store/server_client.h"

struct cddpi_door {
    int listen_fd;
    int spare_fd; /* given up for a moment to tell a client that there are no descriptors left */
    uint16_t port;
    uint32_t proof_timeout_ms;
    int reserved;            /* descriptors that are not for clients; changed under the lock */
    int64_t listen_again_ns; /* 0, or when accepting is tried again */
    bool told_limit;
};

/** Let in those who call, a bounded number of them. */
void cddpi_door_accept(struct cddpi_door *door, struct cddpi_client_host *host);

/** Let epoll report callers, or not. */
void cddpi_door_watch(struct cddpi_door *door, struct cddpi_client_host *host, bool on);

#endif
