/* collective.c - runs a collective over several hosts: compares calls, then lets pieces go up to
 * the leader, across, and down again.
 *
 * On each host the operations of the inner transport are, in this order on all of its ranks: heads;
 * up(0) ... up(w-1), then down(0), up(w), down(1) ...; a barrier where there is nothing to bring
 * down. w is one less than the window, so that a piece comes down before its memory is used again.
 */
#include "base/alloc.h"
#include "base/error.h"
#include "group/net/net.h"

#include <string.h>

enum {
    PIECE_BYTES = 1 << 20,
    BLOCKS_BYTES = 4 << 20,
    LEADER_BYTES = 64 << 10 /* less is not worth another leader */
};

enum phase { PHASE_HEADS, PHASE_PIECES, PHASE_BARRIER, PHASE_DONE };

static bool acts(const struct cddpi_backend *net, const struct net_piece *piece)
{
    return piece->acting == net->rank;
}

/* Whether this rank acts for any piece. */
static bool leads(const struct cddpi_backend *net, const struct net_collective *collective)
{
    return cddpi_net_acting(net, collective, net->host, (size_t)net->local_rank) == net->rank;
}

static struct net_piece *piece_at(struct net_collective *collective, size_t index)
{
    return &collective->window[index % collective->window_size];
}

/* Whether the data are blocks, one for each rank. */
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

/* Whether pieces are brought to the leader by the inner transport. */
static bool goes_up(const struct cddpi_backend *net, const struct net_collective *collective)
{
    enum cddpi_kind kind = collective->op->kind;

    return net->local_size > 1 && !collective->zero_copy &&
           (reduces(kind) || kind == CDDPI_ALL_GATHER || kind == CDDPI_GATHER ||
            kind == CDDPI_ALL_TO_ALL);
}

static bool goes_down(const struct cddpi_backend *net, const struct net_collective *collective)
{
    enum cddpi_kind kind = collective->op->kind;

    return net->local_size > 1 && !collective->zero_copy && kind != CDDPI_REDUCE &&
           kind != CDDPI_GATHER;
}

static void begin_inner(struct cddpi_backend *net, struct net_collective *collective,
                        enum cddpi_kind kind, int root, const void *in, void *out, size_t bytes)
{
    const struct cddpi_group_op *op = collective->op;

    collective->inner = (struct cddpi_group_op){.kind = kind,
                                                .type = CDDP_U8,
                                                .count = bytes,
                                                .in = in,
                                                .out = out,
                                                .root = net->local_of[root],
                                                .whole = op,
                                                .number = ++net->inner_collectives,
                                                .start_ns = op->start_ns,
                                                .deadline_ns = op->deadline_ns};
    collective->inner_runs = true;
    net->waits_inside = true;
}

/* Advance the inner operation. *out_done: it has ended, or there was none. */
static cddp_status advance_inner(struct cddpi_backend *net, struct net_collective *collective,
                                 bool *out_done)
{
    cddp_status status = CDDP_OK;

    *out_done = true;
    if (collective->inner_runs) {
        status = net->inner_ops->advance(net->inner, &collective->inner, out_done);
    }
    if (status == CDDP_OK && *out_done) {
        collective->inner_runs = net->waits_inside = false;
    }
    return status;
}

static void free_collective(struct net_collective *collective)
{
    for (int i = 0; i < NET_PIECES; i++) {
        cddpi_free(collective->window[i].transfers);
        cddpi_free(collective->window[i].slots);
        cddpi_free(collective->window[i].by_host);
    }
    cddpi_free(collective->heads);
    cddpi_free(collective->head_sends);
    cddpi_free(collective->head_recvs);
    cddpi_free(collective->peer_heads);
    cddpi_free(collective->weights);
    cddpi_free(collective->factors);
    cddpi_free(collective->peers_in);
    cddpi_free(collective->peers_out);
    cddpi_free(collective);
}

static struct net_collective *new_collective(const struct cddpi_backend *net)
{
    struct net_collective *collective = cddpi_zalloc(sizeof *collective);
    size_t hosts = (size_t)net->host_count;
    size_t local = (size_t)net->local_size;

