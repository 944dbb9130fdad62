/* net_move.c - owns the collectives that move blocks between hosts, and reduce_scatter, which sums
 * the blocks of this host's ranks once they have arrived. Each pair of hosts exchanges at most one
 * message per piece and direction.
 */
#include "group/net/net_move.h"

#include "base/error.h"
#include "group/net/net_collective.h"
#include "group/net/net_merge.h"
#include "group/net/net_plan.h"
#include "group/net/net_reduce.h"
#include "group/net/net_room.h"
#include "group/net/transfer.h"

#include <string.h>

static size_t block_bytes(const struct net_collective *collective, const struct net_piece *piece)
{
    return piece->count * collective->element;
}

static const int *ranks_of(const struct net_backend *net, int host)
{
    return net->by_host + net->first[host];
}

/* The place of rank @p rank's block in this rank's `out`. */
static unsigned char *out_block(const struct net_collective *collective,
                                const struct net_piece *piece, int rank)
{
    const struct cddpi_group_op *op = collective->op;

    return (unsigned char *)op->out + ((size_t)rank * op->count + piece->at) * collective->element;
}

/* This rank's own data, if it is one block. */
static const unsigned char *in_block(const struct net_collective *collective,
                                     const struct net_piece *piece)
{
    return (const unsigned char *)collective->op->in + piece->at * collective->element;
}

/* broadcast: a binomial tree over hosts, root's host first. */

static int host_at(const struct net_backend *net, const struct net_collective *collective,
                   int distance)
{
    return (net->host_of[collective->op->root] + distance) % net->host_count;
}

