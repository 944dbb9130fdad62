/* net_collective.h - owns the state of a collective over several hosts and of its pieces. */
#ifndef CDDPI_GROUP_NET_COLLECTIVE_H
#define CDDPI_GROUP_NET_COLLECTIVE_H

#include "group/engine/group_call.h"
#include "group/net/net.h"

/* What hosts compare before a collective is done. */
struct net_head {
    struct cddpi_call call;
    double weight;
    uint64_t in_place_of, out_place_of; /* place of memory from cddp_group_alloc(), see struct
                                           cddpi_backend_ops.place; 0: other memory */
};

/* What this host compares with another: the calls, then the weights (heads.c). */
struct net_other {
    struct cddpi_transfer sends[2], recvs[2];
    struct net_head head; /* of its leader */
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

/* The current contents of a slot of a schedule. */
struct net_slot {
    const unsigned char *data; /* data from element `offset` of the piece on; NULL: the slot adds
                                  nothing to the sum */
    size_t offset;
    bool is_leaf; /* one rank's data, in the caller's type; false: a sum */
    double factor;
    unsigned char *sum; /* memory for received or summed data, from element sum_offset on */
    size_t sum_offset;
};

enum net_piece_state {
    NET_PIECE_FREE,
    NET_PIECE_UP,     /* the leader gets the data of its host */
    NET_PIECE_ACROSS, /* leaders exchange */
    NET_PIECE_HERE    /* the leader has the result, which may go down */
};

/* A piece: a range of the data in progress. */
struct net_piece {
    enum net_piece_state state;
    int acting; /* the rank that acts for this host */
    size_t index;
    size_t at;    /* elements */
    size_t count; /* the same */
    size_t bytes; /* of `count` elements: of one rank's block */
    /* this rank's data from element `at` on: the first block if there are several; NULL: none */
    const unsigned char *in;
    unsigned char *out;
    struct net_room *room;
    unsigned char *packed;   /* a copy of this rank's blocks, without gaps; NULL: none is needed */
    unsigned char *gathered; /* at the leader: what the ranks of the host contributed */
    /* at the leader: the result to send down; NULL: it is already in place */
    unsigned char *result;
    size_t transfer_count; /* so far, in room->transfers */
    int round;
};

/* All functions between hosts work on net->collective, the only one at a time. */
struct net_collective {
    struct cddpi_group_op *op;
    int phase;
    size_t element; /* bytes */
    size_t sum;     /* bytes of a partial sum's element */
    size_t whole;   /* bytes of the operation's data, or of one rank's block of it */

    /* arrays that the group keeps for later collectives */
    struct net_head *heads;   /* by index on this host */
    struct net_other *others; /* by host */
    double *weights;          /* one per rank, in the order of by_host */
    double *factors;          /* by rank */
    const void **peers_in;    /* by index on this host; only if zero_copy */
    void **peers_out;

    struct net_head mine;
    bool heads_have_begun, heads_are_done;
    bool has_factors;
    bool weights_are_used; /* the factors have been computed */
    cddp_op op_of_sums;    /* the operation that is used for sums: equal weights are left out */

    bool zero_copy;

    enum cddpi_algorithm algorithm;
    const struct net_plan *plan; /* if it reduces */
    size_t pieces;
    size_t piece_count; /* elements of each piece except the last */
    size_t ups, downs;  /* number of pieces that are through their up or down part */
    int leaders;        /* number of leaders of each host, which take the pieces in turn */
    size_t window_size;
    struct net_piece window[NET_PIECES];

    bool inner_runs;
    struct cddpi_group_op inner;
};

/* Bytes per element of a slot's data. */
static inline size_t net_slot_bytes(const struct net_collective *collective,
                                    const struct net_slot *slot)
{
    return slot->is_leaf ? collective->element : collective->sum;
}

/** Allocate memory for the collectives of @p net, of which one runs at a time. The tables of @p net
 *  must be set. */
cddp_status cddpi_net_collective_open(struct net_backend *net);
/** Release that memory and the memory of pieces. */
void cddpi_net_collective_close(struct net_backend *net);
cddp_status cddpi_net_advance(struct cddpi_backend *backend, struct cddpi_group_op *op,
                              bool *out_done);
void cddpi_net_drop(struct cddpi_backend *backend, struct cddpi_group_op *op);
/** The inner operation that @p op waits for, or NULL. */
const struct cddpi_group_op *cddpi_net_inside(const struct cddpi_group_op *op);
/** Call @p visit for each rank on another host from which @p op still waits for data. */
void cddpi_net_waits_for(const struct net_backend *net, const struct cddpi_group_op *op,
                         void (*visit)(void *context, int rank), void *context);

#endif
