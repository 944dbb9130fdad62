/* listener.h - accepts connections on a port that strangers can reach, and limits what strangers
 * can use: the number of unauthenticated connections, and the descriptors that the program itself
 * needs (for a checkpoint, say). Used by the store's server and by the transport between hosts. Use
 * from one thread, or under the owner's lock. */
#ifndef CDDPI_BASE_LISTENER_H
#define CDDPI_BASE_LISTENER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

/* What the owner does with connections. A stranger is a connection that has not authenticated
 * yet. */
struct cddpi_listener_ops {
    int (*count)(void *context); /* the number of strangers */
    /* When the oldest stranger connected. Called only while there is a stranger. */
    int64_t (*oldest_ns)(void *context);
    /* Drop the oldest stranger. If its proof has arrived meanwhile, admit it and go on with the
     * next oldest. False: there is none to drop. */
    bool (*drop_oldest)(void *context);
    /* Start to greet a new connection. The owner now owns the descriptor. */
    void (*take)(void *context, int fd, const struct sockaddr_storage *address);
    /* Tell a new connection that there is no room, and close it. NULL: admitting authenticated
     * peers matters more than the program's reserve of descriptors, so new connections are accepted
     * anyway, one at a time. */
    void (*reject)(void *context, int fd);
    /* Turn epoll's reports of new connections on or off. */
    void (*watch)(void *context, bool on);
};

struct cddpi_listener {
    const struct cddpi_listener_ops *ops;
    void *context;
    const char *what; /* what listens, for the log: "store server" */
    int listen_fd;
    int spare_fd; /* closed for a moment to tell a new connection that no descriptor is left; -1:
                     none */
    uint16_t port;
    int silent_max;          /* limit on strangers whose proof is overdue */
    int new_max;             /* limit on all strangers: many ranks may start at the same time */
    int reserved;            /* descriptors kept for the program, however many connections come */
    int64_t listen_again_ns; /* when to accept again after a pause; 0: no pause */
    bool reported_limit;
};

/** Accept new connections, up to a limit per call. */
void cddpi_listener_accept(struct cddpi_listener *listener);

/** Drop strangers whose proof is overdue, the oldest first, until only the permitted number is
 *  left. Also accept again after a pause. Returns when to call this again; INT64_MAX: not before a
 *  new connection comes. */
int64_t cddpi_listener_tick(struct cddpi_listener *listener);

#endif
