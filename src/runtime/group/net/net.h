/* net.h - a group whose ranks are on several hosts: what a rank knows of it, and how far its
 * operations have come.
 *
 * Inside a host the ranks use the transport in shared memory (`inner`). Between hosts one rank of
 * each speaks for a piece of a collective: a leader, or, on root's host in a collective that has a
 * root, root itself. The first leader is the host's lowest rank; where one core cannot fill the
 * link, each host has as many others, its next ranks, and they have the pieces in turn. A piece
 * goes up (its data come to the leader), across (leaders exchange) and down (the result goes to the
 * others). Several pieces are under way at once. All ranks of a host do the same operations of the
 * inner transport in the same order, which depends on the number of pieces only. */
#ifndef CDDPI_GROUP_NET_NET_H
#define CDDPI_GROUP_NET_NET_H

#include "group/engine/group_call.h"
#include "group/net/carrier.h"
#include "group/net/net_schedule.h"
#include "group/transports.h"
#include "kernels/cpu/reduce.h"

enum {
    NET_WINDOW = 4, /* pieces of a leader that are under way at once */
    NET_MAX_LEADERS = 4,
    NET_PIECES = NET_WINDOW * NET_MAX_LEADERS,
    NET_HEAD_ROUND = 31 /* in tags: not a piece's round, but the comparison of calls */
};

/* Memory that a piece takes bit by bit, and that stays for the next one. */
struct net_arena {
    struct net_block *blocks; /* all; the newest is the largest */
    size_t used;              /* of the newest */
};

/* Memory of the pieces that have one place of the window in turn. It stays for later collectives.
 */
struct net_room {
    struct net_arena arena;
    struct cddpi_transfer *transfers;
    size_t transfer_count; /* for so many there is room */
    struct net_slot *slots;
    unsigned char **by_host;
};

/* What hosts compare before a collective counts as done. */
struct net_head {
    struct cddpi_call call;
    double weight;
    uint64_t in_place_of, out_place_of; /* where the memory lies in that of cddp_group_alloc(),
                                           see struct cddpi_backend_ops.place; 0: elsewhere */
};

/* A schedule, with what every piece that follows it needs to know. */
struct net_plan {
    struct cddpi_net_schedule schedule;
    int *slot_begin, *slot_end; /* by slot: shares that are received or summed there */
    bool is_made;
};

struct net_backend {
    struct cddpi_backend base; /* first: see net_of() */
    int rank;
    int size;
    uint32_t timeout_ms;

    /* who is where */
    int host;
    int host_count;
    int local_rank;
    int local_size;
    int *host_of;     /* by rank */
    int *local_of;    /* by rank: its place among those of its host */
    int *by_host;     /* all ranks, those of host 0 first */
    int *first;       /* by host, and one more: where its ranks begin in by_host */
    int *leaders;     /* by host: its lowest rank */
    int leader_count; /* of each host, which then has at least so many ranks */

    const struct cddpi_transport *inner_transport;
    struct cddpi_backend *inner;
    uint64_t inner_collectives; /* so far */

    struct cddpi_carrier *_Atomic carrier; /* NULL: there is one host, or it is not open yet */
    struct cddpi_carrier *_Atomic watch;   /* see watch.c; NULL: the carrier sees by itself */
    char token[256];                       /* carriers borrow both */
    char job[320];
    _Atomic bool uses_carrier; /* this rank has begun a transfer */
    int64_t moved_ns;          /* when a transfer was begun or ended last */
    bool is_memory_lent;       /* the carrier may still use what failed operations had: it stays */
    int64_t failed_ns;         /* when it was first seen that a peer is gone or ended the group */
    struct cddpi_link link;    /* as all leaders of a host together fill it */
    double link_of_one_bytes_per_s;
    struct cddpi_tree tree;
    struct net_plan plans[CDDPI_ALGORITHMS];
    struct net_plan *root_plans; /* of reduce, by host of the root */

