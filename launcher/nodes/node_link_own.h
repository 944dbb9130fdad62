/* node_link_own.h - private to node_link.c, node_tell.c and node_hear.c: what a node's two threads
 * share. */
#ifndef CDDPI_LAUNCHER_NODE_LINK_OWN_H
#define CDDPI_LAUNCHER_NODE_LINK_OWN_H

#include "launcher/nodes/node_link.h"
#include "launcher/nodes/node_message.h"

#include "base/silence.h"

#include <cddp/store.h>
#include <pthread.h>

enum { CDDPI_NODE_KEY_BYTES = 128 };

/* Instead of a sign of life, once the connection of a cddp-run was closed. */
#define CDDPI_NODE_GONE "gone"

/* What is to be told: an event, or a key of the ranks. */
struct node_item {
    struct node_item *next;
    char key[CDDP_STORE_KEY_BYTES + 1]; /* "": an event */
    struct cddpi_wire_buffer value;
};

struct node_peer {
    char beat[24]; /* its last sign */
    struct cddpi_silence silence;
    bool is_gone;
};

struct cddpi_node_link {
    int self;
    int count;
    char job[40];
    uint32_t limit_ms; /* of silence */
    uint32_t look_ms;  /* and between two signs of this node's own */
    cddp_store_options options;
    char *url, *token;
    cddp_store *teller; /* of the thread that tells */
    cddp_store *hearer; /* of the thread that hears */
    cddp_store *word;   /* a connection that says by its end that this process has ended */
    struct cddpi_silence store_silence; /* of the thread that hears */
    pthread_t threads[2];
    int started;
    int pipe[2]; /* pointers to events, from the threads to their owner */
    pthread_mutex_t lock;
    pthread_cond_t wake;     /* there is an item, or an end */
    struct node_item *first; /* under the lock, as all below */
    struct node_item *last;
    bool is_ending;
    bool is_cut;
    int64_t end_ns;           /* when what is still queued is given up, once is_ending */
    struct node_peer *peers;  /* of the thread that hears, as has_begun */
    bool has_begun;           /* a generation has: all nodes are there */
    _Atomic int64_t slept_ms; /* how long this process last stood still for longer than the limit */
    _Atomic int64_t woke_ns;
    _Atomic int64_t due_ns; /* by when the thread that tells has waited for long enough, on the
                               clock of cddpi_node_boot_ns(); INT64_MAX: it does not wait */
};

/* node_link.c */
/** Hand @p event to the link's owner. */
void cddpi_node_link_deliver(struct cddpi_node_link *link, const struct cddpi_node_event *event);
/** The store is gone: the first thread that notices says so. */
void cddpi_node_link_cut(struct cddpi_node_link *link, const char *why);
void cddpi_node_event_key(const struct cddpi_node_link *link, int64_t number,
                          char out[CDDPI_NODE_KEY_BYTES]);
/** Connect anew in the place of @p store, which does not answer. */
cddp_status cddpi_node_link_connect_again(const struct cddpi_node_link *link, cddp_store **store);

/** Now, on a clock that goes on while the machine sleeps. */
int64_t cddpi_node_boot_ns(void);
/** By when a request that begins now is answered, or given up: on that clock. */
int64_t cddpi_node_answer_due_ns(const struct cddpi_node_link *link);
/** A wait that was to end at @p due_ns is over. What took longer than a machine may be silent was
 * no wait: this process, or its machine, stood still. */
void cddpi_node_notice_sleep(struct cddpi_node_link *link, int64_t due_ns);

/* node_tell.c */
void *cddpi_node_tell(void *link);
void cddpi_node_item_release(struct node_item *item);

/* node_hear.c */
void *cddpi_node_hear(void *link);

#endif
