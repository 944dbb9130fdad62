/* tcp.h - owns the structs of the tcp carrier, and says which thread may use them; private to this
 * folder.
 *
 * Two ranks on different hosts are a pair. A pair's connections are numbered by slots: slot 0 is
 * the control connection, on which a rank tells why its group failed; then follow CDDP_SOCKETS
 * slots for each channel. Leaders connect at once, other pairs at their first transfer. Both ranks
 * may connect; it is enough if one of them can. The lower rank decides: the first connection of a
 * slot whose handshake it has completed is used, all others are closed.
 *
 * The thread "cddp-net" of each rank listens, connects, and owns the control connections, so that
 * no rank waits for one that computes. It holds `lock` except while it sleeps. An open data
 * connection belongs to the thread that runs the group's queue, which receives it through
 * `arrived`.
 */
#ifndef CDDPI_GROUP_NET_TCP_TCP_H
#define CDDPI_GROUP_NET_TCP_TCP_H

#include "base/listener.h"
#include "base/silence.h"
#include "group/net/carrier.h"
#include "group/net/tcp/address.h"
#include "group/net/tcp/buffer.h"
#include "group/net/tcp/frame.h"
#include "group/net/tcp/hello.h"
#include "store/store_stream.h"

#include <pthread.h>
#include <stdatomic.h>
#include <sys/types.h>

enum {
    TCP_MAX_SOCKETS = 8,
    TCP_CONTROL_SLOT = 0,
    TCP_MAX_SLOTS = 1 + CDDPI_NET_CHANNELS * TCP_MAX_SOCKETS,
    TCP_BATCH_MESSAGES = 4, /* small messages that are sent by one call */
    TCP_TEXT_BYTES = 256,
    TCP_WHY_MS = 250, /* how long to wait for the reason of a broken connection */
    /* the same for a peer that left properly, for which other ranks may send the reason; with what
     * else it takes, all ranks know within a second */
    TCP_GONE_MS = 750
};

/* The progress of a transfer, stored in its `state`. */
struct __attribute__((may_alias)) tcp_progress {
    struct cddpi_transfer *next;
    uint32_t number;
    uint64_t assigned; /* bytes of a send that were given to connections */
    uint64_t moved;    /* bytes sent or received */
    bool is_matched;   /* a recv's message has begun, so that `number` is known */
};
_Static_assert(sizeof(struct tcp_progress) <= sizeof((struct cddpi_transfer *)0)->state,
               "it has its place in a transfer");

static inline struct tcp_progress *tcp_progress(struct cddpi_transfer *transfer)
{
    return (struct tcp_progress *)(void *)transfer->state;
}

struct tcp_list {
    struct cddpi_transfer *first, *last;
};

/* A data connection. It belongs to the caller's thread once it is taken from `arrived`. */
struct tcp_socket {
    struct cddpi_store_stream stream;
    struct tcp_pair *pair;
    unsigned slot;
    struct tcp_link *link;
    struct tcp_socket *next; /* in carrier->arrived, then in all_sockets */
    uint32_t events;         /* events that epoll waits for */
    struct tcp_signature signed_out, signed_in;
    bool is_dead;

    struct cddpi_transfer *batch[TCP_BATCH_MESSAGES]; /* small messages that are being sent */
    unsigned batch_count;
    struct cddpi_transfer *out; /* the message of which a piece is being sent, after the batch */
    /* heads and data of the batch, and the head of the piece; NULL: nothing */
    struct tcp_buffer *out_head;
    size_t out_head_sent, out_head_end;
    uint64_t out_at, out_end; /* position in the piece's data */

    struct cddpi_transfer *in; /* the message of which a piece is being received */
    struct tcp_frame in_frame;
    uint64_t in_at, in_end;
    bool is_stalled; /* in_frame has arrived, and no recv matches it yet */
    size_t begin, end;
    struct tcp_buffer *buffer; /* received and unused data, from begin to end; NULL: nothing */
};

_Static_assert(sizeof(struct tcp_socket) < 512, "a host more costs little: see tcp_buffer");

/* Whether the socket is sending data. */
static inline bool tcp_sends(const struct tcp_socket *socket)
{
    return socket->out_head_sent < socket->out_head_end || socket->out != NULL;
}