    struct net_collective *collective; /* the one under way, or room for the next one */
    struct net_room rooms[NET_PIECES]; /* of its pieces */

    int wake_fd;               /* an eventfd: ends a sleep on descriptors */
    _Atomic bool sleeps;       /* on the inner transport or on descriptors */
    _Atomic bool waits_inside; /* an operation of the inner transport is under way */
    _Atomic bool is_told;      /* our host's abort went to the others, or theirs came */
    _Atomic bool is_from_afar; /* it is theirs */
};

static inline struct net_backend *net_of(struct cddpi_backend *base)
{
    return (struct net_backend *)(void *)base;
}

static inline const struct net_backend *net_of_const(const struct cddpi_backend *base)
{
    return (const struct net_backend *)(const void *)base;
}

/* The contents of an operation's `state`. */
struct __attribute__((may_alias)) net_state {
    struct net_collective *collective;
    struct net_message *message;
};
_Static_assert(sizeof(struct net_state) <= CDDPI_OP_STATE_BYTES, "it has its place in an op");

static inline struct net_state *net_state(struct cddpi_group_op *op)
{
    return (struct net_state *)(void *)op->state;
}

static inline const struct net_state *net_state_of(const struct cddpi_group_op *op)
{
    return (const struct net_state *)(const void *)op->state;
}

static inline bool net_is_leader(const struct net_backend *net)
{
    return net->local_rank == 0;
}

/* The @p number-th leader of @p host. */
static inline int net_leader(const struct net_backend *net, int host, int number)
{
    return net->by_host[net->first[host] + number];
}

static inline int net_host_size(const struct net_backend *net, int host)
{
    return net->first[host + 1] - net->first[host];
}

/* What a slot of a schedule holds at present. */
struct net_slot {
    const unsigned char *data; /* of element `offset` of the piece; NULL: it adds nothing */
    size_t offset;
    bool is_leaf; /* a rank's own data, in the caller's type; else a sum */
    double factor;
    unsigned char *sum; /* room for what is received or summed here, from element sum_offset on */
    size_t sum_offset;
};

enum net_piece_state {
    NET_PIECE_FREE,
    NET_PIECE_UP,     /* comes to the leader */
    NET_PIECE_ACROSS, /* leaders exchange */
    NET_PIECE_HERE    /* the result is with the leader; it may go down */
};

/* A range of the data on its way. */
struct net_piece {
    enum net_piece_state state;
    int acting; /* the rank that speaks for this host */
    size_t index;
    size_t at;    /* elements */
    size_t count; /* the same */
    struct net_arena *arena;
    unsigned char *packed;   /* this rank's blocks, one behind the other; NULL: they lie so */
    unsigned char *gathered; /* at the leader: what the ranks of the host brought */
    unsigned char *result;   /* at the leader: what goes down; NULL: it is in place */
    struct cddpi_transfer *transfers;
    size_t transfer_count, transfer_room;
    int round;
    struct net_slot *slots;
    unsigned char **by_host; /* memory of moves, by host */
};

struct net_collective {
    struct cddpi_group_op *op;
    int phase;
    size_t element; /* bytes */
    size_t sum;     /* bytes of a partial sum's element */

    /* arrays that the group keeps from one collective to the next */
    struct net_head *heads;            /* by place on this host */
    struct cddpi_transfer *head_sends; /* by host, two each: heads and weights */
    struct cddpi_transfer *head_recvs;
    struct net_head *peer_heads; /* by host */
    double *weights;             /* by by_host's order: one a rank */
    double *factors;             /* by rank */
    const void **peers_in;       /* by place on this host, where zero_copy */
    void **peers_out;

    struct net_head mine;
    bool heads_are_done;
    bool has_factors;
    bool weights_are_used; /* the factors have been made */
    cddp_op op_of_sums;    /* the operation, without weights that are all equal */

    bool zero_copy;

