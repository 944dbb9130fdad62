/* node_link_own.h - what the two threads of a node link share. Private to node_link.c and
 * link_threads.c. */
#ifndef CDDPI_LAUNCHER_NODE_LINK_OWN_H
#define CDDPI_LAUNCHER_NODE_LINK_OWN_H

#include "launcher/nodes/link_state.h"
#include "launcher/nodes/node_link.h"

#include <pthread.h>

enum { CDDPI_LINK_SIDES = 2 };

struct cddpi_node_link {
    cddp_store_options options; /* of a new connection */
    char *url, *token;
    cddp_store *stores[CDDPI_LINK_SIDES]; /* by side; each is used by its thread */
    cddp_store *word; /* its closing tells the server that this process has ended */
    pthread_t threads[CDDPI_LINK_SIDES];
    int started;
    int pipe[2]; /* carries pointers to events from the threads to the owner of the link */
    pthread_mutex_t lock;
    pthread_cond_t wake;            /* signalled when the teller may have something to do */
    struct cddpi_link_state state;  /* protected by the lock, as the next one */
    struct cddpi_node_event *spare; /* for CUT, if there is no memory for an event; NULL: used */
};

/* link_threads.c */
struct cddpi_link_now cddpi_node_link_now(void);
/** Pass @p event to the link's owner. A node that misses an event no longer knows what the others
 *  know, so without memory the link is cut. */
void cddpi_node_link_deliver(struct cddpi_node_link *link, const struct cddpi_node_event *event);
/** The bodies of the threads. */
void *cddpi_node_tell(void *link);
void *cddpi_node_hear(void *link);

#endif
