/* link_state.h - decides what one node asks of the job's store, in order to tell other nodes what
 * happens and to hear what they tell (node_link.h). This state machine does no I/O and reads no
 * clock. It has two sides, and each has a connection of its own: the teller writes events, keys for
 * the ranks, and the node's sign of life; the hearer reads events, and checks that other nodes and
 * the store give signs of life. link_threads.c drives each side in a thread; tests/sim drives both
 * in a simulated world.
 *
 * A side has at most one request at a time:
 *
 *   for (;;) {
 *       cddpi_link_next(link, side, &now, &request);
 *       OVER: stop. WAIT: wait until request.until_ns, or until something was published, or until
 *       cddpi_link_end(). Else let the store do the request, by until_ns; then:
 *       cddpi_link_take(link, side, &now, &answer, &event);
 *       if event.kind is not NONE, pass the event to the owner of the link
 *   }
 *
 * One thread at a time uses it: node_link.c has a lock, which is not held during a request. */
#ifndef CDDPI_LAUNCHER_LINK_STATE_H
#define CDDPI_LAUNCHER_LINK_STATE_H

#include "launcher/nodes/node_event.h"

#include "base/silence.h"

#include <cddp/store.h>

/* Replaces the sign of life of a cddp-run once its connection has closed (a last word). */
#define CDDPI_NODE_GONE "gone"

enum { CDDPI_NODE_KEY_BYTES = 128 };

/* The time, on two clocks. */
struct cddpi_link_now {
    int64_t now_ns;  /* cddpi_now_ns() */
    int64_t boot_ns; /* as now_ns, but also advances while the machine sleeps */
};

enum cddpi_link_side { CDDPI_LINK_TELLER, CDDPI_LINK_HEARER };

enum cddpi_link_request_kind {
    CDDPI_LINK_OVER,        /* this side asks nothing more */
    CDDPI_LINK_WAIT,        /* teller: nothing to do until until_ns */
    CDDPI_LINK_SET,         /* set `key` to `value` */
    CDDPI_LINK_COMPARE_SET, /* set `key` to `value` unless it exists; the answer holds its value
                               afterwards */
    CDDPI_LINK_GET,         /* get `key`, and wait up to wait_ms for it */
    CDDPI_LINK_TRY_GET,     /* get `key`, or NOT_FOUND */
    CDDPI_LINK_RECONNECT    /* replace this side's connection */
};

struct cddpi_link_request {
    enum cddpi_link_request_kind kind;
    char key[CDDP_STORE_KEY_BYTES + 1];
    const void *value; /* owned by the link, and unchanged until the answer */
    size_t bytes;
    uint32_t wait_ms;
    bool is_mending;  /* RECONNECT: the connection has ended. If nothing listens there any more, the
                         store is gone: answer IO */
    int64_t until_ns; /* when the answer is overdue, or the wait ends */
};

struct cddpi_link_answer {
    cddp_status status; /* OK; TIMEOUT: no answer, so a write may or may not have been made, or GET:
                           there is no such key yet; NOT_FOUND; IO: as TIMEOUT, and the connection
                           has ended; else the store is lost */
    bool is_set;        /* COMPARE_SET: this request has set the key */
    const void *value;  /* GET, TRY_GET, COMPARE_SET; borrowed; NULL: none */
    size_t bytes;
    const char *error; /* unless OK; borrowed */
};

struct cddpi_link_options {
    const char *job;  /* id; borrowed for the call */
    int self;         /* this node; -1: the cddp-run that started the nodes */
    const int *nodes; /* the numbers of the nodes that are there already; borrowed for the call;
                         NULL: 0 to count - 1 */
    int count;
    bool has_outside_store; /* no node serves the store: the process that does (self: -1) watches
                               all nodes, and they do not watch each other */
    uint32_t limit_ms;      /* how long a node or the store may be silent */
    uint32_t look_ms;   /* between two looks at them, and between two signs of life of this node */
    uint32_t answer_ms; /* timeout of a request */
    bool can_mend; /* a connection that has ended is made anew; false: the store is lost then (it
                      is a file, or this process serves it) */
};

/* A node that this one watches. */
struct cddpi_link_peer {
    int node;
    char beat[24]; /* its last sign of life */
    struct cddpi_silence silence;
    bool is_gone; /* it is not watched any more: lost, or it has left, or the job has ended */
};

