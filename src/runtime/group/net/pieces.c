/* pieces.c - cuts a collective over several hosts into pieces, and moves each up to its acting
 * leader, across, and down again.
 *
 * All ranks of a host run the operations of the inner transport in this order: up(0) ... up(w-1),
 * then down(0), up(w), down(1) ... Here w is the window minus one, so that a piece goes down before
 * its memory is reused. */
#include "group/net/pieces.h"

#include "base/alloc.h"
#include "base/error.h"
#include "group/net/inner.h"
#include "group/net/net_collective.h"
#include "group/net/net_move.h"
#include "group/net/net_plan.h"
#include "group/net/net_reduce.h"
#include "group/net/net_room.h"
#include "group/net/transfer.h"

#include <string.h>

enum {
    PIECE_BYTES = 1 << 20,
    BLOCKS_BYTES = 4 << 20,
    LEADER_BYTES = 64 << 10 /* less data is not worth another leader */
};

static bool acts_for(const struct net_backend *net, const struct net_piece *piece)
{
    return piece->acting == net->rank;
}

/* Whether this rank acts for any piece. */
static bool acts_for_any(const struct net_backend *net, const struct net_collective *collective)
{
    return cddpi_net_acting(net, collective, net->host, (size_t)net->local_rank) == net->rank;
}

static struct net_piece *piece_at(struct net_collective *collective, size_t index)
{
    return &collective->window[index % collective->window_size];
}

/* Whether the data consists of blocks, one per rank. */
static bool has_blocks_in(enum cddpi_kind kind)
{
    return kind == CDDPI_SCATTER || kind == CDDPI_REDUCE_SCATTER || kind == CDDPI_ALL_TO_ALL;
}

static bool has_blocks_out(enum cddpi_kind kind)
{
    return kind == CDDPI_GATHER || kind == CDDPI_ALL_GATHER || kind == CDDPI_ALL_TO_ALL;
}

static bool reduces(enum cddpi_kind kind)
{
    return kind == CDDPI_ALL_REDUCE || kind == CDDPI_REDUCE || kind == CDDPI_REDUCE_SCATTER;
}

/* Whether the inner transport carries pieces to the leader. */
static bool goes_up(const struct net_backend *net, const struct net_collective *collective)
{
    enum cddpi_kind kind = collective->op->kind;

    return net->local_size > 1 && !collective->zero_copy &&
           (reduces(kind) || kind == CDDPI_ALL_GATHER || kind == CDDPI_GATHER ||
            kind == CDDPI_ALL_TO_ALL);
}

static bool goes_down(const struct net_backend *net, const struct net_collective *collective)
{
    enum cddpi_kind kind = collective->op->kind;

    return net->local_size > 1 && !collective->zero_copy && kind != CDDPI_REDUCE &&
           kind != CDDPI_GATHER;
}

/* @p piece elements, or fewer, so that each leader has a piece; an element has @p unit bytes. */
static size_t share_of_leaders(const struct net_backend *net,
                               const struct net_collective *collective, size_t piece, size_t unit)
{
    size_t leaders = (size_t)net->leader_count;
    size_t grain = 64 / collective->element;
    size_t share = (collective->op->count / leaders + grain) / grain * grain;

    if (leaders == 1 || cddpi_net_has_root(collective->op->kind) ||
        collective->op->count * unit < leaders * LEADER_BYTES) {
        return piece;
    }
    return share < piece ? share : piece;
}

/* Assign the pieces to the leaders in turn, unless a root acts for its host. */
static void choose_leaders(const struct net_backend *net, struct net_collective *collective)
{
    size_t most = cddpi_net_has_root(collective->op->kind) ? 1 : (size_t)net->leader_count;

    collective->leaders = (int)(collective->pieces < most ? collective->pieces : most);
    if (collective->leaders == 0) {
        collective->leaders = 1;
    }
    collective->window_size = (size_t)(NET_WINDOW * collective->leaders);
}

/* Uses only data that is equal on all ranks. */
void cddpi_net_pieces_cut(struct net_backend *net, struct net_collective *collective)
{
    const struct cddpi_group_op *op = collective->op;
    bool blocks = has_blocks_in(op->kind) || has_blocks_out(op->kind);
    size_t unit = collective->element * (blocks ? (size_t)net->size : 1);
    size_t piece = (blocks ? (size_t)BLOCKS_BYTES : (size_t)PIECE_BYTES) / unit;
    size_t grain = 64 / collective->element;

    if (op->kind == CDDPI_ALL_REDUCE || op->kind == CDDPI_REDUCE) {
        piece = collective->algorithm == CDDPI_ALGORITHM_EXCHANGE && op->kind == CDDPI_ALL_REDUCE
                    ? op->count
                    : cddpi_piece_bytes(&net->link, net->host_count, op->count * unit) / unit;
    }
    piece = share_of_leaders(net, collective, piece, unit) / grain * grain;
    collective->piece_count = piece > grain ? piece : grain;
    collective->pieces = (op->count + collective->piece_count - 1) / collective->piece_count;
    if (op->kind == CDDPI_BARRIER || op->kind == CDDPI_ALLOC) {
        collective->pieces = 0;
    }
    choose_leaders(net, collective);
}

