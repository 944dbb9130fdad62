/* node_link.h - one node's connection to the others through the job's store: it publishes events,
 * receives events, and sends a sign of life four times a second. Two threads of its own wait for
 * the store, so that the supervising thread never does. */
#ifndef CDDPI_LAUNCHER_NODE_LINK_H
#define CDDPI_LAUNCHER_NODE_LINK_H

#include "store/message.h"

enum { CDDPI_EVENT_TEXT_BYTES = 4096, CDDPI_MAX_WORLD_SIZE = 65536 };

enum cddpi_node_event_kind {
    CDDPI_EVENT_NONE,
    CDDPI_EVENT_START,   /* a generation begins; `number` is the port for torch.distributed */
    CDDPI_EVENT_FAILURE, /* a rank failed, or (rank -1) a node that will still publish DONE */
    CDDPI_EVENT_FOLLOW,  /* a rank failed, and says that another rank is the cause */
    CDDPI_EVENT_SIGNAL,  /* signal `number` was sent to the node */
    CDDPI_EVENT_LOST,    /* the node is gone */
    CDDPI_EVENT_DONE,    /* all ranks of the node have ended */
    CDDPI_EVENT_END,     /* the job has ended */
    CDDPI_EVENT_BYE,     /* the node has received END and no longer needs the store */
    CDDPI_EVENT_SAVING,  /* ranks of the node were asked to end and are still saving */
    CDDPI_EVENT_CUT      /* never in the store: this process has lost its connection to the store */
};

struct cddpi_node_event {
    enum cddpi_node_event_kind kind;
    int generation;
    int node; /* -1: the cddp-run that started the nodes */
    int rank; /* -1: none */
    int number;
    int exit_status;
    bool may_restart;                  /* FAILURE, FOLLOW, DONE: another generation may succeed */
    bool has_saved;                    /* DONE: a checkpoint was written */
    char text[CDDPI_EVENT_TEXT_BYTES]; /* FAILURE, FOLLOW, LOST, CUT: a sentence without its full
                                          stop */
};

extern const struct cddpi_message_form cddpi_node_event_form;

/** Decode an event of a job with @p count nodes; returns as cddpi_message_decode(). The event owns
 *  nothing. */
CDDP_CHECKED cddp_status cddpi_node_event_decode(const uint8_t *data, size_t bytes, int count,
                                                 struct cddpi_node_event *out);

struct cddpi_node_link;

struct cddpi_node_link_options {
    const char *store; /* URL; borrowed for the call */
    const char *token; /* borrowed for the call */
    const char *job;   /* id; borrowed for the call */
    int self;          /* this node; -1: the cddp-run that started the nodes */
    int count;         /* of nodes */
};

/** Connect, and start the threads.
 *  @param out  Release with cddpi_node_link_close(), which accepts NULL. */
CDDP_CHECKED cddp_status cddpi_node_link_open(const struct cddpi_node_link_options *options,
                                              struct cddpi_node_link **out);

/** Publish what is queued, for at most a few seconds, and end. */
void cddpi_node_link_close(struct cddpi_node_link *link);

/** How long this process recently stood still, if that was longer than other nodes wait for a sign
 *  of life; else 0. */
int64_t cddpi_node_link_slept_ms(const struct cddpi_node_link *link);

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