    if (collective == NULL) {
        return NULL;
    }
    collective->heads = cddpi_zalloc_array(local, sizeof *collective->heads);
    collective->head_sends = cddpi_zalloc_array(2 * hosts, sizeof *collective->head_sends);
    collective->head_recvs = cddpi_zalloc_array(2 * hosts, sizeof *collective->head_recvs);
    collective->peer_heads = cddpi_zalloc_array(hosts, sizeof *collective->peer_heads);
    collective->weights = cddpi_zalloc_array((size_t)net->size, sizeof *collective->weights);
    collective->factors = cddpi_zalloc_array((size_t)net->size, sizeof *collective->factors);
    collective->peers_in = cddpi_zalloc_array(local, sizeof *collective->peers_in);
    collective->peers_out = cddpi_zalloc_array(local, sizeof *collective->peers_out);
    if (collective->heads == NULL || collective->head_sends == NULL ||
        collective->head_recvs == NULL || collective->peer_heads == NULL ||
        collective->weights == NULL || collective->factors == NULL ||
        collective->peers_in == NULL || collective->peers_out == NULL) {
        free_collective(collective);
        return NULL;
    }
    return collective;
}

static uint64_t place(const struct cddpi_backend *net, const void *memory, size_t bytes)
{
    return net->inner_ops->place != NULL && bytes > 0
               ? net->inner_ops->place(net->inner, memory, bytes)
               : 0;
}

static cddp_status begin(struct cddpi_backend *net, struct cddpi_group_op *op)
{
    struct net_collective *collective = new_collective(net);
    size_t bytes = op->count * cddp_type_bytes(op->type);

    if (collective == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory", cddpi_kind_name(op->kind));
    }
    net_state(op)->collective = collective;
    collective->op = op;
    collective->leaders = 1;
    collective->element = cddp_type_bytes(op->type);
    collective->sum = cddp_type_bytes(cddpi_reduce_sum_type(op->type, op->op));
    collective->op_of_sums = op->op;
    collective->mine.call = cddpi_call_of(op);
    collective->mine.weight = op->weight;
    if (op->kind == CDDPI_ALL_REDUCE && net->local_size > 1) {
        collective->mine.in_place_of = place(net, op->in, bytes);
        collective->mine.out_place_of = place(net, op->out, bytes);
    }
    if (net->local_size > 1) {
        begin_inner(net, collective, CDDPI_ALL_GATHER, net->leaders[net->host], &collective->mine,
                    collective->heads, sizeof collective->mine);
    } else {
        collective->heads[0] = collective->mine;
    }
    return CDDP_OK;
}

/* Where all ranks of the host keep their data where the leader sees them, it works on them there.
 */
static void look_for_zero_copy(struct cddpi_backend *net, struct net_collective *collective)
{
    const struct cddpi_group_op *op = collective->op;
    size_t bytes = op->count * collective->element;

    if (op->kind != CDDPI_ALL_REDUCE || net->local_size == 1 || bytes == 0) {
        return;
    }
    for (int i = 0; i < net->local_size; i++) {
        if (collective->heads[i].in_place_of == 0 || collective->heads[i].out_place_of == 0 ||
            collective->heads[i].in_place_of != collective->heads[0].in_place_of ||
            collective->heads[i].out_place_of != collective->heads[0].out_place_of) {
            return;
        }
    }
    collective->zero_copy =
        net->inner_ops->peers(net->inner, op->in, bytes, collective->peers_in) &&
        net->inner_ops->peers(net->inner, op->out, bytes, (const void **)collective->peers_out);
}

/* @p piece, or less, so that each leader has one: elements of which one has @p unit bytes. */
static size_t share_of_leaders(const struct cddpi_backend *net,
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

/* Let the leaders have the pieces in turn, except where a root speaks for its host. */
static void choose_leaders(const struct cddpi_backend *net, struct net_collective *collective)
{
    size_t most = cddpi_net_has_root(collective->op->kind) ? 1 : (size_t)net->leader_count;

    collective->leaders = (int)(collective->pieces < most ? collective->pieces : most);
    if (collective->leaders == 0) {
        collective->leaders = 1;
    }
    collective->window_size = (size_t)(NET_WINDOW * collective->leaders);
}

/* Into how many pieces the data are cut: a function of what all ranks know alike. */
static void cut(struct cddpi_backend *net, struct net_collective *collective)
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

/* All calls of this host's ranks are known. */
static cddp_status begin_pieces(struct cddpi_backend *net, struct net_collective *collective)
{
    cddp_status status = cddpi_net_heads_compare(net, collective);

    if (status != CDDP_OK) {
        return status;
    }
    look_for_zero_copy(net, collective);
    if (collective->op->kind == CDDPI_ALL_REDUCE || collective->op->kind == CDDPI_REDUCE) {
        status = cddpi_net_reduce_choose(net, collective);
    }
    if (status != CDDP_OK) {
        return status;
    }
    if (collective->op->kind == CDDPI_REDUCE_SCATTER &&
        !cddpi_net_plan_make(net, CDDPI_ALGORITHM_EXCHANGE, -1,
                             &net->plans[CDDPI_ALGORITHM_EXCHANGE])) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "reduce_scatter: no memory");
    }
    cut(net, collective);
    collective->phase = PHASE_PIECES;
    collective->heads_are_done = net->local_rank >= collective->leaders;
    if (collective->op->kind == CDDPI_ALLOC) {
        begin_inner(net, collective, CDDPI_ALLOC, net->leaders[net->host], NULL,
                    collective->op->out, collective->op->count);
    }
    return collective->heads_are_done ? CDDP_OK : cddpi_net_heads_begin(net, collective);
}