    enum cddpi_algorithm algorithm;
    size_t pieces;
    size_t piece_count; /* elements of a piece but the last */
    size_t ups, downs;  /* pieces whose part of the sequence has ended */
    int leaders;        /* of each host; they have the pieces in turn */
    size_t window_size;
    struct net_piece window[NET_PIECES];

    bool inner_runs;
    struct cddpi_group_op inner;
};

/* Bytes of an element of what a slot holds. */
static inline size_t net_slot_bytes(const struct net_collective *collective,
                                    const struct net_slot *slot)
{
    return slot->is_leaf ? collective->element : collective->sum;
}

/* A round's merges, in memory of the piece's arena. */
struct net_merging {
    struct cddpi_reduce_merges how;
    struct cddpi_reduce_merge *merges; /* those of `how`, to be written */
    size_t begin, end;                 /* the range, in elements of the piece */
    bool is_empty;                     /* the round has none */
    bool finishes;                     /* how.root is the result */
};

/* net_transport.c */
extern const struct cddpi_backend_ops cddpi_net_ops;

/* wake.c */
/** End this rank's sleep. Any thread. */
void cddpi_net_wake(struct cddpi_backend *backend);
/** The same, with @p context for the rank's struct: the carrier has news. */
void cddpi_net_wake_by_carrier(void *context);
/** Whether the ranks of this host have failed and other hosts have not been told: from now on they
 *  have been. @p context is the rank's struct. Any thread. */
bool cddpi_net_host_failed(void *context, struct cddpi_failure *out);

/* transfer.c */
/** Whether one rank of a collective of @p kind is the root. */
bool cddpi_net_has_root(enum cddpi_kind kind);
/** The rank that speaks for @p host about the @p piece-th piece. */
int cddpi_net_acting(const struct net_backend *net, const struct net_collective *collective,
                     int host, size_t piece);
/** Begin @p transfer, which stays where it is until it is done. */
cddp_status cddpi_net_start(struct net_backend *net, struct cddpi_transfer *transfer);
cddp_status cddpi_net_progress(struct net_backend *net);
/** Let what was begun leave. @p out_any: whether a transfer was done. */
cddp_status cddpi_net_flush(struct net_backend *net, bool *out_any);
bool cddpi_net_are_done(const struct cddpi_transfer *transfers, size_t count);
/** @p bytes of the arena, aligned to 64; NULL with a text: no memory. */
void *cddpi_net_take(struct net_arena *arena, size_t bytes);
void cddpi_net_arena_reset(struct net_arena *arena);
void cddpi_net_arena_fini(struct net_arena *arena);
/** Let @p room have memory for a piece with so many @p transfers. */
cddp_status cddpi_net_room_reserve(const struct net_backend *net, struct net_room *room,
                                   size_t transfers);
void cddpi_net_room_fini(struct net_room *room);
/** Add a transfer of a piece's present round and begin it.
 *  @param index  Tells those between two hosts in one round and direction apart. */
cddp_status cddpi_net_piece_send(struct net_backend *net, struct net_collective *collective,
                                 struct net_piece *piece, int host, unsigned index,
                                 const void *data, size_t bytes);
cddp_status cddpi_net_piece_recv(struct net_backend *net, struct net_collective *collective,
                                 struct net_piece *piece, int host, unsigned index, void *data,
                                 size_t bytes);
/** The tag of a transfer of a collective. */
uint32_t cddpi_net_tag(uint64_t number, size_t piece, int round, unsigned index);
/** The round in a tag. */
int cddpi_net_tag_round(uint32_t tag);

/* net_open.c: see struct cddpi_transport */
cddp_status cddpi_net_open(const struct cddpi_members *members, struct cddpi_backend **out);
cddp_status cddpi_net_split(cddp_group *group, const struct cddpi_open_params *params, int first,
                            bool joins, struct cddpi_backend **out);
