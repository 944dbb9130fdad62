/* pieces.c - cuts a collective over several hosts into pieces, and moves each up to its acting
 * leader, across, and down again.
 *
 * All ranks of a host run the operations of the inner transport in this order: up(0) ... up(w-1),
 * then down(0), up(w), down(1) ... Here w is the window minus one, so that a piece goes down before
 * its memory is reused. */
#include "group/net/pieces.h"

#include "base/error.h"
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

/* Whether pieces follow a schedule (net_reduce.c); false: blocks move (net_move.c). */
static bool is_sum(enum cddpi_kind kind)
{
    return kind == CDDPI_ALL_REDUCE || kind == CDDPI_REDUCE;
}

/* Whether the inner transport carries pieces to the leader. */
static bool goes_up(const struct net_backend *net)
{
    enum cddpi_kind kind = net->collective->op->kind;

    return net->local_size > 1 && !net->collective->zero_copy && kind != CDDPI_BROADCAST &&
           kind != CDDPI_SCATTER;
}

static bool goes_down(const struct net_backend *net)
{
    enum cddpi_kind kind = net->collective->op->kind;

    return net->local_size > 1 && !net->collective->zero_copy && kind != CDDPI_REDUCE &&
           kind != CDDPI_GATHER;
}

/* @p piece elements, or fewer, so that each leader has a piece; an element has @p unit bytes. */
static size_t share_of_leaders(const struct net_backend *net, size_t piece, size_t unit)
{
    const struct net_collective *collective = net->collective;
    size_t leaders = (size_t)net->leader_count;
    size_t grain = 64 / collective->element;
    size_t share = (collective->op->count / leaders + grain) / grain * grain;

    if (leaders == 1 || cddpi_net_has_root(collective->op->kind) ||
        collective->op->count * unit < leaders * LEADER_BYTES) {
        return piece;
    }
    return share < piece ? share : piece;
}

/* Uses only data that is equal on all ranks. */
void cddpi_net_pieces_cut(struct net_backend *net)
{
    struct net_collective *collective = net->collective;
    const struct cddpi_group_op *op = collective->op;
    bool blocks = has_blocks_in(op->kind) || has_blocks_out(op->kind);
    size_t unit = collective->element * (blocks ? (size_t)net->size : 1);
    size_t piece = (blocks ? (size_t)BLOCKS_BYTES : (size_t)PIECE_BYTES) / unit;
    size_t grain = 64 / collective->element;
    /* the pieces' leaders in turn, unless a root acts for its host */
    size_t most = cddpi_net_has_root(op->kind) ? 1 : (size_t)net->leader_count;

    if (is_sum(op->kind)) {
        piece = collective->algorithm == CDDPI_ALGORITHM_EXCHANGE && op->kind == CDDPI_ALL_REDUCE
                    ? op->count
                    : cddpi_piece_bytes(&net->link, net->host_count, op->count * unit) / unit;
    }
    piece = share_of_leaders(net, piece, unit) / grain * grain;
    collective->piece_count = piece > grain ? piece : grain;
    collective->pieces = (op->count + collective->piece_count - 1) / collective->piece_count;
    if (op->kind == CDDPI_BARRIER || op->kind == CDDPI_ALLOC) {
        collective->pieces = 0;
    }
    collective->leaders = (int)(collective->pieces < most ? collective->pieces : most);
    if (collective->leaders == 0) {
        collective->leaders = 1;
    }
    collective->window_size = (size_t)(NET_WINDOW * collective->leaders);
}

static cddp_status prepare_piece(struct net_backend *net, struct net_piece *piece, size_t index)
{
    const struct net_collective *collective = net->collective;
    const struct cddpi_group_op *op = collective->op;
    struct net_room *room = &net->rooms[index % collective->window_size];
    size_t at = index * collective->piece_count;
    size_t left = op->count - at;

    *piece = (struct net_piece){.state = NET_PIECE_UP,
                                .acting = cddpi_net_acting(net, net->host, index),
                                .index = index,
                                .at = at,
                                .count = left < collective->piece_count ? left
                                                                        : collective->piece_count,
                                .room = room};
    piece->bytes = piece->count * collective->element;
    piece->in = op->in != NULL ? (const unsigned char *)op->in + at * collective->element : NULL;
    piece->out = op->out != NULL ? (unsigned char *)op->out + at * collective->element : NULL;
    cddpi_net_room_reset(room);
    if (acts_for(net, piece)) {
        CDDPI_TRY(cddpi_net_room_reserve(net, room,
                                         is_sum(op->kind) ? (size_t)collective->plan->schedule.count
                                                          : 2 * (size_t)net->host_count));
    }
    if (has_blocks_in(op->kind) && (op->kind != CDDPI_SCATTER || net->rank == op->root)) {
        CDDPI_TRY(
            cddpi_net_take_bytes(piece->room, (size_t)net->size * piece->bytes, &piece->packed));
        for (size_t r = 0; r < (size_t)net->size; r++) {
            memcpy(piece->packed + r * piece->bytes, piece->in + r * collective->whole,
                   piece->bytes);
        }
    }
    return CDDP_OK;
}