/* One channel between two ranks. Only the caller's thread uses it. */
struct tcp_link {
    struct tcp_pair *pair;
    enum cddpi_net_channel channel;
    bool is_wanted;
    struct tcp_socket *sockets[TCP_MAX_SOCKETS]; /* NULL: not connected (yet) */
    struct tcp_list sends;                       /* not completely given to sockets */
    struct tcp_list recvs;                       /* not completely received */
    uint32_t sent, received;                     /* number of messages that have begun */
    bool is_held;                                /* small messages wait to be sent together */
    struct tcp_link *next;                       /* in carrier->held */
};

/* The kind of struct that an epoll event of the thread points to. It is the first member of these
 * structs. */
enum tcp_watched {
    TCP_WATCHED_WAKE,
    TCP_WATCHED_LISTENER,
    TCP_WATCHED_ATTEMPT,
    TCP_WATCHED_CONTROL
};

/* The control connection of a pair. Guarded by the lock. */
struct tcp_control {
    enum tcp_watched watched;
    struct tcp_pair *pair;
    struct cddpi_store_stream stream;
    bool is_open;
    size_t in_bytes, out_begin, out_end;
    struct cddpi_silence silence;
    struct tcp_buffer *in, *out; /* NULL: empty */
};
_Static_assert(TCP_CONTROL_MAX_BYTES + 64 <= TCP_BATCH_BYTES, "a buffer has room for a message");

struct tcp_search; /* connect.c */

/* Guarded by the lock, except where a comment says otherwise. */
struct tcp_pair {
    int peer;
    bool leads; /* both ranks are their host's leaders, and so watch each other's host */
    const struct tcp_offer *offer;
    uint32_t wanted; /* bit mask of slots */
    uint32_t filled;
    uint32_t trying; /* slots for which this rank's own attempt at `address` is in progress */
    bool knows_address;
    struct sockaddr_storage address; /* where the peer listens, or where its connection came from */
    char via[TCP_ADDRESS_TEXT_BYTES + TCP_INTERFACE_BYTES + 4];
    struct tcp_search *search;
    struct tcp_control *control;
    struct tcp_link *links[CDDPI_NET_CHANNELS]; /* only the caller's thread uses the pointers */
    _Atomic int64_t heard_ns;
    _Atomic bool left; /* the peer has said goodbye */
    /* when a connection broke or the peer was missed, 0: never; the reason may still arrive */
    int64_t suspected_ns;
    char suspicion[TCP_TEXT_BYTES];
    /* The peer left long ago. Does a transfer wait for it? The caller's thread knows. */
    bool is_asked;
    bool is_missed; /* its answer, if there is one */
};

struct tcp_carrier {
    struct cddpi_carrier base; /* first: see tcp_of() */
    struct cddpi_carrier_params params;
    pid_t owner;
    uint8_t job[TCP_JOB_BYTES];
    uint32_t sockets;
    bool encrypts;     /* data is encrypted, too; control connections always are */
    uint32_t ciphers;  /* mask of ciphers that this rank can use */
    uint32_t limit_ms; /* CDDP_HEARTBEAT_MS */
    bool leads;        /* this rank is its host's leader */
    struct tcp_offer own;
    struct tcp_offer *offers; /* by rank */

    pthread_mutex_t lock;
    struct tcp_pool control_buffers;
    pthread_cond_t opened; /* a slot was filled, or something failed */
    pthread_t thread;
    bool has_thread;
    enum tcp_watched watched_wake, watched_listener;
    struct cddpi_listener listener;
    int net_epoll_fd, net_wake_fd;   /* used by the thread */
    int data_epoll_fd, data_wake_fd; /* used by the caller's thread */
    struct tcp_pair **pairs;         /* by rank; NULL: there was no connection with this rank */
    struct tcp_attempt *attempts;    /* handshakes in progress, in both directions */
    int strangers;        /* number of incoming attempts that have not proved the token yet */
    int64_t next_look_ns; /* when to check next whether the other hosts answer and this one has no
                             problem */
    int64_t clocks_ns;    /* when the next timer is due */
    bool has_news;        /* something changed, so that a timer may be due earlier */
    int64_t refusals_ns;  /* since when refusals are counted */
    int refusals;
    bool is_closing;
    bool needs_wake; /* call params->wake when the lock is released */
    struct tcp_socket *arrived;
    _Atomic bool has_arrived; /* `arrived` or a pair's is_asked is set */

