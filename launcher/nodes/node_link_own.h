/* node_link_own.h - what the two threads of a node link share. Private to node_link.c and
 * node_tell.c. */
#ifndef CDDPI_LAUNCHER_NODE_LINK_OWN_H
#define CDDPI_LAUNCHER_NODE_LINK_OWN_H

#include "launcher/nodes/node_link.h"
#include "store/message.h"

#include "base/silence.h"

#include <cddp/store.h>
#include <pthread.h>

enum { CDDPI_NODE_KEY_BYTES = 128 };

/* Replaces the sign of life of a cddp-run once its connection has closed. */
#define CDDPI_NODE_GONE "gone"

/* A queued write to the store: an event, or a key for the ranks. */
struct node_item {
    struct node_item *next;
    char key[CDDP_STORE_KEY_BYTES + 1]; /* "": an event */
    struct cddpi_wire_buffer value;
};

struct node_peer {
    char beat[24]; /* its last sign of life */
    struct cddpi_silence silence;
    bool is_gone;
};

struct cddpi_node_link {
    int self;
    int count;
    char job[40];
    uint32_t limit_ms; /* how long a node may be silent */
    uint32_t look_ms;  /* between two looks at the store, and between two signs of life of this
                          node */
    cddp_store_options options;
    char *url, *token;
    cddp_store *teller; /* used by the telling thread */
    cddp_store *hearer; /* used by the hearing thread */
    cddp_store *word;   /* its closing tells the server that this process has ended */
    struct cddpi_silence store_silence; /* used by the hearing thread */
    pthread_t threads[2];
    int started;
    int pipe[2]; /* carries pointers to events from the threads to the owner of the link */
    pthread_mutex_t lock;
    pthread_cond_t wake;     /* signalled when an item is queued or the link ends */
    struct node_item *first; /* protected by the lock, as are the next members */
    struct node_item *last;
    bool is_ending;
    bool is_cut;
    int64_t end_ns;           /* once is_ending: when to drop what is still queued */
    struct node_peer *peers;  /* used by the hearing thread, like has_begun */
    bool has_begun;           /* a generation has begun, so all nodes are present */
    _Atomic int64_t slept_ms; /* duration of the last standstill of this process that exceeded the
                                 limit */
    _Atomic int64_t woke_ns;
    _Atomic int64_t due_ns; /* when the telling thread's current wait is overdue, on the clock of
                               cddpi_node_boot_ns(); INT64_MAX: it does not wait */
};

/* node_link.c */
/** Pass @p event to the link's owner. */
void cddpi_node_link_deliver(struct cddpi_node_link *link, const struct cddpi_node_event *event);
/** Report that the store is gone. Only the first thread that notices has an effect. */
void cddpi_node_link_cut(struct cddpi_node_link *link, const char *why);
void cddpi_node_event_key(const struct cddpi_node_link *link, int64_t number,
                          char out[CDDPI_NODE_KEY_BYTES]);
/** Replace @p store, which does not answer, with a new connection. */
cddp_status cddpi_node_link_connect_again(const struct cddpi_node_link *link, cddp_store **store);

/** The current time on a clock that also advances while the machine sleeps. */
int64_t cddpi_node_boot_ns(void);
/** When a request that begins now will have been answered or given up, on the clock of
 *  cddpi_node_boot_ns(). */
int64_t cddpi_node_answer_due_ns(const struct cddpi_node_link *link);
/** Call after a wait that was due to end at @p due_ns. If the wait was late by more than a node may
 *  be silent, this process or its machine stood still, and the link notes that. */
void cddpi_node_notice_sleep(struct cddpi_node_link *link, int64_t due_ns);

/* node_tell.c */
void *cddpi_node_tell(void *link);
void cddpi_node_item_release(struct node_item *item);

void *cddpi_node_hear(void *link);

#endif