/* How many transfers a piece has at most. */
static size_t transfer_room(const struct cddpi_backend *net,
                            const struct net_collective *collective)
{
    enum cddpi_kind kind = collective->op->kind;

    return kind == CDDPI_ALL_REDUCE || kind == CDDPI_REDUCE
               ? (size_t)cddpi_net_plan_of(net, collective)->schedule.count
               : 2 * (size_t)net->host_count;
}

static cddp_status prepare_piece(struct cddpi_backend *net, struct net_collective *collective,
                                 size_t index)
{
    const struct cddpi_group_op *op = collective->op;
    struct net_piece *piece = piece_at(collective, index);
    size_t world = (size_t)net->size;

    piece->state = NET_PIECE_UP;
    piece->acting = cddpi_net_acting(net, collective, net->host, index);
    piece->index = index;
    piece->at = index * collective->piece_count;
    piece->count = op->count - piece->at < collective->piece_count ? op->count - piece->at
                                                                   : collective->piece_count;
    piece->arena = &net->arenas[index % collective->window_size];
    piece->packed = piece->gathered = piece->result = NULL;
    piece->transfer_count = 0;
    piece->round = 0;
    cddpi_net_arena_reset(piece->arena);
    if (acts(net, piece) && piece->transfers == NULL) {
        piece->transfer_room = transfer_room(net, collective);
        piece->transfers = cddpi_zalloc_array(piece->transfer_room, sizeof *piece->transfers);
        piece->slots = cddpi_zalloc_array((size_t)net->tree.part_count, sizeof *piece->slots);
        piece->by_host = cddpi_zalloc_array((size_t)net->host_count, sizeof *piece->by_host);
        if (piece->transfers == NULL || piece->slots == NULL || piece->by_host == NULL) {
            return cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory", cddpi_kind_name(op->kind));
        }
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
static size_t bytes_up(const struct cddpi_backend *net, const struct net_collective *collective,
                       const struct net_piece *piece)
{
    size_t block = piece->count * collective->element;

    return has_blocks_in(collective->op->kind) ? block * (size_t)net->size : block;
}

/* Begin to bring the next piece to the leader. */
static cddp_status begin_up(struct cddpi_backend *net, struct net_collective *collective)
{
    size_t index = collective->ups;
    struct net_piece *piece = piece_at(collective, index);
    cddp_status status = prepare_piece(net, collective, index);

    if (status == CDDP_OK && goes_up(net, collective)) {
        size_t bytes = bytes_up(net, collective, piece);
        const void *in = piece->packed != NULL
                             ? (const void *)piece->packed
                             : (const char *)collective->op->in + piece->at * collective->element;

        if (acts(net, piece)) {
            piece->gathered = cddpi_net_take(piece->arena, bytes * (size_t)net->local_size);
            if (piece->gathered == NULL) {
                return CDDP_ERR_NO_MEMORY;
            }
        }
        begin_inner(net, collective, CDDPI_GATHER, piece->acting, in, piece->gathered, bytes);
    }
    return status;
}

/* Bytes that go down to each rank: all of the result where all ranks get it. */
static size_t bytes_down(const struct cddpi_backend *net, const struct net_collective *collective,
                         const struct net_piece *piece)
{
    size_t block = piece->count * collective->element;

    return has_blocks_out(collective->op->kind) ? block * (size_t)net->size : block;
}

static cddp_status begin_down(struct cddpi_backend *net, struct net_collective *collective,
                              struct net_piece *piece)
{
    const struct cddpi_group_op *op = collective->op;
    size_t bytes = bytes_down(net, collective, piece);
    bool to_each = op->kind == CDDPI_SCATTER || op->kind == CDDPI_REDUCE_SCATTER ||
                   op->kind == CDDPI_ALL_TO_ALL;
    void *out = (char *)op->out + piece->at * collective->element;

    if (!goes_down(net, collective)) {
        return CDDP_OK;
    }
    if (has_blocks_out(op->kind)) { /* it comes packed */
        bool has = op->kind == CDDPI_ALL_GATHER && acts(net, piece);

        out = has ? piece->result : cddpi_net_take(piece->arena, bytes);
        if (out == NULL) {
            return CDDP_ERR_NO_MEMORY;
        }
        piece->packed = out;
    }
    if (to_each) {
        begin_inner(net, collective, CDDPI_SCATTER, piece->acting, piece->result, out, bytes);
    } else {
        begin_inner(net, collective, CDDPI_BROADCAST, piece->acting, out, out, bytes);
    }
    return CDDP_OK;
}

/* The blocks of all ranks are there, one behind the other: put them where they belong. */
static void unpack(const struct cddpi_backend *net, const struct net_collective *collective,
                   const struct net_piece *piece, const unsigned char *from)
{
    const struct cddpi_group_op *op = collective->op;
    size_t block = piece->count * collective->element;

    for (size_t r = 0; r < (size_t)net->size; r++) {
        memcpy((char *)op->out + (r * op->count + piece->at) * collective->element,
               from + r * block, block);
    }
}

static void end_down(struct cddpi_backend *net, struct net_collective *collective,
                     struct net_piece *piece)
{
    enum cddpi_kind kind = collective->op->kind;

    if (has_blocks_out(kind) && goes_down(net, collective)) {
        unpack(net, collective, piece, piece->packed);
    }
    piece->state = NET_PIECE_FREE;
    collective->downs++;
}

static cddp_status begin_across(struct cddpi_backend *net, struct net_collective *collective,
                                struct net_piece *piece)
{
    piece->state = NET_PIECE_ACROSS;
    if (collective->op->kind == CDDPI_ALL_REDUCE || collective->op->kind == CDDPI_REDUCE) {
        return cddpi_net_reduce_begin(net, collective, piece);
    }
    return cddpi_net_move_begin(net, collective, piece);
}

static cddp_status advance_across(struct cddpi_backend *net, struct net_collective *collective)
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

/* Whether a leader knows all that it needs before it sums. */
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

/* Begin the next step of the sequence. *out_begun: false if it has to wait for other hosts. */
static cddp_status next_turn(struct cddpi_backend *net, struct net_collective *collective,
                             bool *out_begun)
{
    struct net_piece *piece = piece_at(collective, collective->downs);

    *out_begun = true;
    if (turn_of(collective) == TURN_UP) {
        return begin_up(net, collective);
    }
    if (acts(net, piece) && piece->state != NET_PIECE_HERE) {
        *out_begun = false;
        return CDDP_OK;
    }
    return begin_down(net, collective, piece);
}

/* The step's inner operation, if it had one, has ended. */
static cddp_status end_turn(struct cddpi_backend *net, struct net_collective *collective)
{
    struct net_piece *piece;

    if (turn_of(collective) == TURN_UP) {
        piece = piece_at(collective, collective->ups);
        collective->ups++;
        return acts(net, piece) ? begin_across(net, collective, piece) : CDDP_OK;
    }
    end_down(net, collective, piece_at(collective, collective->downs));
    return CDDP_OK;
}

/* *out_done: all pieces are through on this rank. */
static cddp_status advance_pieces(struct cddpi_backend *net, struct net_collective *collective,
                                  bool *out_done)
{
    cddp_status status = CDDP_OK;
    bool goes_on = may_sum(collective) || !leads(net, collective);

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
            status = advance_inner(net, collective, &goes_on);
        }
        if (status == CDDP_OK && goes_on) {
            status = end_turn(net, collective);
        }
    }
    return status;
}