/* Maximum number of transfers of a piece. */
static size_t transfer_room(const struct net_backend *net, const struct net_collective *collective)
{
    enum cddpi_kind kind = collective->op->kind;

    return kind == CDDPI_ALL_REDUCE || kind == CDDPI_REDUCE
               ? (size_t)cddpi_net_plan_of(net, collective)->schedule.count
               : 2 * (size_t)net->host_count;
}

static cddp_status prepare_piece(struct net_backend *net, struct net_collective *collective,
                                 size_t index)
{
    const struct cddpi_group_op *op = collective->op;
    struct net_piece *piece = piece_at(collective, index);
    struct net_room *room = &net->rooms[index % collective->window_size];
    size_t world = (size_t)net->size;

    piece->state = NET_PIECE_UP;
    piece->acting = cddpi_net_acting(net, collective, net->host, index);
    piece->index = index;
    piece->at = index * collective->piece_count;
    piece->count = op->count - piece->at < collective->piece_count ? op->count - piece->at
                                                                   : collective->piece_count;
    piece->arena = &room->arena;
    piece->packed = piece->gathered = piece->result = NULL;
    piece->transfer_count = 0;
    piece->round = 0;
    cddpi_net_arena_reset(piece->arena);
    if (acts_for(net, piece)) {
        CDDPI_TRY(cddpi_net_room_reserve(net, room, transfer_room(net, collective)));
        piece->transfers = room->transfers;
        piece->transfer_room = room->transfer_count;
        piece->slots = room->slots;
        piece->by_host = room->by_host;
    }
    if (has_blocks_in(op->kind) && (op->kind != CDDPI_SCATTER || net->rank == op->root)) {
        size_t block = piece->count * collective->element;

        piece->packed = cddpi_net_take(piece->arena, world * block);
        if (piece->packed == NULL) {
            return CDDP_ERR_NO_MEMORY;
        }
        for (size_t r = 0; r < world; r++) {
            memcpy(piece->packed + r * block,
                   (const char *)op->in + (r * op->count + piece->at) * collective->element, block);
        }
    }
    return CDDP_OK;
}

/* Bytes of this rank's data that go up. */
static size_t bytes_up(const struct net_backend *net, const struct net_collective *collective,
                       const struct net_piece *piece)
{
    size_t block = piece->count * collective->element;

    return has_blocks_in(collective->op->kind) ? block * (size_t)net->size : block;
}

/* Start to send the next piece up to the leader. */
static cddp_status begin_up(struct net_backend *net, struct net_collective *collective)
{
    size_t index = collective->ups;
    struct net_piece *piece = piece_at(collective, index);
    cddp_status status = prepare_piece(net, collective, index);

    if (status == CDDP_OK && goes_up(net, collective)) {
        size_t bytes = bytes_up(net, collective, piece);
        const void *in = piece->packed != NULL
                             ? (const void *)piece->packed
                             : (const char *)collective->op->in + piece->at * collective->element;

        if (acts_for(net, piece)) {
            piece->gathered = cddpi_net_take(piece->arena, bytes * (size_t)net->local_size);
            if (piece->gathered == NULL) {
                return CDDP_ERR_NO_MEMORY;
            }
        }
        cddpi_net_inner_begin(net, collective, CDDPI_GATHER, piece->acting, in, piece->gathered,
                              bytes);
    }
    return status;
}

/* Bytes that go down to each rank: the whole result if all ranks get it. */
static size_t bytes_down(const struct net_backend *net, const struct net_collective *collective,
                         const struct net_piece *piece)
{
    size_t block = piece->count * collective->element;

    return has_blocks_out(collective->op->kind) ? block * (size_t)net->size : block;
}

static cddp_status begin_down(struct net_backend *net, struct net_collective *collective,
                              struct net_piece *piece)
{
    const struct cddpi_group_op *op = collective->op;
    size_t bytes = bytes_down(net, collective, piece);
    bool to_each = op->kind == CDDPI_SCATTER || op->kind == CDDPI_REDUCE_SCATTER ||
                   op->kind == CDDPI_ALL_TO_ALL;
    void *out;

    if (!goes_down(net, collective)) {
        return CDDP_OK;
    }
    if (!has_blocks_out(op->kind)) {
        out = (char *)op->out + piece->at * collective->element;
    } else { /* it arrives packed */
        bool has = op->kind == CDDPI_ALL_GATHER && acts_for(net, piece);

        out = has ? piece->result : cddpi_net_take(piece->arena, bytes);
        if (out == NULL) {
            return CDDP_ERR_NO_MEMORY;
        }
        piece->packed = out;
    }
    if (to_each) {
        cddpi_net_inner_begin(net, collective, CDDPI_SCATTER, piece->acting, piece->result, out,
                              bytes);
    } else {
        cddpi_net_inner_begin(net, collective, CDDPI_BROADCAST, piece->acting, out, out, bytes);
    }
    return CDDP_OK;
}

