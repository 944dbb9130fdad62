/* net_move.c - owns the collectives that move blocks between hosts, and reduce_scatter, which sums
 * the blocks of this host's ranks once they have arrived. Each pair of hosts exchanges at most one
 * message per piece and direction.
 */
#include "group/net/net_move.h"

#include "base/error.h"
#include "group/net/net_plan.h"
#include "group/net/net_reduce.h"
#include "group/net/net_room.h"
#include "group/net/transfer.h"

#include <string.h>

static const int *ranks_of(const struct net_backend *net, int host)
{
    return net->by_host + net->first[host];
}

/* The blocks that this host's ranks give, in their order. */
static const unsigned char *own_blocks(const struct net_piece *piece)
{
    return piece->gathered != NULL ? piece->gathered : piece->in;
}

/* The destination of rank @p rank's block: directly `out`, unless the block goes down to other
 * ranks. */
static unsigned char *place_of(const struct net_backend *net, const struct net_piece *piece,
                               int rank)
{
    return piece->result != NULL ? piece->result + (size_t)rank * piece->bytes
                                 : piece->out + (size_t)rank * net->collective->whole;
}

/* broadcast: a binomial tree over hosts, root's host first. */

static int host_at(const struct net_backend *net, int distance)
{
    return (net->host_of[net->collective->op->root] + distance) % net->host_count;
}

static int own_distance(const struct net_backend *net)
{
    return (net->host - host_at(net, 0) + net->host_count) % net->host_count;
}

/* The bit in which this host differs from its parent in the tree; for the root a value above the
 * number of hosts. */
static int own_bit(const struct net_backend *net, int distance)
{
    int bit = 1;

    while (bit < net->host_count && (distance & bit) == 0) {
        bit *= 2;
    }
    return bit;
}

static cddp_status send_to_children(struct net_backend *net, struct net_piece *piece)
{
    int distance = own_distance(net);

    for (int bit = own_bit(net, distance) / 2; bit > 0; bit /= 2) {
        if (distance + bit < net->host_count) {
            CDDPI_TRY(cddpi_net_piece_send(net, piece, host_at(net, distance + bit), 0, piece->out,
                                           piece->bytes));
        }
    }
    return CDDP_OK;
}

static cddp_status begin_broadcast(struct net_backend *net, struct net_piece *piece)
{
    int distance = own_distance(net);

    if (distance == 0) {
        return CDDP_OK; /* nothing to wait for */
    }
    return cddpi_net_piece_recv(net, piece, host_at(net, distance - own_bit(net, distance)), 0,
                                piece->out, piece->bytes);
}

/* gather, all_gather: the blocks of a host arrive together, and are put into rank order. */

static bool wants_all(const struct net_backend *net)
{
    const struct cddpi_group_op *op = net->collective->op;

    return op->kind == CDDPI_ALL_GATHER || net->rank == op->root;
}

static cddp_status begin_gather(struct net_backend *net, struct net_piece *piece)
{
    const struct cddpi_group_op *op = net->collective->op;
    bool to_all = op->kind == CDDPI_ALL_GATHER;

    if (to_all && net->local_size > 1) {
        CDDPI_TRY(
            cddpi_net_take_bytes(piece->room, piece->bytes * (size_t)net->size, &piece->result));
    }
    for (int host = 0; host < net->host_count; host++) {
        size_t bytes = piece->bytes * (size_t)net_host_size(net, host);
        unsigned char **theirs = &piece->room->by_host[host];

        if (host == net->host) {
            continue;
        }
        if (to_all || host == net->host_of[op->root]) {
            CDDPI_TRY(cddpi_net_piece_send(net, piece, host, 0, own_blocks(piece),
                                           piece->bytes * (size_t)net->local_size));
        }
        if (!wants_all(net)) {
            continue;
        }
        if (net_host_size(net, host) == 1) {
            *theirs = place_of(net, piece, ranks_of(net, host)[0]);
        } else {
            CDDPI_TRY(cddpi_net_take_bytes(piece->room, bytes, theirs));
        }
        CDDPI_TRY(cddpi_net_piece_recv(net, piece, host, 0, *theirs, bytes));
    }
    return CDDP_OK;
}

static void end_gather(const struct net_backend *net, const struct net_piece *piece)
{
    for (int host = 0; host < net->host_count && wants_all(net); host++) {
        const unsigned char *from = host == net->host ? own_blocks(piece)
                                                      : piece->room->by_host[host];

        for (int i = 0; i < net_host_size(net, host); i++, from += piece->bytes) {
            unsigned char *to = place_of(net, piece, ranks_of(net, host)[i]);

            if (to != from) {
                memcpy(to, from, piece->bytes);
            }
        }
    }
}

/* scatter: root sends each host the blocks of its ranks. */