static int distance_of(const struct net_backend *net, const struct net_collective *collective)
{
    int distance = net->host - net->host_of[collective->op->root];

    return distance < 0 ? distance + net->host_count : distance;
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

static cddp_status send_to_children(struct net_backend *net, struct net_collective *collective,
                                    struct net_piece *piece)
{
    int distance = distance_of(net, collective);
    cddp_status status = CDDP_OK;

    for (int bit = own_bit(net, distance) / 2; bit > 0 && status == CDDP_OK; bit /= 2) {
        if (distance + bit < net->host_count) {
            status = cddpi_net_piece_send(
                net, collective, piece, host_at(net, collective, distance + bit), 0,
                out_block(collective, piece, 0), block_bytes(collective, piece));
        }
    }
    return status;
}

static cddp_status begin_broadcast(struct net_backend *net, struct net_collective *collective,
                                   struct net_piece *piece)
{
    int distance = distance_of(net, collective);

    if (distance == 0) {
        return CDDP_OK; /* nothing to wait for */
    }
    return cddpi_net_piece_recv(net, collective, piece,
                                host_at(net, collective, distance - own_bit(net, distance)), 0,
                                out_block(collective, piece, 0), block_bytes(collective, piece));
}

/* gather, all_gather: the blocks of a host arrive together, and are put into rank order. */

static bool wants_all(const struct net_backend *net, const struct net_collective *collective)
{
    return collective->op->kind == CDDPI_ALL_GATHER || net->rank == collective->op->root;
}

/* The destination of rank @p rank's block: directly `out`, unless the block goes down to other
 * ranks. */
static unsigned char *place_of(const struct net_collective *collective,
                               const struct net_piece *piece, int rank)
{
    return piece->result != NULL ? piece->result + (size_t)rank * block_bytes(collective, piece)
                                 : out_block(collective, piece, rank);
}

static cddp_status begin_gather(struct net_backend *net, struct net_collective *collective,
                                struct net_piece *piece)
{
    size_t block = block_bytes(collective, piece);
    size_t own = block * (size_t)net->local_size;
    const unsigned char *mine = piece->gathered != NULL ? piece->gathered
                                                        : in_block(collective, piece);
    bool to_all = collective->op->kind == CDDPI_ALL_GATHER;
    cddp_status status = CDDP_OK;

    if (to_all && net->local_size > 1) {
        piece->result = cddpi_net_take(piece->arena, block * (size_t)net->size);
        status = piece->result != NULL ? CDDP_OK : CDDP_ERR_NO_MEMORY;
    }
    for (int host = 0; host < net->host_count && status == CDDP_OK; host++) {
        size_t bytes = block * (size_t)net_host_size(net, host);

        if (host == net->host) {
            continue;
        }
        if (to_all || host == net->host_of[collective->op->root]) {
            status = cddpi_net_piece_send(net, collective, piece, host, 0, mine, own);
        }
        if (status != CDDP_OK || !wants_all(net, collective)) {
            continue;
        }
        piece->by_host[host] = net_host_size(net, host) == 1
                                   ? place_of(collective, piece, ranks_of(net, host)[0])
                                   : cddpi_net_take(piece->arena, bytes);
        status = piece->by_host[host] != NULL ? cddpi_net_piece_recv(net, collective, piece, host,
                                                                     0, piece->by_host[host], bytes)
                                              : CDDP_ERR_NO_MEMORY;
    }
    return status;
}

static void end_gather(const struct net_backend *net, const struct net_collective *collective,
                       const struct net_piece *piece)
{
    size_t block = block_bytes(collective, piece);

    for (int host = 0; host < net->host_count && wants_all(net, collective); host++) {
        const unsigned char *from = piece->by_host[host];

        if (host == net->host) {
            from = piece->gathered != NULL ? piece->gathered : in_block(collective, piece);
        }
        for (int i = 0; i < net_host_size(net, host); i++) {
            unsigned char *to = place_of(collective, piece, ranks_of(net, host)[i]);

            if (to != from + (size_t)i * block) {
                memcpy(to, from + (size_t)i * block, block);
            }
        }
    }
}

/* scatter: root sends each host the blocks of its ranks. */

/* The contiguous blocks of @p host's ranks. */
static const unsigned char *blocks_for(const struct net_backend *net,
                                       const struct net_collective *collective,
                                       struct net_piece *piece, int host)
{
    size_t block = block_bytes(collective, piece);
    const int *ranks = ranks_of(net, host);
    int count = net_host_size(net, host);
    unsigned char *blocks;

    if (ranks[count - 1] - ranks[0] == count - 1) {
        return piece->packed + (size_t)ranks[0] * block;
    }
    blocks = cddpi_net_take(piece->arena, block * (size_t)count);
    for (int i = 0; i < count && blocks != NULL; i++) {
        memcpy(blocks + (size_t)i * block, piece->packed + (size_t)ranks[i] * block, block);
    }
    return blocks;
}

/* Memory for the blocks of this host's ranks before they go down. */
static unsigned char *room_for_blocks(const struct net_backend *net,
                                      const struct net_collective *collective,
                                      struct net_piece *piece)
{
    if (net->local_size == 1) {
        return out_block(collective, piece, 0);
    }
    piece->result = cddpi_net_take(piece->arena,
                                   block_bytes(collective, piece) * (size_t)net->local_size);
    return piece->result;
}

static cddp_status begin_scatter(struct net_backend *net, struct net_collective *collective,
                                 struct net_piece *piece)
{
    size_t block = block_bytes(collective, piece);
    int root = collective->op->root;
    unsigned char *mine = room_for_blocks(net, collective, piece);
    cddp_status status = mine != NULL ? CDDP_OK : CDDP_ERR_NO_MEMORY;

    if (status == CDDP_OK && net->rank != root) {
        return cddpi_net_piece_recv(net, collective, piece, net->host_of[root], 0, mine,
                                    block * (size_t)net->local_size);
    }
    for (int host = 0; host < net->host_count && status == CDDP_OK; host++) {
        const unsigned char *blocks = blocks_for(net, collective, piece, host);
        size_t bytes = block * (size_t)net_host_size(net, host);

        if (blocks == NULL) {
            return CDDP_ERR_NO_MEMORY;
        }
        if (host == net->host) {
            memcpy(mine, blocks, bytes);
        } else {
            status = cddpi_net_piece_send(net, collective, piece, host, 0, blocks, bytes);
        }
    }
    return status;
}

/* all_to_all: two hosts exchange the blocks of all pairs of their ranks, sorted by receiver. */

static const unsigned char *block_of_pair(const struct net_backend *net,
                                          const struct net_collective *collective,
                                          const struct net_piece *piece, int from_local, int to)
{
    const unsigned char *blocks = piece->gathered != NULL ? piece->gathered : piece->packed;

    return blocks +
           ((size_t)from_local * (size_t)net->size + (size_t)to) * block_bytes(collective, piece);
}

static cddp_status begin_all_to_all(struct net_backend *net, struct net_collective *collective,
                                    struct net_piece *piece)
{
    size_t block = block_bytes(collective, piece);
    size_t local = (size_t)net->local_size;
    cddp_status status = CDDP_OK;

    for (int host = 0; host < net->host_count && status == CDDP_OK; host++) {
        size_t theirs = (size_t)net_host_size(net, host);
        unsigned char *send = cddpi_net_take(piece->arena, block * local * theirs);

        piece->by_host[host] = send;
        if (send == NULL) {
            return CDDP_ERR_NO_MEMORY;
        }
        for (size_t to = 0; to < theirs; to++) {
            for (size_t from = 0; from < local; from++) {
                memcpy(send + (to * local + from) * block,
                       block_of_pair(net, collective, piece, (int)from, ranks_of(net, host)[to]),
                       block);
            }
        }
        if (host == net->host) {
            continue;
        }
        status = cddpi_net_piece_send(net, collective, piece, host, 0, send,
                                      block * local * theirs);
        piece->by_host[host] = cddpi_net_take(piece->arena, block * local * theirs);
        if (status == CDDP_OK) {
            status = piece->by_host[host] != NULL
                         ? cddpi_net_piece_recv(net, collective, piece, host, 0,
                                                piece->by_host[host], block * local * theirs)
                         : CDDP_ERR_NO_MEMORY;
        }
    }
    return status;
}

static cddp_status end_all_to_all(struct net_backend *net, struct net_collective *collective,
                                  struct net_piece *piece)
{
    size_t block = block_bytes(collective, piece);
    size_t local = (size_t)net->local_size;

    if (local > 1) {
        piece->result = cddpi_net_take(piece->arena, block * local * (size_t)net->size);
        if (piece->result == NULL) {
            return CDDP_ERR_NO_MEMORY;
        }
    }
    for (int host = 0; host < net->host_count; host++) {
        size_t theirs = (size_t)net_host_size(net, host);

        for (size_t to = 0; to < local; to++) {
            for (size_t i = 0; i < theirs; i++) {
                int from = ranks_of(net, host)[i];
                unsigned char *at = local > 1 ? piece->result +
                                                    (to * (size_t)net->size + (size_t)from) * block
                                              : out_block(collective, piece, from);

                memcpy(at, piece->by_host[host] + (to * theirs + i) * block, block);
            }
        }
    }
    return CDDP_OK;
}

/* reduce_scatter: each host sends every other host its parts of the blocks of that host's ranks. */

/* Bytes of one block of a part, with padding to align the next block. */
static size_t part_bytes(const struct net_collective *collective, const struct net_piece *piece,
                         const struct cddpi_tree_node *node)
{
    size_t bytes = piece->count * (node->count == 1 ? collective->element : collective->sum);

    return (bytes + 63) / 64 * 64;
}

/* Bytes of one block of all parts of @p host. */
static size_t parts_bytes(const struct net_backend *net, const struct net_collective *collective,
                          const struct net_piece *piece, int host)
{
    size_t bytes = 0;

    for (int p = net->tree.first_part[host]; p < net->tree.first_part[host + 1]; p++) {
        bytes += part_bytes(collective, piece, &net->tree.parts[p]);
    }
    return bytes;
}

/* Copy this host's parts of rank @p to's block to @p out. */
static cddp_status write_parts(struct net_backend *net, struct net_collective *collective,
                               struct net_piece *piece, int to, unsigned char *out)
{
    cddp_status status = cddpi_net_own_parts(net, collective, piece, (size_t)to, piece->slots);

    for (int p = net->tree.first_part[net->host];
         p < net->tree.first_part[net->host + 1] && status == CDDP_OK; p++) {
        const struct net_slot *slot = &piece->slots[p];
        size_t bytes = part_bytes(collective, piece, &net->tree.parts[p]);

        memset(out, 0, bytes); /* also if it adds nothing, which the receiver knows */
        if (slot->data != NULL) {
            memcpy(out, slot->data,
                   piece->count * (slot->is_leaf ? collective->element : collective->sum));
        }
        out += bytes;
    }
    return status;
}

static cddp_status begin_reduce_scatter(struct net_backend *net, struct net_collective *collective,
                                        struct net_piece *piece)
{
    size_t own = parts_bytes(net, collective, piece, net->host);
    cddp_status status = CDDP_OK;

    cddpi_net_use_weights(net, collective);
    for (int host = 0; host < net->host_count && status == CDDP_OK; host++) {
        size_t theirs = (size_t)net_host_size(net, host);
        size_t coming = parts_bytes(net, collective, piece, host) * (size_t)net->local_size;
        unsigned char *send;

        if (host == net->host) {
            continue;
        }
        send = cddpi_net_take(piece->arena, own * theirs);
        piece->by_host[host] = cddpi_net_take(piece->arena, coming);
        if (send == NULL || piece->by_host[host] == NULL) {
            return CDDP_ERR_NO_MEMORY;
        }
        for (size_t to = 0; to < theirs && status == CDDP_OK; to++) {
            status = write_parts(net, collective, piece, ranks_of(net, host)[to], send + to * own);
        }
        if (status == CDDP_OK) {
            status = cddpi_net_piece_send(net, collective, piece, host, 0, send, own * theirs);
        }
        if (status == CDDP_OK) {
            status = cddpi_net_piece_recv(net, collective, piece, host, 0, piece->by_host[host],
                                          coming);
        }
    }
    return status;
}

/* Set the slots of other hosts' parts to the data that they sent for this host's rank number @p
 * local. */
static void take_parts(const struct net_backend *net, const struct net_collective *collective,
                       struct net_piece *piece, int local)
{
    for (int host = 0; host < net->host_count; host++) {
        const unsigned char *from = piece->by_host[host];

        if (host == net->host) {
            continue;
        }
        from += (size_t)local * parts_bytes(net, collective, piece, host);
        for (int p = net->tree.first_part[host]; p < net->tree.first_part[host + 1]; p++) {
            const struct cddpi_tree_node *node = &net->tree.parts[p];
            struct cddpi_net_step whole = {.slot = p, .ranks = node->count};
            struct net_slot *slot = &piece->slots[p];

            *slot = (struct net_slot){.is_leaf = node->count == 1, .factor = 1};
            if (slot->is_leaf && collective->has_factors) {
                slot->factor = collective->factors[node->first];
            }
            slot->data = cddpi_net_adds_nothing(net, collective, &whole) ? NULL : from;
            from += part_bytes(collective, piece, node);
        }
    }
}

/* Sum the parts in all slots. */
static cddp_status sum_all(struct net_backend *net, struct net_collective *collective,
                           struct net_piece *piece, void *out)
{
    struct net_merging merging;

    CDDPI_TRY(cddpi_net_merging(net, collective, piece,
                                &net->plans[CDDPI_ALGORITHM_EXCHANGE].schedule, &merging));
    merging.how.destinations = 1;
    merging.how.dst = &out;
    cddpi_reduce_merges(&merging.how, piece->count);
    return CDDP_OK;
}

static cddp_status end_reduce_scatter(struct net_backend *net, struct net_collective *collective,
                                      struct net_piece *piece)
{
    unsigned char *mine = room_for_blocks(net, collective, piece);
    const int *ranks = ranks_of(net, net->host);
    cddp_status status = mine != NULL ? CDDP_OK : CDDP_ERR_NO_MEMORY;

    for (int i = 0; i < net->local_size && status == CDDP_OK; i++) {
        status = cddpi_net_own_parts(net, collective, piece, (size_t)ranks[i], piece->slots);
        if (status == CDDP_OK) {
            take_parts(net, collective, piece, i);
            status = sum_all(net, collective, piece,
                             mine + (size_t)i * block_bytes(collective, piece));
        }
    }
    return status;
}

cddp_status cddpi_net_move_begin(struct net_backend *net, struct net_collective *collective,
                                 struct net_piece *piece)
{
    switch (collective->op->kind) {
    case CDDPI_BROADCAST:
        return begin_broadcast(net, collective, piece);
    case CDDPI_GATHER:
    case CDDPI_ALL_GATHER:
        return begin_gather(net, collective, piece);
    case CDDPI_SCATTER:
        return begin_scatter(net, collective, piece);
    case CDDPI_REDUCE_SCATTER:
        return begin_reduce_scatter(net, collective, piece);
    default:
        return begin_all_to_all(net, collective, piece);
    }
}

/* Called once all data of the piece has arrived. */
static cddp_status end_piece(struct net_backend *net, struct net_collective *collective,
                             struct net_piece *piece)
{
    switch (collective->op->kind) {
    case CDDPI_BROADCAST:
        return send_to_children(net, collective, piece);
    case CDDPI_GATHER:
    case CDDPI_ALL_GATHER:
        end_gather(net, collective, piece);
        return CDDP_OK;
    case CDDPI_REDUCE_SCATTER:
        return end_reduce_scatter(net, collective, piece);
    case CDDPI_ALL_TO_ALL:
        return end_all_to_all(net, collective, piece);
    default:
        return CDDP_OK;
    }
}

cddp_status cddpi_net_move_advance(struct net_backend *net, struct net_collective *collective,
                                   struct net_piece *piece, bool *out_done)
{
    cddp_status status = CDDP_OK;

    *out_done = false;
    if (!cddpi_net_are_done(piece->transfers, piece->transfer_count)) {
        return CDDP_OK;
    }
    if (piece->round == 0) {
        status = end_piece(net, collective, piece);
        piece->round = 1;
    }
    *out_done = status == CDDP_OK && cddpi_net_are_done(piece->transfers, piece->transfer_count);
    return status;
}
