/* tcp.h - private to this folder: what the tcp carrier consists of, and who may touch it.
 *
 * Two ranks on different hosts are a pair. A pair's connections are numbered by slots: 0 is the
 * control connection, which only pairs of leaders have, then come CDDP_SOCKETS for each channel. Of
 * the two ranks the lower one decides: the first connection of a slot that it has seen through is
 * used, any other is closed. So both may connect, and one of them suffices.
 *
 * The thread "cddp-net" of every rank listens, connects, and owns the control connections: a rank
 * that computes lets nobody wait. It holds `lock` except while it sleeps. A data connection, once
 * it is open, belongs to the thread that runs the group's queue: that one goes through `arrived`.
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
    TCP_BATCH_MESSAGES = 4, /* small ones that are sent by one call */
    TCP_TEXT_BYTES = 256,
    TCP_WHY_MS = 250,  /* how long the reason of a broken connection may take to come */
    TCP_GONE_MS = 1000 /* the same of a peer that left properly, which others may explain */
};

/* How far a transfer has come; in its `state`. */
struct __attribute__((may_alias)) tcp_progress {
    struct cddpi_transfer *next;
    uint32_t number;
    uint64_t assigned; /* of a send: given to connections */
    uint64_t moved;    /* sent, or received */
    bool is_matched;   /* of a recv: its message has begun, so `number` is known */
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

/* A data connection. The caller's thread's, once it has arrived. */
struct tcp_socket {
    struct cddpi_store_stream stream;
    struct tcp_pair *pair;
    unsigned slot;
    struct tcp_link *link;
    struct tcp_socket *next; /* in carrier->arrived, then in all_sockets */
    uint32_t events;         /* that epoll waits for */
    struct tcp_signature signed_out, signed_in;
    bool is_dead;

    struct cddpi_transfer *batch[TCP_BATCH_MESSAGES]; /* small messages that are being sent */
    unsigned batch_count;
    struct cddpi_transfer *out;  /* what a piece of is being sent, behind those */
    struct tcp_buffer *out_head; /* their heads and data, and the head of the piece; NULL: none */
    size_t out_head_sent, out_head_end;
    uint64_t out_at, out_end; /* of the piece's data */

    struct cddpi_transfer *in; /* what a piece of is being received */
    struct tcp_frame in_frame;
    uint64_t in_at, in_end;
    bool is_stalled; /* in_frame is there, and nobody wants it yet */
    size_t begin, end;
    struct tcp_buffer *buffer; /* what has come and is not used, from begin to end; NULL: nothing */
};

_Static_assert(sizeof(struct tcp_socket) < 512, "a host more costs little: see tcp_buffer");

/* Whether something is being sent. */
static inline bool tcp_sends(const struct tcp_socket *socket)
{
    return socket->out_head_sent < socket->out_head_end || socket->out != NULL;
}

/* One channel between two ranks. The caller's thread's. */
struct tcp_link {
    struct tcp_pair *pair;
    enum cddpi_net_channel channel;
    bool is_wanted;
    struct tcp_socket *sockets[TCP_MAX_SOCKETS]; /* NULL: not connected (yet) */
    struct tcp_list sends;                       /* not wholly given to sockets */
    struct tcp_list recvs;                       /* not wholly received */
    uint32_t sent, received;                     /* messages that have begun */
    bool is_held;                                /* small messages wait to be sent together */
    struct tcp_link *next;                       /* in carrier->held */
};

/* What an epoll event of the thread points to: the first member of each of those structs. */
enum tcp_watched {
    TCP_WATCHED_WAKE,
    TCP_WATCHED_LISTENER,
    TCP_WATCHED_ATTEMPT,
    TCP_WATCHED_CONTROL
};

/* Another host's leader, by its control connection. The thread's. */
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

/* Under the lock, except where it says otherwise. */
struct tcp_pair {
    int peer;
    const struct tcp_offer *offer;
    uint32_t wanted; /* bits of slots */
    uint32_t filled;
    uint32_t trying; /* slots to which an own attempt at `address` is under way */
    bool knows_address;
    struct sockaddr_storage address; /* where the peer listens; or where it comes from */
    char via[TCP_ADDRESS_TEXT_BYTES + TCP_INTERFACE_BYTES + 4];
    struct tcp_search *search;
    struct tcp_control *control;
    struct tcp_link *links[CDDPI_NET_CHANNELS]; /* the pointers: the caller's thread's */
    _Atomic int64_t heard_ns;
    _Atomic bool left;    /* it has said goodbye */
    int64_t suspected_ns; /* 0, or when a data connection broke: the reason may still come */
    bool is_needed;       /* and transfers of it were under way */
    char suspicion[TCP_TEXT_BYTES];
};

struct tcp_carrier {
    struct cddpi_carrier base; /* first: see tcp_of() */
    struct cddpi_carrier_params params;
    pid_t owner;
    uint8_t job[TCP_JOB_BYTES];
    uint32_t sockets;
    bool encrypts;     /* data, too; control connections always */
    uint32_t ciphers;  /* that this rank can use */
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
    int net_epoll_fd, net_wake_fd;   /* the thread's */
    int data_epoll_fd, data_wake_fd; /* the caller's */
    struct tcp_pair **pairs;         /* by rank; NULL: nothing was between them */
    struct tcp_attempt *attempts;    /* greetings under way, of both directions */
    int strangers;                   /* attempts that came in and have not proved anything */
    int64_t next_look_ns;            /* at whether the other hosts answer, and this one is well */
    int64_t clocks_ns;               /* when anything is due */
    bool has_news;                   /* so that something may be due before */
    int64_t refusals_ns;             /* since when these are counted */
    int refusals;
    bool is_closing;
    bool needs_wake; /* params->wake is due when the lock is released */
    struct tcp_socket *arrived;
    _Atomic bool has_arrived;