/* Whether ranks of the host have to wait for their leader at the end. */
static bool has_barrier(const struct cddpi_backend *net, const struct net_collective *collective)
{
    return net->local_size > 1 && (collective->zero_copy || collective->op->kind == CDDPI_BARRIER ||
                                   collective->op->kind == CDDPI_ALLOC);
}

static cddp_status advance(struct cddpi_backend *net, struct net_collective *collective,
                           bool *out_done)
{
    bool done = true;
    cddp_status status = CDDP_OK;

    *out_done = false;
    if (collective->phase == PHASE_HEADS) {
        status = advance_inner(net, collective, &done);
        if (status != CDDP_OK || !done) {
            return status;
        }
        status = begin_pieces(net, collective);
    }
    if (status == CDDP_OK && !collective->heads_are_done) {
        status = cddpi_net_heads_advance(net, collective, &collective->heads_are_done);
    }
    if (status == CDDP_OK && collective->phase == PHASE_PIECES) {
        status = collective->pieces > 0 ? advance_pieces(net, collective, &done)
                                        : advance_inner(net, collective, &done);
        if (status == CDDP_OK && done && collective->heads_are_done) {
            collective->phase = PHASE_BARRIER;
            if (has_barrier(net, collective)) {
                begin_inner(net, collective, CDDPI_BARRIER, net->leaders[net->host], NULL, NULL, 0);
            }
        }
    }
    if (status == CDDP_OK && collective->phase == PHASE_BARRIER) {
        status = advance_inner(net, collective, out_done);
    }
    return status;
}