/* Start to send the next piece up to the leader. */
static cddp_status begin_up(struct net_backend *net)
{
    struct net_collective *collective = net->collective;
    struct net_piece *piece = piece_at(collective, collective->ups);
    bool blocks = has_blocks_in(collective->op->kind);
    size_t bytes;

    CDDPI_TRY(prepare_piece(net, piece, collective->ups));
    if (!goes_up(net)) {
        return CDDP_OK;
    }
    bytes = blocks ? piece->bytes * (size_t)net->size : piece->bytes;
    if (acts_for(net, piece)) {
        CDDPI_TRY(
            cddpi_net_take_bytes(piece->room, bytes * (size_t)net->local_size, &piece->gathered));
    }
    cddpi_net_inner_begin(net, CDDPI_GATHER, piece->acting, blocks ? piece->packed : piece->in,
                          piece->gathered, bytes);
    return CDDP_OK;
}

static cddp_status begin_down(struct net_backend *net, struct net_piece *piece)
{
    enum cddpi_kind kind = net->collective->op->kind;
    size_t bytes = piece->bytes; /* for each rank: the whole result if all ranks get it */
    unsigned char *out = piece->out;

    if (!goes_down(net)) {
        return CDDP_OK;
    }
    if (has_blocks_out(kind)) { /* they arrive packed */
        bytes *= (size_t)net->size;
        if (kind == CDDPI_ALL_GATHER && acts_for(net, piece)) {
            out = piece->result;
        } else {
            CDDPI_TRY(cddpi_net_take_bytes(piece->room, bytes, &out));
        }
        piece->packed = out;
    }
    if (has_blocks_in(kind)) { /* to each rank its own */
        cddpi_net_inner_begin(net, CDDPI_SCATTER, piece->acting, piece->result, out, bytes);
    } else {
        cddpi_net_inner_begin(net, CDDPI_BROADCAST, piece->acting, out, out, bytes);
    }
    return CDDP_OK;
}

/* Copy the contiguous blocks of all ranks to their places in `out`. */
static void end_down(const struct net_backend *net, struct net_piece *piece)
{
    bool is_packed = has_blocks_out(net->collective->op->kind) && goes_down(net);

    for (size_t r = 0; is_packed && r < (size_t)net->size; r++) {
        memcpy(piece->out + r * net->collective->whole, piece->packed + r * piece->bytes,
               piece->bytes);
    }
    piece->state = NET_PIECE_FREE;
    net->collective->downs++;
}

static cddp_status advance_across(struct net_backend *net)
{
    struct net_collective *collective = net->collective;

    for (int i = 0; i < NET_PIECES; i++) {
        struct net_piece *piece = &collective->window[i];
        bool done = false;

        if (piece->state != NET_PIECE_ACROSS) {
            continue;
        }
        CDDPI_TRY(is_sum(collective->op->kind) ? cddpi_net_reduce_advance(net, piece, &done)
                                               : cddpi_net_move_advance(net, piece, &done));
        if (done) {
            piece->state = NET_PIECE_HERE;
        }
    }
    return CDDP_OK;
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
static cddp_status next_turn(struct net_backend *net, bool *out_begun)
{
    struct net_piece *piece = piece_at(net->collective, net->collective->downs);

    *out_begun = true;
    if (turn_of(net->collective) == TURN_UP) {
        return begin_up(net);
    }
    if (acts_for(net, piece) && piece->state != NET_PIECE_HERE) {
        *out_begun = false;
        return CDDP_OK;
    }
    return begin_down(net, piece);
}

/* Called when the step's inner operation has ended, or if it had none. */
static cddp_status end_turn(struct net_backend *net)
{
    struct net_collective *collective = net->collective;

    if (turn_of(collective) == TURN_UP) {
        struct net_piece *piece = piece_at(collective, collective->ups++);

        if (!acts_for(net, piece)) {
            return CDDP_OK;
        }
        piece->state = NET_PIECE_ACROSS;
        return is_sum(collective->op->kind) ? cddpi_net_reduce_begin(net, piece)
                                            : cddpi_net_move_begin(net, piece);
    }
    end_down(net, piece_at(collective, collective->downs));
    return CDDP_OK;
}

cddp_status cddpi_net_pieces_advance(struct net_backend *net, bool *out_done)
{
    struct net_collective *collective = net->collective;
    /* a leader needs all weights before it sums */
    bool goes_on = !collective->op->weighted || collective->heads_are_done ||
                   cddpi_net_acting(net, net->host, (size_t)net->local_rank) != net->rank;

    *out_done = false;
    while (goes_on) {
        bool was_running = collective->inner_runs;

        CDDPI_TRY(advance_across(net));
        if (collective->downs == collective->pieces) {
            *out_done = true;
            return CDDP_OK;
        }
        if (!was_running) {
            CDDPI_TRY(next_turn(net, &goes_on));
        }
        if (goes_on) {
            CDDPI_TRY(cddpi_net_inner_advance(net, &goes_on));
        }
        if (goes_on) {
            CDDPI_TRY(end_turn(net));
        }
    }
    return CDDP_OK;
}