/* The contiguous blocks of @p host's ranks; NULL: no memory. */
static const unsigned char *blocks_for(const struct net_backend *net, struct net_piece *piece,
                                       int host)
{
    const int *ranks = ranks_of(net, host);
    int count = net_host_size(net, host);
    unsigned char *blocks;

    if (ranks[count - 1] - ranks[0] == count - 1) {
        return piece->packed + (size_t)ranks[0] * piece->bytes;
    }
    blocks = cddpi_net_take(piece->room, piece->bytes * (size_t)count);
    for (int i = 0; i < count && blocks != NULL; i++) {
        memcpy(blocks + (size_t)i * piece->bytes, piece->packed + (size_t)ranks[i] * piece->bytes,
               piece->bytes);
    }
    return blocks;
}

/* Get memory for the blocks of this host's ranks before they go down. */
static cddp_status take_blocks(const struct net_backend *net, struct net_piece *piece,
                               unsigned char **out)
{
    *out = piece->out;
    if (net->local_size > 1) {
        CDDPI_TRY(cddpi_net_take_bytes(piece->room, piece->bytes * (size_t)net->local_size,
                                       &piece->result));
        *out = piece->result;
    }
    return CDDP_OK;
}

static cddp_status begin_scatter(struct net_backend *net, struct net_piece *piece)
{
    int root = net->collective->op->root;
    unsigned char *mine;

    CDDPI_TRY(take_blocks(net, piece, &mine));
    if (net->rank != root) {
        return cddpi_net_piece_recv(net, piece, net->host_of[root], 0, mine,
                                    piece->bytes * (size_t)net->local_size);
    }
    for (int host = 0; host < net->host_count; host++) {
        const unsigned char *blocks = blocks_for(net, piece, host);
        size_t bytes = piece->bytes * (size_t)net_host_size(net, host);

        if (blocks == NULL) {
            return CDDP_ERR_NO_MEMORY;
        }
        if (host == net->host) {
            memcpy(mine, blocks, bytes);
        } else {
            CDDPI_TRY(cddpi_net_piece_send(net, piece, host, 0, blocks, bytes));
        }
    }
    return CDDP_OK;
}

/* all_to_all: two hosts exchange the blocks of all pairs of their ranks, sorted by receiver. */

static cddp_status begin_all_to_all(struct net_backend *net, struct net_piece *piece)
{
    const unsigned char *blocks = piece->gathered != NULL ? piece->gathered : piece->packed;
    size_t local = (size_t)net->local_size;

    for (int host = 0; host < net->host_count; host++) {
        size_t bytes = piece->bytes * local * (size_t)net_host_size(net, host);
        unsigned char *send;
        unsigned char *next;

        CDDPI_TRY(cddpi_net_take_bytes(piece->room, bytes, &send));
        next = send;
        for (int i = 0; i < net_host_size(net, host); i++) {
            size_t to = (size_t)ranks_of(net, host)[i];

            for (size_t from = 0; from < local; from++, next += piece->bytes) {
                memcpy(next, blocks + (from * (size_t)net->size + to) * piece->bytes, piece->bytes);
            }
        }
        piece->room->by_host[host] = send;
        if (host != net->host) {
            CDDPI_TRY(cddpi_net_piece_send(net, piece, host, 0, send, bytes));
            CDDPI_TRY(cddpi_net_take_bytes(piece->room, bytes, &piece->room->by_host[host]));
            CDDPI_TRY(cddpi_net_piece_recv(net, piece, host, 0, piece->room->by_host[host], bytes));
        }
    }
    return CDDP_OK;
}

static cddp_status end_all_to_all(const struct net_backend *net, struct net_piece *piece)
{
    size_t row = piece->bytes * (size_t)net->size; /* the blocks for one rank of this host */

    if (net->local_size > 1) {
        CDDPI_TRY(cddpi_net_take_bytes(piece->room, row * (size_t)net->local_size, &piece->result));
    }
    for (int host = 0; host < net->host_count; host++) {
        const unsigned char *next = piece->room->by_host[host];

        for (size_t to = 0; to < (size_t)net->local_size; to++) {
            for (int i = 0; i < net_host_size(net, host); i++, next += piece->bytes) {
                memcpy(place_of(net, piece, ranks_of(net, host)[i]) + to * row, next, piece->bytes);
            }
        }
    }
    return CDDP_OK;
}

/* reduce_scatter: each host sends every other host its parts of the blocks of that host's ranks. */

/* Bytes of one block of a part, with padding to align the next block. */
static size_t part_bytes(const struct net_backend *net, const struct net_piece *piece,
                         const struct cddpi_tree_node *node)
{
    size_t bytes = node->count == 1 ? piece->bytes : piece->count * net->collective->sum;

    return (bytes + 63) / 64 * 64;
}

/* Bytes of one block of all parts of @p host. */
static size_t parts_bytes(const struct net_backend *net, const struct net_piece *piece, int host)
{
    size_t bytes = 0;

    for (int p = net->tree.first_part[host]; p < net->tree.first_part[host + 1]; p++) {
        bytes += part_bytes(net, piece, &net->tree.parts[p]);
    }
    return bytes;
}