/* Copy the contiguous blocks of all ranks to their places in `out`. */
static void unpack_blocks(const struct net_backend *net, const struct net_collective *collective,
                          const struct net_piece *piece, const unsigned char *from)
{
    const struct cddpi_group_op *op = collective->op;
    size_t block = piece->count * collective->element;

    for (size_t r = 0; r < (size_t)net->size; r++) {
        memcpy((char *)op->out + (r * op->count + piece->at) * collective->element,
               from + r * block, block);
    }
}

static void end_down(struct net_backend *net, struct net_collective *collective,
                     struct net_piece *piece)
{
    enum cddpi_kind kind = collective->op->kind;

    if (has_blocks_out(kind) && goes_down(net, collective)) {
        unpack_blocks(net, collective, piece, piece->packed);
    }
    piece->state = NET_PIECE_FREE;
    collective->downs++;
}

static cddp_status begin_across(struct net_backend *net, struct net_collective *collective,
                                struct net_piece *piece)
{
    piece->state = NET_PIECE_ACROSS;
    if (collective->op->kind == CDDPI_ALL_REDUCE || collective->op->kind == CDDPI_REDUCE) {
        return cddpi_net_reduce_begin(net, collective, piece);
    }
    return cddpi_net_move_begin(net, collective, piece);
}

static cddp_status advance_across(struct net_backend *net, struct net_collective *collective)
{
    cddp_status status = CDDP_OK;

    for (int i = 0; i < NET_PIECES && status == CDDP_OK; i++) {
        struct net_piece *piece = &collective->window[i];
        bool done = false;

        if (piece->state != NET_PIECE_ACROSS) {
            continue;
        }
        if (collective->op->kind == CDDPI_ALL_REDUCE || collective->op->kind == CDDPI_REDUCE) {
            status = cddpi_net_reduce_advance(net, collective, piece, &done);
        } else {
            status = cddpi_net_move_advance(net, collective, piece, &done);
        }
        if (status == CDDP_OK && done) {
            piece->state = NET_PIECE_HERE;
        }
    }
    return status;
}

/* Whether a leader knows everything that it needs before it sums. */
static bool may_sum(const struct net_collective *collective)
{
    return !collective->op->weighted || collective->heads_are_done;
}

enum turn { TURN_UP, TURN_DOWN, TURN_NONE };

/* What comes next in the sequence of inner operations. */
static enum turn turn_of(const struct net_collective *collective)
{
    if (collective->ups < collective->pieces &&
        collective->ups - collective->downs < collective->window_size - 1) {
        return TURN_UP;
    }
    return collective->downs < collective->pieces ? TURN_DOWN : TURN_NONE;
}

/* Begin the next step of the sequence. *out_begun: false if it must wait for other hosts. */
static cddp_status next_turn(struct net_backend *net, struct net_collective *collective,
                             bool *out_begun)
{
    struct net_piece *piece = piece_at(collective, collective->downs);

    *out_begun = true;
    if (turn_of(collective) == TURN_UP) {
        return begin_up(net, collective);
    }
    if (acts_for(net, piece) && piece->state != NET_PIECE_HERE) {
        *out_begun = false;
        return CDDP_OK;
    }
    return begin_down(net, collective, piece);
}

/* Called when the step's inner operation has ended, or if it had none. */
static cddp_status end_turn(struct net_backend *net, struct net_collective *collective)
{
    struct net_piece *piece;

    if (turn_of(collective) == TURN_UP) {
        piece = piece_at(collective, collective->ups);
        collective->ups++;
        return acts_for(net, piece) ? begin_across(net, collective, piece) : CDDP_OK;
    }
    end_down(net, collective, piece_at(collective, collective->downs));
    return CDDP_OK;
}

cddp_status cddpi_net_pieces_advance(struct net_backend *net, struct net_collective *collective,
                                     bool *out_done)
{
    cddp_status status = CDDP_OK;
    bool goes_on = may_sum(collective) || !acts_for_any(net, collective);

    *out_done = false;
    while (status == CDDP_OK && goes_on) {
        bool was_running = collective->inner_runs;

        status = advance_across(net, collective);
        if (status != CDDP_OK || collective->downs == collective->pieces) {
            *out_done = collective->downs == collective->pieces;
            return status;
        }
        if (!was_running) {
            status = next_turn(net, collective, &goes_on);
        }
        if (status == CDDP_OK && goes_on) {
            status = cddpi_net_inner_advance(net, collective, &goes_on);
        }
        if (status == CDDP_OK && goes_on) {
            status = end_turn(net, collective);
        }
    }
    return status;
}