    _Atomic bool has_failed; /* if true, `failure` is set and does not change */
    struct cddpi_failure failure;
    _Atomic bool is_aborted; /* likewise */
    struct cddpi_failure abort_failure;
    bool has_own_abort; /* own_abort was sent; connections that open later carry it, too */
    struct cddpi_failure own_abort;
    /* the program exits, and the exiting thread waits for has_said_goodbye */
    _Atomic bool must_say_goodbye;
    _Atomic bool has_said_goodbye;

    /* only the caller's thread uses these */
    bool is_forgotten;
    cddp_status data_status; /* CDDP_OK, or why no transfer can continue */
    struct cddpi_failure data_failure;
    struct tcp_socket *all_sockets;
    struct tcp_pool data_buffers;
    struct tcp_link *held; /* links with small messages that are held until the flush */
};

static inline struct tcp_carrier *tcp_of(struct cddpi_carrier *base)
{
    return (struct tcp_carrier *)(void *)base;
}

/* The slot of a data connection. */
static inline unsigned tcp_slot(const struct tcp_carrier *tcp, enum cddpi_net_channel channel,
                                unsigned stream)
{
    return 1 + (unsigned)channel * tcp->sockets + stream;
}

/* Whether all data on a connection is encrypted, instead of only signed heads. */
static inline bool tcp_is_encrypted(const struct tcp_carrier *tcp, unsigned slot)
{
    return slot == TCP_CONTROL_SLOT || tcp->encrypts;
}

static inline uint32_t tcp_slots_of(const struct tcp_carrier *tcp, enum cddpi_net_channel channel)
{
    return ((1u << tcp->sockets) - 1) << tcp_slot(tcp, channel, 0);
}

