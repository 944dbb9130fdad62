/* net_collective.h - a collective over several hosts, and how far it and its pieces have come. */
#ifndef CDDPI_GROUP_NET_COLLECTIVE_H
#define CDDPI_GROUP_NET_COLLECTIVE_H

#include "group/engine/group_call.h"
#include "group/net/net.h"

/* What hosts compare before a collective counts as done. */
struct net_head {
    struct cddpi_call call;
    double weight;
    uint64_t in_place_of, out_place_of; /* of the memory, if cddp_group_alloc() gave it: see
                                           struct cddpi_backend_ops.place; 0: other memory */
};

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
    unsigned char *packed;   /* a copy of this rank's blocks, without gaps; NULL: none is needed */
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
    bool heads_have_begun, heads_are_done;
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

#endif
