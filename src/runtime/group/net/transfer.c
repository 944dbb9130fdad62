/* transfer.c - owns transfers between hosts, with their tags, and starts the operations of the
 * inner transport that are parts of a collective. */
#include "group/net/transfer.h"

#include "base/clock.h"
#include "base/error.h"
#include "group/net/net_collective.h"

enum {
    NUMBER_BITS = 4, /* no host is more collectives than this allows ahead of another, since they
                        compare their calls */
    PIECE_BITS = 4,
    ROUND_BITS = 5,
    INDEX_BITS = 9,
    CALL_BITS = CDDPI_NET_TAG_BITS - CDDPI_NET_TAG_LOW_BITS
};
_Static_assert(NUMBER_BITS + PIECE_BITS + ROUND_BITS + INDEX_BITS == CDDPI_NET_TAG_LOW_BITS,
               "it fits");
_Static_assert(NET_PIECES <= 1 << PIECE_BITS, "pieces under way have different tags");

bool cddpi_net_has_root(enum cddpi_kind kind)
{
    return kind == CDDPI_BROADCAST || kind == CDDPI_REDUCE || kind == CDDPI_GATHER ||
           kind == CDDPI_SCATTER;
}

int cddpi_net_acting(const struct net_backend *net, int host, size_t piece)
{
    const struct cddpi_group_op *op = net->collective->op;

    if (cddpi_net_has_root(op->kind) && net->host_of[op->root] == host) {
        return op->root;
    }
    return net_leader(net, host, (int)(piece % (size_t)net->collective->leaders));
}

uint32_t cddpi_net_tag(uint64_t number, size_t piece, int round, unsigned index)
{
    uint32_t tag = (uint32_t)(number & ((1U << NUMBER_BITS) - 1));

    tag = tag << PIECE_BITS | (uint32_t)(piece & ((1U << PIECE_BITS) - 1));
    tag = tag << ROUND_BITS | ((uint32_t)round & ((1U << ROUND_BITS) - 1));
    return tag << INDEX_BITS | (index & ((1U << INDEX_BITS) - 1));
}

int cddpi_net_tag_round(uint32_t tag)
{
    return (int)(tag >> INDEX_BITS & ((1U << ROUND_BITS) - 1));
}

cddp_status cddpi_net_start(struct net_backend *net, struct cddpi_transfer *transfer)
{
    transfer->is_done = false;
    net->uses_carrier = true;
    net->moved_ns = cddpi_now_ns();
    return net->carrier->ops->start(net->carrier, transfer);
}

cddp_status cddpi_net_progress(struct net_backend *net)
{
    bool any = false;
    cddp_status status = net->carrier != NULL ? net->carrier->ops->progress(net->carrier, &any)
                                              : CDDP_OK;

    if (any) {
        net->moved_ns = cddpi_now_ns();
    }
    return status;
}

cddp_status cddpi_net_flush(struct net_backend *net, bool *out_any)
{
    *out_any = false;
    return net->carrier != NULL && net->carrier->ops->flush != NULL
               ? net->carrier->ops->flush(net->carrier, out_any)
               : CDDP_OK;
}

bool cddpi_net_are_done(const struct cddpi_transfer *transfers, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        if (!transfers[i].is_done) {
            return false;
        }
    }
    return true;
}

/* A few bits that depend on the call. */
static uint32_t hash_of_call(const struct cddpi_group_op *op)
{
    uint64_t hash = (uint64_t)op->count * 31 + (uint64_t)op->kind * 1000003 +
                    (uint64_t)op->type * 8191 + (uint64_t)op->op * 127;

    hash *= 0x9e3779b97f4a7c15; /* Fibonacci hashing: Knuth, volume 3, 6.4 */
    return (uint32_t)(hash >> (64 - CALL_BITS)) << CDDPI_NET_TAG_LOW_BITS;
}

static cddp_status add_transfer(struct net_backend *net, struct net_piece *piece, int host,
                                unsigned index, struct cddpi_transfer transfer)
{
    const struct cddpi_group_op *op = net->collective->op;

    if (index >= 1U << INDEX_BITS) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE,
                          "net: two hosts exchange more than %d parts of a sum: let neighbouring "
                          "ranks be on the same host",
                          1 << INDEX_BITS);
    }
    if (piece->transfer_count == piece->room->transfer_room) {
        return cddpi_fail(CDDP_ERR_STATE, "a piece has more than %zu transfers",
                          piece->room->transfer_room);
    }
    transfer.peer = cddpi_net_acting(net, host, piece->index);
    transfer.channel = CDDPI_NET_COLLECTIVES;
    transfer.tag = hash_of_call(op) | cddpi_net_tag(op->number, piece->index, piece->round, index);
    transfer.cut_bytes = cddpi_net_has_root(op->kind) ? 0 : cddpi_cut_bytes(&net->link);
    piece->room->transfers[piece->transfer_count] = transfer;
    return cddpi_net_start(net, &piece->room->transfers[piece->transfer_count++]);
}

cddp_status cddpi_net_piece_send(struct net_backend *net, struct net_piece *piece, int host,
                                 unsigned index, const void *data, size_t bytes)
{
    return add_transfer(
        net, piece, host, index,
        (struct cddpi_transfer){.is_send = true, .data = (void *)(uintptr_t)data, .bytes = bytes});
}

cddp_status cddpi_net_piece_recv(struct net_backend *net, struct net_piece *piece, int host,
                                 unsigned index, void *data, size_t bytes)
{
    return add_transfer(net, piece, host, index,
                        (struct cddpi_transfer){.data = data, .bytes = bytes});
}

void cddpi_net_inner_begin(struct net_backend *net, enum cddpi_kind kind, int root, const void *in,
                           void *out, size_t bytes)
{
    const struct cddpi_group_op *op = net->collective->op;

    net->collective->inner = (struct cddpi_group_op){.kind = kind,
                                                     .type = CDDP_U8,
                                                     .count = bytes,
                                                     .in = in,
                                                     .out = out,
                                                     .root = net->local_of[root],
                                                     .whole = op,
                                                     .number = ++net->inner_collectives,
                                                     .start_ns = op->start_ns,
                                                     .deadline_ns = op->deadline_ns};
    net->collective->inner_runs = true;
    net->waits_inside = true;
}

cddp_status cddpi_net_inner_advance(struct net_backend *net, bool *out_done)
{
    struct net_collective *collective = net->collective;

    *out_done = true;
    if (collective->inner_runs) {
        CDDPI_TRY(net->inner->ops->advance(net->inner, &collective->inner, out_done));
    }
    if (*out_done) {
        collective->inner_runs = false;
        net->waits_inside = false;
    }
    return CDDP_OK;
}
