/* net_reduce.c - owns all_reduce and reduce between hosts: each piece follows a schedule, whose
 * slots hold sums of the tree's nodes. */
#include "group/net/net_reduce.h"

#include "base/error.h"
#include "group/net/net_collective.h"
#include "group/net/net_plan.h"
#include "group/net/net_room.h"
#include "group/net/transfer.h"

#include <string.h>

cddp_status cddpi_net_reduce_choose(struct net_backend *net)
{
    struct net_collective *collective = net->collective;
    const struct cddpi_group_op *op = collective->op;
    int root_host = op->kind == CDDPI_REDUCE ? net->host_of[op->root] : -1;
    struct net_plan *plan;

    if (op->kind == CDDPI_ALL_REDUCE) {
        collective->algorithm = cddpi_algorithm_choose(&net->tree, &net->link, collective->whole,
                                                       op->count * collective->sum, NULL);
    }
    plan = root_host >= 0 ? &net->root_plans[root_host] : &net->plans[collective->algorithm];
    collective->plan = plan;
    return cddpi_net_plan_make(net, collective->algorithm, root_host, plan)
               ? CDDP_OK
               : cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory", cddpi_kind_name(op->kind));
}

void cddpi_net_use_weights(struct net_backend *net)
{
    struct net_collective *collective = net->collective;
    struct cddpi_reduce how = {.type = collective->op->type, .op = collective->op->op};

    if (!collective->op->weighted || collective->weights_are_used) {
        return;
    }
    for (int i = 0; i < net->size; i++) {
        collective->factors[net->by_host[i]] = collective->weights[i];
    }
    cddpi_reduce_weighted(&how, collective->op->type, collective->factors, net->size,
                          collective->factors);
    collective->has_factors = how.factors != NULL;
    collective->op_of_sums = how.op;
    collective->weights_are_used = true;
}

/* The address at which the leader sees block @p block of rank @p rank's data. */
static const unsigned char *data_of(const struct net_backend *net, const struct net_piece *piece,
                                    int rank, size_t block)
{
    const struct net_collective *collective = net->collective;
    size_t local = (size_t)net->local_of[rank];

    if (collective->zero_copy) {
        return (const unsigned char *)collective->peers_in[local] + piece->at * collective->element;
    }
    if (piece->gathered != NULL) {
        size_t blocks = piece->packed != NULL ? (size_t)net->size : 1;

        return piece->gathered + (local * blocks + block) * piece->bytes;
    }
    return piece->packed != NULL ? piece->packed + block * piece->bytes : piece->in;
}

/* Sum the data of the ranks of @p node, which are all on this host. */
static cddp_status sum_part(const struct net_backend *net, struct net_piece *piece,
                            const struct cddpi_tree_node *node, size_t block, struct net_slot *slot)
{
    const struct net_collective *collective = net->collective;
    const void *sources[CDDPI_REDUCE_MAX_SOURCES];
    struct cddpi_reduce how = {collective->op->type, collective->op_of_sums, node->count, 1,
                               collective->has_factors ? collective->factors + node->first : NULL};
    unsigned char *sum;

    CDDPI_TRY(cddpi_net_take_bytes(piece->room, piece->count * collective->sum, &sum));
    for (int i = 0; i < node->count; i++) {
        sources[i] = data_of(net, piece, node->first + i, block);
    }
    slot->data = cddpi_reduce_part(&how, sum, sources, piece->count) ? sum : NULL;
    return CDDP_OK;
}

cddp_status cddpi_net_own_parts(const struct net_backend *net, struct net_piece *piece,
                                size_t block)
{
    const struct net_collective *collective = net->collective;

    for (int p = net->tree.first_part[net->host]; p < net->tree.first_part[net->host + 1]; p++) {
        const struct cddpi_tree_node *node = &net->tree.parts[p];
        struct net_slot *slot = &piece->room->slots[p];

        *slot = (struct net_slot){.is_leaf = node->count == 1};
        if (!slot->is_leaf) {
            CDDPI_TRY(sum_part(net, piece, node, block, slot));
            continue;
        }
        slot->factor = collective->has_factors ? collective->factors[node->first] : 1;
        slot->data = slot->factor != 0 ? data_of(net, piece, node->first, block) : NULL;
    }
    return CDDP_OK;
}