/* pair.c; with the lock */
/** Get the pair with @p peer, creating it if needed; NULL with an error text: no memory. */
struct tcp_pair *cddpi_tcp_pair(struct tcp_carrier *tcp, int peer);
void cddpi_tcp_pair_destroy(struct tcp_carrier *tcp, struct tcp_pair *pair);
/** "rank 3 on host b (10.0.0.7 port 4242 by eth0)" */
void cddpi_tcp_pair_name(const struct tcp_pair *pair, char *out, size_t bytes);
/** The peer cannot be reached any more: fail the carrier, unless it has failed already. */
void cddpi_tcp_pair_lost(struct tcp_carrier *tcp, struct tcp_pair *pair, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/** The same with another status than CDDP_ERR_PEER. */
void cddpi_tcp_pair_failed(struct tcp_carrier *tcp, struct tcp_pair *pair, cddp_status status,
                           const char *why);
/** The same for a peer that has said goodbye, but that this rank still waits for. */
void cddpi_tcp_pair_left(struct tcp_carrier *tcp, struct tcp_pair *pair);
/** A connection broke, or transfers wait for a peer that has left. The peer or other ranks may send
 *  the reason; otherwise the peer counts as lost soon, or as missed if it has left. */
void cddpi_tcp_pair_suspect(struct tcp_carrier *tcp, struct tcp_pair *pair, const char *why);
/** Let the caller's thread look at what has arrived, or answer is_asked. */
void cddpi_tcp_pair_show(struct tcp_carrier *tcp);
/** Use an open connection for @p slot. Takes over @p stream. @p session: from its handshake. */
void cddpi_tcp_pair_fill(struct tcp_carrier *tcp, struct tcp_pair *pair, unsigned slot,
                         struct cddpi_store_stream *stream, const struct cddpi_session *session);

/** Wake the thread to handle changes. Any thread, also without the lock. */
void cddpi_tcp_wake(struct tcp_carrier *tcp);

/* thread.c */
cddp_status cddpi_tcp_thread_start(struct tcp_carrier *tcp);
/** Nothing is open yet. */
void cddpi_tcp_listener_init(struct tcp_carrier *tcp);
/** End the thread. */
void cddpi_tcp_thread_stop(struct tcp_carrier *tcp);

/* connect.c; the thread's, with the lock */
/** Open the wanted connections, and end attempts that take too long. Lowers @p next_ns to the time
 *  when it must be called again.
 */
void cddpi_tcp_pairs_connect(struct tcp_carrier *tcp, int64_t now_ns, int64_t *next_ns);
void cddpi_tcp_attempts_close(struct tcp_carrier *tcp);

/* control.c; with the lock */
/** Use an open connection. False: no memory. */
bool cddpi_tcp_control_open(struct tcp_carrier *tcp, struct tcp_pair *pair,
                            const struct cddpi_store_stream *stream);
void cddpi_tcp_control_event(struct tcp_carrier *tcp, struct tcp_pair *pair, uint32_t events);
/** Tell all connected ranks why this group failed. Any thread; they know before the caller does
 *  anything else, even if it ends at once. */
void cddpi_tcp_control_abort(struct tcp_carrier *tcp, const struct cddpi_failure *failure);
/** Check whether hosts answer, and whether this one has failed, and handle suspicions. */
void cddpi_tcp_control_tick(struct tcp_carrier *tcp, int64_t now_ns, int64_t *next_ns);
void cddpi_tcp_control_goodbye(struct tcp_carrier *tcp);

/* socket.c; the caller's thread's */
void cddpi_tcp_list_append(struct tcp_list *list, struct cddpi_transfer *transfer);
void cddpi_tcp_list_remove(struct tcp_list *list, struct cddpi_transfer *transfer);
bool cddpi_tcp_link_has_transfers(const struct tcp_link *link);
/** Make epoll wait for @p events of a socket from now on. */
void cddpi_tcp_socket_watch(struct tcp_carrier *tcp, struct tcp_socket *socket, uint32_t events);
/** The socket is no longer usable; @p error: why; 0: the peer has closed it. */
void cddpi_tcp_socket_lost(struct tcp_carrier *tcp, struct tcp_socket *socket, int error);

/* send.c, recv.c; the caller's thread's */
cddp_status cddpi_tcp_send(struct tcp_carrier *tcp, struct tcp_link *link,
                           struct cddpi_transfer *transfer);
/** Send the messages that were held to be sent with others. */
cddp_status cddpi_tcp_send_held(struct tcp_carrier *tcp, bool *out_any);
/** Send as much as possible without waiting. @p out_any: whether a transfer completed. */
cddp_status cddpi_tcp_socket_send(struct tcp_carrier *tcp, struct tcp_socket *socket,
                                  bool *out_any);
cddp_status cddpi_tcp_recv(struct tcp_carrier *tcp, struct tcp_link *link,
                           struct cddpi_transfer *transfer);
cddp_status cddpi_tcp_socket_recv(struct tcp_carrier *tcp, struct tcp_socket *socket,
                                  bool *out_any);

/* What the carrier's row has of other files; see group/net/carrier.h. data.c */
cddp_status cddpi_tcp_start(struct cddpi_carrier *carrier, struct cddpi_transfer *transfer);
cddp_status cddpi_tcp_progress(struct cddpi_carrier *carrier, bool *out_any);
cddp_status cddpi_tcp_flush(struct cddpi_carrier *carrier, bool *out_any);
bool cddpi_tcp_forget(struct cddpi_carrier *carrier);
int cddpi_tcp_descriptor(struct cddpi_carrier *carrier);
void cddpi_tcp_prepare_sleep(struct cddpi_carrier *carrier);
/** Wait briefly until those to whom connections are being made can be told why this rank ends. */
void cddpi_tcp_await_connections(struct tcp_carrier *tcp);
/** Close the data connections, after the thread has ended. */
void cddpi_tcp_data_close(struct tcp_carrier *tcp);

/* tcp_health.c */
cddp_status cddpi_tcp_check(struct cddpi_carrier *carrier);
void cddpi_tcp_describe(struct cddpi_carrier *carrier, int peer, char *out, size_t bytes);
void cddpi_tcp_abort(struct cddpi_carrier *carrier, const struct cddpi_failure *failure);
bool cddpi_tcp_aborted(struct cddpi_carrier *carrier, struct cddpi_failure *out);
void cddpi_tcp_exits(struct cddpi_carrier *carrier);
bool cddpi_tcp_interfaces(struct cddpi_carrier *carrier, char *out, size_t bytes);

#endif