/* Come as far with @p op as goes without waiting. */
static cddp_status advance_op(struct cddpi_backend *net, struct cddpi_group_op *op, bool *out_done)
{
    cddp_status status = CDDP_OK;

    *out_done = false;
    if (op->kind == CDDPI_SEND || op->kind == CDDPI_RECV) {
        return cddpi_net_message(net, op, out_done);
    }
    if (net_state(op)->collective == NULL) {
        status = begin(net, op);
    }
    if (status == CDDP_OK) {
        status = advance(net, net_state(op)->collective, out_done);
    }
    if (status == CDDP_OK && *out_done) {
        free_collective(net_state(op)->collective);
        net_state(op)->collective = NULL;
    }
    return status;
}

/* What the operation has begun to send leaves before anybody computes or sleeps. */
cddp_status cddpi_net_advance(struct cddpi_backend *net, struct cddpi_group_op *op, bool *out_done)
{
    cddp_status status = cddpi_net_progress(net);
    bool any = true;

    *out_done = false;
    while (status == CDDP_OK && any && !*out_done) {
        status = advance_op(net, op, out_done);
        if (status == CDDP_OK) {
            status = cddpi_net_flush(net, &any);
        }
    }
    return status;
}

void cddpi_net_drop(struct cddpi_backend *net, struct cddpi_group_op *op)
{
    struct net_collective *collective = net_state(op)->collective;

    if (net->carrier != NULL) {
        net->carrier_ops->forget(net->carrier);
    }
    if (op->kind == CDDPI_SEND || op->kind == CDDPI_RECV) {
        cddpi_net_message_drop(net, op);
        return;
    }
    if (collective == NULL) {
        return;
    }
    if (collective->inner_runs && net->inner_ops->drop != NULL) {
        net->inner_ops->drop(net->inner, &collective->inner);
    }
    free_collective(collective);
    net_state(op)->collective = NULL;
}

const struct cddpi_group_op *cddpi_net_inside(const struct cddpi_group_op *op)
{
    const struct net_collective *collective;

    if (op->kind == CDDPI_SEND || op->kind == CDDPI_RECV) {
        return cddpi_net_message_inside(op);
    }
    collective = net_state_of(op)->collective;
    return collective != NULL && collective->inner_runs ? &collective->inner : NULL;
}

void cddpi_net_waits_for(const struct cddpi_backend *net, const struct cddpi_group_op *op,
                         void (*visit)(void *context, int rank), void *context)
{
    const struct net_collective *collective = net_state_of(op)->collective;

    if (op->kind == CDDPI_SEND || op->kind == CDDPI_RECV) {
        if (net->host_of[op->root] != net->host) {
            visit(context, op->root);
        }
        return;
    }
    for (int host = 0; collective != NULL && host < net->host_count; host++) {
        int rank = cddpi_net_acting(net, collective, host, (size_t)net->local_rank);
        bool waits = !collective->heads_are_done && collective->phase > PHASE_HEADS &&
                     (!collective->head_recvs[2 * host].is_done ||
                      !collective->head_recvs[2 * host + 1].is_done);

        for (int i = 0; i < NET_PIECES && !waits; i++) {
            const struct net_piece *piece = &collective->window[i];

            for (size_t t = 0; t < piece->transfer_count && !waits; t++) {
                waits = piece->transfers[t].peer == rank && !piece->transfers[t].is_done;
            }
        }
        if (waits) {
            visit(context, rank);
        }
    }
}