/* The index of a step among the transfers between the same two hosts in the same round and
 * direction; both sides count in the same order. */
static unsigned index_of(const struct cddpi_net_schedule *schedule, int at)
{
    const struct cddpi_net_step *step = &schedule->steps[at];
    unsigned index = 0;

    for (int i = at - 1; i >= 0 && schedule->steps[i].round == step->round; i--) {
        index += schedule->steps[i].kind == step->kind && schedule->steps[i].host == step->host;
    }
    return index;
}

/* Make sure that slot @p s has memory for its sums. */
static cddp_status take_sum(const struct net_backend *net, struct net_piece *piece, int s)
{
    const struct net_collective *collective = net->collective;
    const struct net_plan *plan = collective->plan;
    struct net_slot *slot = &piece->room->slots[s];
    int shares = plan->schedule.ranges;
    size_t begin = cddpi_share_begin(piece->count, shares, plan->slot_begin[s]);
    size_t end = cddpi_share_begin(piece->count, shares, plan->slot_end[s]);
    size_t widest = collective->sum > collective->element ? collective->sum : collective->element;

    if (slot->sum != NULL) {
        return CDDP_OK;
    }
    slot->sum_offset = begin;
    return cddpi_net_take_bytes(piece->room, (end - begin) * widest, &slot->sum);
}

/* Start a send or a recv of elements [begin, end) of the piece. */

static cddp_status start_send(struct net_backend *net, struct net_piece *piece,
                              const struct cddpi_net_step *step, unsigned index, size_t begin,
                              size_t end)
{
    const struct net_slot *slot = &piece->room->slots[step->slot];
    size_t bytes = net_slot_bytes(net->collective, slot);

    /* if it adds nothing, both sides know that; the empty message keeps their count of transfers
     * equal */
    return slot->data == NULL ? cddpi_net_piece_send(net, piece, step->host, index, NULL, 0)
                              : cddpi_net_piece_send(net, piece, step->host, index,
                                                     slot->data + (begin - slot->offset) * bytes,
                                                     (end - begin) * bytes);
}

static cddp_status start_recv(struct net_backend *net, struct net_piece *piece,
                              const struct cddpi_net_step *step, unsigned index, size_t begin,
                              size_t end)
{
    const struct net_collective *collective = net->collective;
    struct net_slot *slot = &piece->room->slots[step->slot];
    bool is_empty = cddpi_net_adds_nothing(net, step);

    CDDPI_TRY(take_sum(net, piece, step->slot));
    slot->is_leaf = step->ranks == 1;
    slot->factor = slot->is_leaf && collective->has_factors
                       ? collective->factors[net->tree.parts[step->slot].first]
                       : 1;
    slot->offset = begin;
    slot->data = is_empty ? NULL : slot->sum;
    return cddpi_net_piece_recv(net, piece, step->host, index, slot->sum,
                                is_empty ? 0 : (end - begin) * net_slot_bytes(collective, slot));
}

