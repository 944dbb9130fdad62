/* node_link.h - one node's connection to the others through the job's store: it publishes events,
 * receives events, and sends a sign of life four times a second. Two threads of its own wait for
 * the store, so that the supervising thread never does. */
#ifndef CDDPI_LAUNCHER_NODE_LINK_H
#define CDDPI_LAUNCHER_NODE_LINK_H

#include "launcher/nodes/node_event.h"

struct cddpi_node_link;

struct cddpi_node_link_options {
    const char *store; /* URL; borrowed for the call */
    const char *token; /* borrowed for the call */
    const char *job;   /* id; borrowed for the call */
    int self;          /* this node; -1: the cddp-run that started the nodes */
    const int *nodes;  /* the numbers of the nodes that have met; borrowed for the call; NULL: 0 to
                          count - 1. A later node becomes known by its JOIN, and needs to know only
                          node 0 itself: its count is 1 */
    int count;
    bool has_outside_store; /* see link_state.h */
};

/** Connect, and start the threads.
 *  @param out  Release with cddpi_node_link_close(), which accepts NULL. */
CDDP_CHECKED cddp_status cddpi_node_link_open(const struct cddpi_node_link_options *options,
                                              struct cddpi_node_link **out);

/** Publish what is queued, for at most a few seconds, and end. */
void cddpi_node_link_close(struct cddpi_node_link *link);

/** How long this process recently stood still, if that was longer than other nodes wait for a sign
 *  of life; else 0. */
int64_t cddpi_node_link_slept_ms(struct cddpi_node_link *link);

/** A descriptor that is readable while an event is waiting. */
int cddpi_node_link_fd(const struct cddpi_node_link *link);

/** Take the next event. Returns false if there is none. Does not wait. */
bool cddpi_node_link_next(struct cddpi_node_link *link, struct cddpi_node_event *out);

/** Send @p event to all nodes, including this one. Does not wait. */
void cddpi_node_link_publish(struct cddpi_node_link *link, const struct cddpi_node_event *event);
#define CDDPI_PUBLISH(link, ...)                                                                   \
    cddpi_node_link_publish((link), &(const struct cddpi_node_event){.rank = -1, __VA_ARGS__})

/** Write @p text to the full key @p key of the ranks' store. Does not wait. */
void cddpi_node_link_set(struct cddpi_node_link *link, const char *key, const char *text);

#endif