void cddpi_net_release(struct net_backend *net);

/* watch.c: other hosts, by what carries data and what watches beside it */
/** Open what watches where the carrier does not. Collective among all ranks. */
cddp_status cddpi_net_watch_open(struct net_backend *net,
                                 const struct cddpi_carrier_params *params);
void cddpi_net_watch_close(struct net_backend *net);
/** As check(), aborted(), describe() and interface() of struct cddpi_carrier_ops. */
cddp_status cddpi_net_check_hosts(struct net_backend *net);
bool cddpi_net_hosts_aborted(struct net_backend *net, struct cddpi_failure *out);
void cddpi_net_describe_peer(struct net_backend *net, int rank, char *out, size_t bytes);
bool cddpi_net_interface(struct cddpi_backend *backend, char *out, size_t bytes);
/** Let other hosts fail as @p failure says, unless they have been told. Any thread. */
void cddpi_net_abort_hosts(struct net_backend *net, const struct cddpi_failure *failure);

/* net_measure.c */
/** Measure the link between hosts. Collective among all ranks, which get the same numbers. */
cddp_status cddpi_net_measure(struct net_backend *net, const struct cddpi_exchange *exchange);

/* net_describe.c */
bool cddpi_net_link(const struct cddpi_backend *backend, cddp_type type,
                    struct cddpi_group_link *out);

/* leaders.c */
/** Set how many leaders each host has: CDDP_LEADERS, or as many as together move
 *  distinctly more than fewer do; and what they move together. Collective among all ranks, which
 *  get the same numbers. */
cddp_status cddpi_net_choose_leaders(struct net_backend *net,
                                     const struct cddpi_exchange *exchange);

/* net_exchange.c: small structs among all ranks, before there is a carrier */
struct net_exchange {
    struct cddpi_exchange base; /* context: this struct */
    struct net_backend *net;
    struct cddpi_rendezvous *rendezvous; /* leaders meet in its store; NULL: by the group below */
    cddp_group *parent;                  /* and by its messages */
    const int *ranks_of_parent;          /* by rank: the one there */
    uint64_t nonce;                      /* of the group, in keys of the store */
    int number;                          /* of exchanges so far */
    size_t part_bytes;                   /* the most of a value; tests set less */
    size_t bytes_given[2];               /* to the store, by this and the last exchange */
};
void cddpi_net_exchange_init(struct net_exchange *exchange, struct net_backend *net);
/** All exchanges by the store are through, well. */
void cddpi_net_exchange_end(struct net_exchange *exchange);
/** Run one operation of the inner transport to its end. */
cddp_status cddpi_net_run_inner(struct net_backend *net, struct cddpi_group_op *op);
/** Tell leaders that wait in the rendezvous why this rank fails. Keeps the thread's failure. */
void cddpi_net_refuse(struct cddpi_rendezvous *rendezvous, int rank, cddp_status status);

/* heads.c: how the ranks compare their calls */
cddp_status cddpi_net_heads_begin(struct net_backend *net, struct net_collective *collective);
/** Whether the calls of all hosts have been compared; CDDP_ERR_MISMATCH. */
cddp_status cddpi_net_heads_advance(struct net_backend *net, struct net_collective *collective,
                                    bool *out_done);
/** The calls of this host's ranks, which are known. */
cddp_status cddpi_net_heads_compare(struct net_backend *net, struct net_collective *collective);

/* inner.c */
/** Begin an operation of this host's ranks, as a part of @p collective.
 *  @param root  A rank of the group; where @p kind has none, the first leader. */
void cddpi_net_inner_begin(struct net_backend *net, struct net_collective *collective,
                           enum cddpi_kind kind, int root, const void *in, void *out, size_t bytes);
/** Advance it. @p out_done: it has ended, or there was none. */
cddp_status cddpi_net_inner_advance(struct net_backend *net, struct net_collective *collective,
                                    bool *out_done);