static cddp_status start_step(struct net_backend *net, struct net_piece *piece, int at)
{
    const struct cddpi_net_schedule *schedule = &net->collective->plan->schedule;
    const struct cddpi_net_step *step = &schedule->steps[at];
    size_t element = net->collective->element;
    size_t begin = cddpi_share_begin(piece->count, schedule->ranges, step->begin);
    size_t end = cddpi_share_begin(piece->count, schedule->ranges, step->end);
    unsigned index = index_of(schedule, at);

    switch (step->kind) {
    case CDDPI_STEP_SEND:
        return start_send(net, piece, step, index, begin, end);
    case CDDPI_STEP_RECV:
        return start_recv(net, piece, step, index, begin, end);
    case CDDPI_STEP_SEND_DONE:
        return cddpi_net_piece_send(net, piece, step->host, index, piece->out + begin * element,
                                    (end - begin) * element);
    case CDDPI_STEP_RECV_DONE:
        return cddpi_net_piece_recv(net, piece, step->host, index, piece->out + begin * element,
                                    (end - begin) * element);
    default:
        return CDDP_OK;
    }
}

/* Start the round's sends, or its recvs. */
static cddp_status start_round(struct net_backend *net, struct net_piece *piece, bool recvs)
{
    const struct cddpi_net_schedule *schedule = &net->collective->plan->schedule;

    for (int i = 0; i < schedule->count; i++) {
        const struct cddpi_net_step *step = &schedule->steps[i];
        bool is_recv = step->kind == CDDPI_STEP_RECV || step->kind == CDDPI_STEP_RECV_DONE;

        if (step->round == piece->round && is_recv == recvs) {
            CDDPI_TRY(start_step(net, piece, i));
        }
    }
    return CDDP_OK;
}

/* Starts the recvs of all rounds at once. A connection is read only up to the first message without
 * a recv, and a host that is ahead may first send a message of a later round or piece. The
 * destination may be overwritten: this host's data in `out` has already been summed into other
 * memory. */
cddp_status cddpi_net_reduce_begin(struct net_backend *net, struct net_piece *piece)
{
    int rounds = net->collective->plan->schedule.rounds;

    cddpi_net_use_weights(net);
    memset(piece->room->slots, 0, (size_t)net->tree.part_count * sizeof *piece->room->slots);
    CDDPI_TRY(cddpi_net_own_parts(net, piece, 0));
    for (piece->round = 0; piece->round < rounds; piece->round++) {
        CDDPI_TRY(start_round(net, piece, true));
    }
    piece->round = 0;
    return start_round(net, piece, false);
}

/* Whether the memory of @p slot has what was received from one rank, and a sum must not be written
 * over it: blocks of wider sums would cover elements that are still to be read. */
static bool keeps_leaf(const struct net_backend *net, const struct net_slot *slot)
{
    const struct net_collective *collective = net->collective;

    return slot->is_leaf && slot->data != NULL && slot->data == slot->sum &&
           (collective->sum != collective->element || collective->has_factors);
}

/* Give memory to sums that a later round needs. If the round produces the result, sums stay only in
 * the cache. */
static cddp_status keep_sums(const struct net_backend *net, struct net_piece *piece,
                             struct net_merging *merging)
{
    for (int m = 0; m < merging->how.merge_count; m++) {
        struct cddpi_reduce_merge *merge = &merging->merges[m];
        struct net_slot *slot = &piece->room->slots[merge->left];

        if (keeps_leaf(net, slot)) {
            slot->sum = NULL; /* stays where the room has it, until the piece ends */
        }
        CDDPI_TRY(take_sum(net, piece, merge->left));
        merge->out = slot->sum + (merging->begin - slot->sum_offset) * net->collective->sum;
    }
    return CDDP_OK;
}

/* Make the kept sums the new contents of their slots. */
static void hold_sums(struct net_piece *piece, const struct net_merging *merging)
{
    for (int m = 0; m < merging->how.merge_count; m++) {
        const struct cddpi_reduce_merge *merge = &merging->merges[m];
        struct net_slot *slot = &piece->room->slots[merge->left];
        bool is_empty = slot->data == NULL && piece->room->slots[merge->right].data == NULL;

        slot->data = is_empty ? NULL : merge->out;
        slot->offset = merging->begin;
        slot->is_leaf = false;
    }
}