/* A connection that has ended: its store may be gone, or something in between has cut it. */
struct cddpi_link_break {
    bool is_open;  /* the new connection is not there yet */
    int count;     /* connections that have ended since the last answer */
    char why[512]; /* the text of the first such failure */
};

/* A queued write: an event, or a key for the ranks. */
struct cddpi_link_item {
    struct cddpi_link_item *next;
    char key[CDDP_STORE_KEY_BYTES + 1]; /* "": an event */
    struct cddpi_wire_buffer value;
};

struct cddpi_link_teller {
    struct cddpi_link_item *first, *last;
    int64_t number;      /* the first event that may be unused */
    int64_t beats;       /* signs of life that were begun */
    int64_t beat_ns;     /* when the next one is due */
    int64_t due_boot_ns; /* when the current request or wait is overdue; INT64_MAX: there is none */
    char beat[24];
    enum cddpi_link_request_kind asked;
    bool asked_beat; /* the request is a sign of life */
    struct cddpi_link_break broken;
    bool is_again; /* the first item's earlier request was not answered */
    bool has_lost; /* an event could not be queued */
    bool must_reconnect;
};

struct cddpi_link_hearer {
    struct cddpi_link_peer *peers;
    int count;
    size_t room;
    int64_t number;      /* of the next event */
    int64_t look_ns;     /* when to look at the peers next */
    int64_t due_boot_ns; /* as the teller's */
    int looking;         /* at this peer, by place in the list; -1: at none; `count`: there is no
                            peer, so at its own sign of life, to see that the store answers */
    bool has_begun;      /* a generation has, so all nodes that meet are there */
    bool has_ended;      /* the job has */
    struct cddpi_silence store;
    struct cddpi_link_break broken;
    enum cddpi_link_request_kind asked;
    bool must_reconnect;
};

/* All members are private, but a caller may look. */
struct cddpi_link_state {
    char job[40];
    int self;
    bool has_outside_store;
    uint32_t limit_ms, look_ms, answer_ms;
    bool can_mend;
    struct cddpi_link_teller teller;
    struct cddpi_link_hearer hearer;
    bool is_ending;
    bool is_cut;
    int64_t end_ns;   /* once is_ending: when to drop what is still queued */
    int64_t slept_ms; /* duration of the last standstill of this process that exceeded the limit */
    int64_t woke_ns;
};

/** @param out  Release with cddpi_link_fini(), also after a failure. */
CDDP_CHECKED cddp_status cddpi_link_init(const struct cddpi_link_options *options,
                                         const struct cddpi_link_now *now,
                                         struct cddpi_link_state *out);
void cddpi_link_fini(struct cddpi_link_state *link);

/** Queue @p event for all nodes, including this one. Without memory, the next answer cuts the link:
 *  others would wait for what this node has not told them. */
void cddpi_link_publish(struct cddpi_link_state *link, const struct cddpi_node_event *event);
/** Queue a write of @p text to the full key @p key. */
void cddpi_link_set(struct cddpi_link_state *link, const char *key, const char *text);
/** Write what is queued, but not after @p end_ns, and end. */
void cddpi_link_end(struct cddpi_link_state *link, int64_t end_ns);

/** What @p side does next. */
void cddpi_link_next(struct cddpi_link_state *link, enum cddpi_link_side side,
                     const struct cddpi_link_now *now, struct cddpi_link_request *out);
/** The answer to the request of @p side has come, or @p side has waited for it long enough.
 *  @param out_event  For the owner of the link; kind NONE: nothing. */
void cddpi_link_take(struct cddpi_link_state *link, enum cddpi_link_side side,
                     const struct cddpi_link_now *now, const struct cddpi_link_answer *answer,
                     struct cddpi_node_event *out_event);

/** Whether the teller has something to do now, so that its wait ends. */
bool cddpi_link_wants_to_tell(const struct cddpi_link_state *link);

/** How long this process recently stood still, if that was longer than other nodes wait for a sign
 *  of life; else 0. */
int64_t cddpi_link_slept_ms(const struct cddpi_link_state *link, const struct cddpi_link_now *now);

/** The key of @p node's sign of life, for its last word. */
void cddpi_link_beat_key(const struct cddpi_link_state *link, int node,
                         char out[CDDPI_NODE_KEY_BYTES]);

#endif