/* Copy this host's parts of rank @p to's block to @p out. */
static cddp_status write_parts(const struct net_backend *net, struct net_piece *piece, int to,
                               unsigned char *out)
{
    CDDPI_TRY(cddpi_net_own_parts(net, piece, (size_t)to));
    for (int p = net->tree.first_part[net->host]; p < net->tree.first_part[net->host + 1]; p++) {
        const struct net_slot *slot = &piece->room->slots[p];
        size_t bytes = part_bytes(net, piece, &net->tree.parts[p]);

        memset(out, 0, bytes); /* also if it adds nothing, which the receiver knows */
        if (slot->data != NULL) {
            memcpy(out, slot->data, piece->count * net_slot_bytes(net->collective, slot));
        }
        out += bytes;
    }
    return CDDP_OK;
}

static cddp_status begin_reduce_scatter(struct net_backend *net, struct net_piece *piece)
{
    size_t own = parts_bytes(net, piece, net->host);

    cddpi_net_use_weights(net);
    for (int host = 0; host < net->host_count; host++) {
        size_t theirs = (size_t)net_host_size(net, host);
        size_t coming = parts_bytes(net, piece, host) * (size_t)net->local_size;
        unsigned char *send;

        if (host == net->host) {
            continue;
        }
        CDDPI_TRY(cddpi_net_take_bytes(piece->room, own * theirs, &send));
        CDDPI_TRY(cddpi_net_take_bytes(piece->room, coming, &piece->room->by_host[host]));
        for (size_t to = 0; to < theirs; to++) {
            CDDPI_TRY(write_parts(net, piece, ranks_of(net, host)[to], send + to * own));
        }
        CDDPI_TRY(cddpi_net_piece_send(net, piece, host, 0, send, own * theirs));
        CDDPI_TRY(cddpi_net_piece_recv(net, piece, host, 0, piece->room->by_host[host], coming));
    }
    return CDDP_OK;
}

/* Set the slots of other hosts' parts to the data that they sent for this host's rank number @p
 * local. */
static void take_parts(const struct net_backend *net, struct net_piece *piece, int local)
{
    const struct net_collective *collective = net->collective;

    for (int host = 0; host < net->host_count; host++) {
        const unsigned char *from = piece->room->by_host[host];

        if (host == net->host) {
            continue;
        }
        from += (size_t)local * parts_bytes(net, piece, host);
        for (int p = net->tree.first_part[host]; p < net->tree.first_part[host + 1]; p++) {
            const struct cddpi_tree_node *node = &net->tree.parts[p];
            struct cddpi_net_step whole = {.slot = p, .ranks = node->count};
            struct net_slot *slot = &piece->room->slots[p];

            *slot = (struct net_slot){.is_leaf = node->count == 1, .factor = 1};
            if (slot->is_leaf && collective->has_factors) {
                slot->factor = collective->factors[node->first];
            }
            slot->data = cddpi_net_adds_nothing(net, &whole) ? NULL : from;
            from += part_bytes(net, piece, node);
        }
    }
}

static cddp_status end_reduce_scatter(const struct net_backend *net, struct net_piece *piece)
{
    unsigned char *mine;

    CDDPI_TRY(take_blocks(net, piece, &mine));
    for (int i = 0; i < net->local_size; i++) {
        void *out = mine + (size_t)i * piece->bytes;
        struct net_merging merging;

        CDDPI_TRY(cddpi_net_own_parts(net, piece, (size_t)ranks_of(net, net->host)[i]));
        take_parts(net, piece, i);
        CDDPI_TRY(cddpi_net_merging(net, piece, &merging));
        merging.how.destinations = 1;
        merging.how.dst = &out;
        cddpi_reduce_merges(&merging.how, piece->count);
    }
    return CDDP_OK;
}

cddp_status cddpi_net_move_begin(struct net_backend *net, struct net_piece *piece)
{
    switch (net->collective->op->kind) {
    case CDDPI_BROADCAST:
        return begin_broadcast(net, piece);
    case CDDPI_GATHER:
    case CDDPI_ALL_GATHER:
        return begin_gather(net, piece);
    case CDDPI_SCATTER:
        return begin_scatter(net, piece);
    case CDDPI_REDUCE_SCATTER:
        return begin_reduce_scatter(net, piece);
    default:
        return begin_all_to_all(net, piece);
    }
}

/* Called once all data of the piece has arrived. */
static cddp_status end_piece(struct net_backend *net, struct net_piece *piece)
{
    switch (net->collective->op->kind) {
    case CDDPI_BROADCAST:
        return send_to_children(net, piece);
    case CDDPI_GATHER:
    case CDDPI_ALL_GATHER:
        end_gather(net, piece);
        return CDDP_OK;
    case CDDPI_REDUCE_SCATTER:
        return end_reduce_scatter(net, piece);
    case CDDPI_ALL_TO_ALL:
        return end_all_to_all(net, piece);
    default:
        return CDDP_OK;
    }
}

cddp_status cddpi_net_move_advance(struct net_backend *net, struct net_piece *piece, bool *out_done)
{
    *out_done = false;
    if (!cddpi_net_are_done(piece->room->transfers, piece->transfer_count)) {
        return CDDP_OK;
    }
    if (piece->round == 0) {
        CDDPI_TRY(end_piece(net, piece));
        piece->round = 1;
    }
    *out_done = cddpi_net_are_done(piece->room->transfers, piece->transfer_count);
    return CDDP_OK;
}