/* pieces.c */
/** Decide into how many pieces the data are cut, and how many leaders have them. */
void cddpi_net_pieces_cut(struct net_backend *net, struct net_collective *collective);
/** Move the pieces on. @p out_done: all are through on this rank. */
cddp_status cddpi_net_pieces_advance(struct net_backend *net, struct net_collective *collective,
                                     bool *out_done);

/* net_collective.c */
/** Memory for the collectives of @p net, one at a time, whose tables are set. */
cddp_status cddpi_net_collective_open(struct net_backend *net);
/** Release it, and that of pieces. */
void cddpi_net_collective_close(struct net_backend *net);
cddp_status cddpi_net_advance(struct cddpi_backend *backend, struct cddpi_group_op *op,
                              bool *out_done);
void cddpi_net_drop(struct cddpi_backend *backend, struct cddpi_group_op *op);
/** The inner operation that @p op waits for, or NULL. */
const struct cddpi_group_op *cddpi_net_inside(const struct cddpi_group_op *op);
/** Call @p visit for the rank of each other host from which @p op still waits for data. */
void cddpi_net_waits_for(const struct net_backend *net, const struct cddpi_group_op *op,
                         void (*visit)(void *context, int rank), void *context);

/* net_reduce.c: all_reduce and reduce between hosts */
cddp_status cddpi_net_reduce_choose(struct net_backend *net, struct net_collective *collective);
cddp_status cddpi_net_reduce_begin(struct net_backend *net, struct net_collective *collective,
                                   struct net_piece *piece);
cddp_status cddpi_net_reduce_advance(struct net_backend *net, struct net_collective *collective,
                                     struct net_piece *piece, bool *out_done);
/** Let @p slots begin with this host's parts of block @p block of the piece. */
cddp_status cddpi_net_own_parts(struct net_backend *net, const struct net_collective *collective,
                                struct net_piece *piece, size_t block, struct net_slot *slots);
/** Make factors of the weights, once all are known. */
void cddpi_net_use_weights(struct net_backend *net, struct net_collective *collective);

/* net_merge.c */
/** The merges of the piece's present round of @p schedule, whose operands are the slots. Where the
 *  round ends with the result, the caller says where that goes. */
cddp_status cddpi_net_merging(const struct net_backend *net,
                              const struct net_collective *collective, struct net_piece *piece,
                              const struct cddpi_net_schedule *schedule, struct net_merging *out);

/* net_plan.c */
/** Make @p plan by @p algorithm, or, where @p root is a host's number, to that host, unless it is
 *  made already. False: no memory. */
bool cddpi_net_plan_make(struct net_backend *net, enum cddpi_algorithm algorithm, int root,
                         struct net_plan *plan);
void cddpi_net_plan_fini(struct net_plan *plan);
/** The plan that @p collective, an all_reduce or a reduce, follows. */
const struct net_plan *cddpi_net_plan_of(const struct net_backend *net,
                                         const struct net_collective *collective);
/** Whether the weights of all ranks of the step's node are 0: then nothing is sent. */
bool cddpi_net_adds_nothing(const struct net_backend *net, const struct net_collective *collective,
                            const struct cddpi_net_step *step);

/* net_move.c: the other collectives between hosts */
cddp_status cddpi_net_move_begin(struct net_backend *net, struct net_collective *collective,
                                 struct net_piece *piece);
cddp_status cddpi_net_move_advance(struct net_backend *net, struct net_collective *collective,
                                   struct net_piece *piece, bool *out_done);

/* net_message.c */
cddp_status cddpi_net_message(struct net_backend *net, struct cddpi_group_op *op, bool *out_done);
void cddpi_net_message_drop(struct net_backend *net, struct cddpi_group_op *op);
/** The inner operation that carries the message, or NULL: it is between hosts. */
const struct cddpi_group_op *cddpi_net_message_inside(const struct cddpi_group_op *op);

#endif
