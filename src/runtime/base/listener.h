/* listener.h - accepts connections on a port that strangers reach, and bounds what they can take:
 * how many connections there are without a proof, and which descriptors they never get, because the
 * program itself needs them (for a checkpoint, say). The store's server and the carrier between
 * hosts share it. One thread, or under the owner's lock. */
#ifndef CDDPI_BASE_LISTENER_H
#define CDDPI_BASE_LISTENER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/socket.h>

/* What the owner does with connections. A stranger is one that has proved nothing yet. */
struct cddpi_listener_ops {
    int (*count)(void *context); /* of strangers */
    /* Since when the oldest stranger is there; only called while there is one. */
    int64_t (*oldest_ns)(void *context);
    /* Drop the oldest; one whose proof has come by now is let in instead, and the next one's turn
     * is it. False: there is none to drop. */
    bool (*drop_oldest)(void *context);
    /* Begin to greet a newcomer; the descriptor is the owner's from here. */
    void (*take)(void *context, int fd, const struct sockaddr_storage *address);
    /* Say to a newcomer that there is no room, and close. NULL: connections that prove themselves
     * matter more than the program's reserve, so newcomers are taken all the same, one at a time.
     */
    void (*reject)(void *context, int fd);
    /* Let epoll report new connections, or not. */
    void (*watch)(void *context, bool on);
};

struct cddpi_listener {
    const struct cddpi_listener_ops *ops;
    void *context;
    const char *what; /* listens, for the log: "store server" */
    int listen_fd;
    int spare_fd; /* given up for a moment to tell a newcomer that there is no descriptor; -1: none
                   */
    uint16_t port;
    int silent_max;          /* strangers whose proof should have come by now */
    int new_max;             /* strangers in all: many ranks may start at once */
    int reserved;            /* descriptors that are the program's, however many come */
    int64_t listen_again_ns; /* 0, or when accepting is tried again */
    bool reported_limit;
};

/** Accept new connections, a bounded number of them. */
void cddpi_listener_accept(struct cddpi_listener *listener);

/** Drop strangers that should have proved something by now, the oldest first, until as many are
 *  left as may be silent; and listen again after a pause. Returns when it is to be called again;
 *  INT64_MAX: not before others come. */
int64_t cddpi_listener_tick(struct cddpi_listener *listener);

#endif