/* Where rank number @p local of this host gets elements of the result from @p start on. */
static unsigned char *result_of(const struct net_backend *net, const struct net_piece *piece,
                                int local, size_t start)
{
    return (unsigned char *)net->collective->peers_out[local] +
           (piece->at + start) * net->collective->element;
}

/* Do the merges and the finish of the current round, which all have the same range. The result goes
 * to this rank's `out`, and also to its peers' if the leader sees them. */
static cddp_status merge_round(struct net_backend *net, struct net_piece *piece)
{
    const struct net_collective *collective = net->collective;
    void **dst = cddpi_net_take(piece->room, (size_t)net->local_size * sizeof *dst);
    struct net_merging merging;

    if (dst == NULL) {
        return CDDP_ERR_NO_MEMORY;
    }
    CDDPI_TRY(cddpi_net_merging(net, piece, &merging));
    if (merging.is_empty) {
        return CDDP_OK;
    }
    if (merging.finishes) {
        merging.how.dst = dst;
        merging.how.destinations = collective->zero_copy ? net->local_size : 1;
        for (int i = 0; i < merging.how.destinations; i++) {
            dst[i] = collective->zero_copy ? result_of(net, piece, i, merging.begin)
                                           : piece->out + merging.begin * collective->element;
        }
    } else {
        CDDPI_TRY(keep_sums(net, piece, &merging));
    }
    cddpi_reduce_merges(&merging.how, merging.end - merging.begin);
    if (!merging.finishes) {
        hold_sums(piece, &merging);
    }
    return CDDP_OK;
}

/* Copy results that arrived directly in this rank's `out` to its peers' `out`. */
static void copy_to_peers(const struct net_backend *net, const struct net_piece *piece)
{
    const struct net_collective *collective = net->collective;
    const struct cddpi_net_schedule *schedule = &collective->plan->schedule;

    for (int i = 0; i < schedule->count && collective->zero_copy; i++) {
        const struct cddpi_net_step *step = &schedule->steps[i];
        size_t begin = cddpi_share_begin(piece->count, schedule->ranges, step->begin);
        size_t end = cddpi_share_begin(piece->count, schedule->ranges, step->end);

        if (step->round != piece->round || step->kind != CDDPI_STEP_RECV_DONE) {
            continue;
        }
        for (int peer = 0; peer < net->local_size; peer++) {
            if (peer != net->local_rank) {
                memcpy(result_of(net, piece, peer, begin), piece->out + begin * collective->element,
                       (end - begin) * collective->element);
            }
        }
    }
}

/* Whether the round's recvs are done and, if sums may overwrite data being sent, its sends, too. */
static bool is_round_done(const struct net_collective *collective, const struct net_piece *piece)
{
    bool own_range_is_not_sent = collective->op->kind == CDDPI_ALL_REDUCE &&
                                 collective->algorithm == CDDPI_ALGORITHM_DIRECT &&
                                 piece->round == 0;

    for (size_t i = 0; i < piece->transfer_count; i++) {
        const struct cddpi_transfer *transfer = &piece->room->transfers[i];

        if (cddpi_net_tag_round(transfer->tag) == piece->round && !transfer->is_done &&
            !(transfer->is_send && own_range_is_not_sent)) {
            return false;
        }
    }
    return true;
}

cddp_status cddpi_net_reduce_advance(struct net_backend *net, struct net_piece *piece,
                                     bool *out_done)
{
    int rounds = net->collective->plan->schedule.rounds;

    *out_done = false;
    while (piece->round < rounds) {
        if (!is_round_done(net->collective, piece)) {
            return CDDP_OK;
        }
        CDDPI_TRY(merge_round(net, piece));
        copy_to_peers(net, piece);
        piece->round++;
        if (piece->round < rounds) {
            CDDPI_TRY(start_round(net, piece, false));
        }
    }
    *out_done = cddpi_net_are_done(piece->room->transfers, piece->transfer_count);
    return CDDP_OK;
}