    _Atomic bool has_failed; /* then `failure` is set and does not change */
    struct cddpi_failure failure;
    _Atomic bool is_aborted; /* likewise */
    struct cddpi_failure abort_failure;
    bool must_abort; /* own_abort is to be sent */
    struct cddpi_failure own_abort;
    _Atomic bool must_say_goodbye; /* the program exits, and waits for the other one */
    _Atomic bool has_said_goodbye;

    /* the caller's thread's */
    bool is_forgotten;
    cddp_status data_status; /* CDDP_OK, or why no transfer can go on */
    struct cddpi_failure data_failure;
    struct tcp_socket *all_sockets;
    struct tcp_pool data_buffers;
    struct tcp_link *held; /* links whose small messages wait for others, until the flush */
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

/* Whether all that goes over a connection is encrypted, and not only the heads are signed. */
static inline bool tcp_is_encrypted(const struct tcp_carrier *tcp, unsigned slot)
{
    return slot == TCP_CONTROL_SLOT || tcp->encrypts;
}

static inline uint32_t tcp_slots_of(const struct tcp_carrier *tcp, enum cddpi_net_channel channel)
{
    return ((1u << tcp->sockets) - 1) << tcp_slot(tcp, channel, 0);
}

/* pair.c; with the lock */
/** NULL with a text: no memory. */
struct tcp_pair *cddpi_tcp_pair(struct tcp_carrier *tcp, int peer);
void cddpi_tcp_pair_destroy(struct tcp_carrier *tcp, struct tcp_pair *pair);
/** "rank 3 on host b (10.0.0.7 port 4242 by eth0)" */
void cddpi_tcp_pair_name(const struct tcp_pair *pair, char *out, size_t bytes);
/** The peer cannot be reached any more: the carrier fails, unless it has. */
void cddpi_tcp_pair_lost(struct tcp_carrier *tcp, struct tcp_pair *pair, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/** The same with another status than CDDP_ERR_PEER. */
void cddpi_tcp_pair_failed(struct tcp_carrier *tcp, struct tcp_pair *pair, cddp_status status,
                           const char *why);
/** The same of a peer that has said goodbye and is waited for. */
void cddpi_tcp_pair_left(struct tcp_carrier *tcp, struct tcp_pair *pair);
/** A data connection broke. The peer's control connection may say why; else it is lost soon. */
void cddpi_tcp_pair_suspect(struct tcp_carrier *tcp, struct tcp_pair *pair, bool is_needed,
                            const char *why);
/** Use an open connection for @p slot: this takes over @p stream. @p session: its greeting. */
void cddpi_tcp_pair_fill(struct tcp_carrier *tcp, struct tcp_pair *pair, unsigned slot,
                         struct cddpi_store_stream *stream, const struct cddpi_session *session);

/** Let the thread look at what has changed. Any thread, also without the lock. */
void cddpi_tcp_wake(struct tcp_carrier *tcp);

/* thread.c */
cddp_status cddpi_tcp_thread_start(struct tcp_carrier *tcp);
/** Nothing is open yet. */
void cddpi_tcp_listener_init(struct tcp_carrier *tcp);
/** End the thread. */
void cddpi_tcp_thread_stop(struct tcp_carrier *tcp);

/* connect.c; the thread's, with the lock */
/** Connect what is wanted, and end what takes too long. Lowers @p next_ns to when it is due again.
 */
void cddpi_tcp_pairs_connect(struct tcp_carrier *tcp, int64_t now_ns, int64_t *next_ns);
void cddpi_tcp_attempts_close(struct tcp_carrier *tcp);

/* control.c; the thread's, with the lock */
void cddpi_tcp_control_event(struct tcp_carrier *tcp, struct tcp_pair *pair, uint32_t events);
/** Look at whether hosts answer; send aborts that are due; look after suspicions. */
void cddpi_tcp_control_tick(struct tcp_carrier *tcp, int64_t now_ns, int64_t *next_ns);
void cddpi_tcp_control_goodbye(struct tcp_carrier *tcp);

/* socket.c; the caller's thread's */
void cddpi_tcp_list_append(struct tcp_list *list, struct cddpi_transfer *transfer);
void cddpi_tcp_list_remove(struct tcp_list *list, struct cddpi_transfer *transfer);
bool cddpi_tcp_link_has_transfers(const struct tcp_link *link);
/** Wait for @p events of a socket from now on. */
void cddpi_tcp_socket_watch(struct tcp_carrier *tcp, struct tcp_socket *socket, uint32_t events);
/** The socket is of no use any more; @p error: why, 0 when the peer has closed it. */
void cddpi_tcp_socket_lost(struct tcp_carrier *tcp, struct tcp_socket *socket, int error);

/* send.c, recv.c; the caller's thread's */
cddp_status cddpi_tcp_send(struct tcp_carrier *tcp, struct tcp_link *link,
                           struct cddpi_transfer *transfer);
/** Send what waits for others. */
cddp_status cddpi_tcp_send_held(struct tcp_carrier *tcp, bool *out_any);
/** Send what goes. @p out_any: whether a transfer was done. */
cddp_status cddpi_tcp_socket_send(struct tcp_carrier *tcp, struct tcp_socket *socket,
                                  bool *out_any);
cddp_status cddpi_tcp_recv(struct tcp_carrier *tcp, struct tcp_link *link,
                           struct cddpi_transfer *transfer);
cddp_status cddpi_tcp_socket_recv(struct tcp_carrier *tcp, struct tcp_socket *socket,
                                  bool *out_any);
#endif
