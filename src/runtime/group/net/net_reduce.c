/* net_reduce.c - owns all_reduce and reduce between hosts: each piece follows a schedule, whose
 * slots hold sums of the tree's nodes. */
#include "group/net/net_reduce.h"

#include "base/error.h"
#include "group/net/net_collective.h"
#include "group/net/net_merge.h"
#include "group/net/net_plan.h"
#include "group/net/net_room.h"
#include "group/net/transfer.h"

#include <string.h>

cddp_status cddpi_net_reduce_choose(struct net_backend *net, struct net_collective *collective)
{
    const struct cddpi_group_op *op = collective->op;
    bool is_made;
    double seconds;

    if (op->kind == CDDPI_REDUCE) {
        int root_host = net->host_of[op->root];

        is_made = cddpi_net_plan_make(net, CDDPI_ALGORITHM_DIRECT, root_host,
                                      &net->root_plans[root_host]);
    } else {
        collective->algorithm = cddpi_algorithm_choose(&net->tree, &net->link,
                                                       op->count * collective->element,
                                                       op->count * collective->sum, &seconds);
        is_made = cddpi_net_plan_make(net, collective->algorithm, -1,
                                      &net->plans[collective->algorithm]);
    }
    return is_made ? CDDP_OK
                   : cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory", cddpi_kind_name(op->kind));
}

void cddpi_net_use_weights(struct net_backend *net, struct net_collective *collective)
{
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
static const unsigned char *data_of(const struct net_backend *net,
                                    const struct net_collective *collective,
                                    const struct net_piece *piece, int rank, size_t block)
{
    size_t bytes = piece->count * collective->element;
    size_t local = (size_t)net->local_of[rank];

    if (collective->zero_copy) {
        return (const unsigned char *)collective->peers_in[local] + piece->at * collective->element;
    }
    if (piece->gathered != NULL) {
        size_t blocks = piece->packed != NULL ? (size_t)net->size : 1;

        return piece->gathered + (local * blocks + block) * bytes;
    }
    if (piece->packed != NULL) {
        return piece->packed + block * bytes;
    }
    return (const unsigned char *)collective->op->in + piece->at * collective->element;
}

/* Sum the data of the ranks of @p node, which are all on this host. */
static cddp_status sum_part(struct net_backend *net, const struct net_collective *collective,
                            struct net_piece *piece, const struct cddpi_tree_node *node,
                            size_t block, struct net_slot *slot)
{
    const void *sources[CDDPI_REDUCE_MAX_SOURCES];
    struct cddpi_reduce how = {collective->op->type, collective->op_of_sums, node->count, 1,
                               collective->has_factors ? collective->factors + node->first : NULL};
    unsigned char *sum = cddpi_net_take(piece->arena, piece->count * collective->sum);

    if (sum == NULL) {
        return CDDP_ERR_NO_MEMORY;
    }
    for (int i = 0; i < node->count; i++) {
        sources[i] = data_of(net, collective, piece, node->first + i, block);
    }
    slot->data = cddpi_reduce_part(&how, sum, sources, piece->count) ? sum : NULL;
    slot->is_leaf = false;
    return CDDP_OK;
}

cddp_status cddpi_net_own_parts(struct net_backend *net, const struct net_collective *collective,
                                struct net_piece *piece, size_t block, struct net_slot *slots)
{
    cddp_status status = CDDP_OK;

    for (int p = net->tree.first_part[net->host];
         p < net->tree.first_part[net->host + 1] && status == CDDP_OK; p++) {
        const struct cddpi_tree_node *node = &net->tree.parts[p];

        slots[p] = (struct net_slot){0};
        if (node->count > 1) {
            status = sum_part(net, collective, piece, node, block, &slots[p]);
            continue;
        }
        slots[p].is_leaf = true;
        slots[p].factor = collective->has_factors ? collective->factors[node->first] : 1;
        slots[p].data = slots[p].factor != 0 ? data_of(net, collective, piece, node->first, block)
                                             : NULL;
    }
    return status;
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

static unsigned char *result_at(const struct net_collective *collective,
                                const struct net_piece *piece, size_t start)
{
    return (unsigned char *)collective->op->out + (piece->at + start) * collective->element;
}

/* Get memory for the sums of slot @p s. */
static unsigned char *room_for_sums(struct net_backend *net,
                                    const struct net_collective *collective,
                                    struct net_piece *piece, int s)
{
    const struct net_plan *plan = cddpi_net_plan_of(net, collective);
    struct net_slot *slot = &piece->slots[s];
    int shares = plan->schedule.ranges;
    size_t begin = cddpi_share_begin(piece->count, shares, plan->slot_begin[s]);
    size_t end = cddpi_share_begin(piece->count, shares, plan->slot_end[s]);
    size_t widest = collective->sum > collective->element ? collective->sum : collective->element;

    if (slot->sum == NULL) {
        slot->sum = cddpi_net_take(piece->arena, (end - begin) * widest);
        slot->sum_offset = begin;
    }
    return slot->sum;
}

/* One of the schedule's sends and recvs, in elements of the piece. */
struct move {
    const struct cddpi_net_step *step;
    size_t begin, end;
    unsigned index;
};

static cddp_status start_send(struct net_backend *net, struct net_collective *collective,
                              struct net_piece *piece, const struct move *move)
{
    const struct net_slot *slot = &piece->slots[move->step->slot];
    size_t bytes = net_slot_bytes(collective, slot);
    const unsigned char *from = slot->data != NULL
                                    ? slot->data + (move->begin - slot->offset) * bytes
                                    : NULL;

    /* both sides know that it adds nothing; the empty message keeps their count of transfers
     * equal */
    return cddpi_net_piece_send(net, collective, piece, move->step->host, move->index, from,
                                from != NULL ? (move->end - move->begin) * bytes : 0);
}

static cddp_status start_recv(struct net_backend *net, struct net_collective *collective,
                              struct net_piece *piece, const struct move *move)
{
    const struct cddpi_net_step *step = move->step;
    struct net_slot *slot = &piece->slots[step->slot];
    unsigned char *to = room_for_sums(net, collective, piece, step->slot);

    if (to == NULL) {
        return CDDP_ERR_NO_MEMORY;
    }
    slot->is_leaf = step->ranks == 1;
    slot->factor = slot->is_leaf && collective->has_factors
                       ? collective->factors[net->tree.parts[step->slot].first]
                       : 1;
    slot->offset = move->begin;
    slot->data = cddpi_net_adds_nothing(net, collective, step) ? NULL : to;
    return cddpi_net_piece_recv(
        net, collective, piece, step->host, move->index, to,
        slot->data != NULL ? (move->end - move->begin) * net_slot_bytes(collective, slot) : 0);
}

static cddp_status start_step(struct net_backend *net, struct net_collective *collective,
                              struct net_piece *piece, int at)
{
    const struct cddpi_net_schedule *schedule = &cddpi_net_plan_of(net, collective)->schedule;
    const struct cddpi_net_step *step = &schedule->steps[at];
    struct move move = {step, cddpi_share_begin(piece->count, schedule->ranges, step->begin),
                        cddpi_share_begin(piece->count, schedule->ranges, step->end),
                        index_of(schedule, at)};
    size_t result_bytes = (move.end - move.begin) * collective->element;

    switch (step->kind) {
    case CDDPI_STEP_SEND:
        return start_send(net, collective, piece, &move);
    case CDDPI_STEP_RECV:
        return start_recv(net, collective, piece, &move);
    case CDDPI_STEP_SEND_DONE:
        return cddpi_net_piece_send(net, collective, piece, step->host, move.index,
                                    result_at(collective, piece, move.begin), result_bytes);
    case CDDPI_STEP_RECV_DONE:
        return cddpi_net_piece_recv(net, collective, piece, step->host, move.index,
                                    result_at(collective, piece, move.begin), result_bytes);
    default:
        return CDDP_OK;
    }
}

static bool is_recv(const struct cddpi_net_step *step)
{
    return step->kind == CDDPI_STEP_RECV || step->kind == CDDPI_STEP_RECV_DONE;
}

/* Start the round's sends, or its recvs. */
static cddp_status start_round(struct net_backend *net, struct net_collective *collective,
                               struct net_piece *piece, bool recvs)
{
    const struct cddpi_net_schedule *schedule = &cddpi_net_plan_of(net, collective)->schedule;
    cddp_status status = CDDP_OK;

    for (int i = 0; i < schedule->count && status == CDDP_OK; i++) {
        const struct cddpi_net_step *step = &schedule->steps[i];

        if (step->round == piece->round && is_recv(step) == recvs) {
            status = start_step(net, collective, piece, i);
        }
    }
    return status;
}

/* Starts the recvs of all rounds at once. A connection is read only up to the first message without
 * a recv, and a host that is ahead may first send a message of a later round or piece. The
 * destination may be overwritten: this host's data in `out` has already been summed into other
 * memory.
 */
cddp_status cddpi_net_reduce_begin(struct net_backend *net, struct net_collective *collective,
                                   struct net_piece *piece)
{
    int rounds = cddpi_net_plan_of(net, collective)->schedule.rounds;
    cddp_status status;

    cddpi_net_use_weights(net, collective);
    memset(piece->slots, 0, (size_t)net->tree.part_count * sizeof *piece->slots);
    status = cddpi_net_own_parts(net, collective, piece, 0, piece->slots);
    for (piece->round = 0; piece->round < rounds && status == CDDP_OK; piece->round++) {
        status = start_round(net, collective, piece, true);
    }
    piece->round = 0;
    CDDPI_TRY(status);
    return start_round(net, collective, piece, false);
}

/* Get the destinations of the result: this rank's `out`, and its peers' if the leader sees them. */
static int destinations(const struct net_backend *net, const struct net_collective *collective,
                        const struct net_piece *piece, size_t start, void **out)
{
    if (!collective->zero_copy) {
        out[0] = result_at(collective, piece, start);
        return 1;
    }
    for (int i = 0; i < net->local_size; i++) {
        out[i] = (unsigned char *)collective->peers_out[i] +
                 (piece->at + start) * collective->element;
    }
    return net->local_size;
}

/* Give memory to sums that a later round needs. If the round produces the result, sums stay only in
 * the cache. */
static cddp_status keep_sums(struct net_backend *net, const struct net_collective *collective,
                             struct net_piece *piece, struct net_merging *merging)
{
    for (int m = 0; m < merging->how.merge_count; m++) {
        struct cddpi_reduce_merge *merge = &merging->merges[m];
        unsigned char *sum = room_for_sums(net, collective, piece, merge->left);

        if (sum == NULL) {
            return CDDP_ERR_NO_MEMORY;
        }
        merge->out = sum +
                     (merging->begin - piece->slots[merge->left].sum_offset) * collective->sum;
    }
    return CDDP_OK;
}

/* Make the kept sums the new contents of their slots. */
static void hold_sums(struct net_piece *piece, const struct net_merging *merging)
{
    for (int m = 0; m < merging->how.merge_count; m++) {
        const struct cddpi_reduce_merge *merge = &merging->merges[m];
        struct net_slot *slot = &piece->slots[merge->left];
        bool is_empty = slot->data == NULL && piece->slots[merge->right].data == NULL;

        slot->data = is_empty ? NULL : merge->out;
        slot->offset = merging->begin;
        slot->is_leaf = false;
    }
}

/* Do the merges and the finish of the current round, which all have the same range. */
static cddp_status merge_round(struct net_backend *net, struct net_collective *collective,
                               struct net_piece *piece)
{
    const struct cddpi_net_schedule *schedule = &cddpi_net_plan_of(net, collective)->schedule;
    void **dst = cddpi_net_take(piece->arena, (size_t)net->local_size * sizeof *dst);
    struct net_merging merging;
    cddp_status status = dst != NULL ? cddpi_net_merging(net, collective, piece, schedule, &merging)
                                     : CDDP_ERR_NO_MEMORY;

    if (status != CDDP_OK || merging.is_empty) {
        return status;
    }
    if (merging.finishes) {
        merging.how.dst = dst;
        merging.how.destinations = destinations(net, collective, piece, merging.begin, dst);
    } else {
        status = keep_sums(net, collective, piece, &merging);
    }
    CDDPI_TRY(status);
    cddpi_reduce_merges(&merging.how, merging.end - merging.begin);
    if (!merging.finishes) {
        hold_sums(piece, &merging);
    }
    return CDDP_OK;
}

/* Copy results that arrived directly in this rank's `out` to its peers' `out`. */
static void copy_to_peers(const struct net_backend *net, const struct net_collective *collective,
                          const struct net_piece *piece)
{
    const struct cddpi_net_schedule *schedule = &cddpi_net_plan_of(net, collective)->schedule;

    for (int i = 0; i < schedule->count && collective->zero_copy; i++) {
        const struct cddpi_net_step *step = &schedule->steps[i];
        size_t begin = cddpi_share_begin(piece->count, schedule->ranges, step->begin);
        size_t end = cddpi_share_begin(piece->count, schedule->ranges, step->end);

        if (step->round != piece->round || step->kind != CDDPI_STEP_RECV_DONE) {
            continue;
        }
        for (int peer = 0; peer < net->local_size; peer++) {
            if (peer != net->local_rank) {
                memcpy((unsigned char *)collective->peers_out[peer] +
                           (piece->at + begin) * collective->element,
                       result_at(collective, piece, begin), (end - begin) * collective->element);
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
        const struct cddpi_transfer *transfer = &piece->transfers[i];

        if (cddpi_net_tag_round(transfer->tag) == piece->round && !transfer->is_done &&
            !(transfer->is_send && own_range_is_not_sent)) {
            return false;
        }
    }
    return true;
}

cddp_status cddpi_net_reduce_advance(struct net_backend *net, struct net_collective *collective,
                                     struct net_piece *piece, bool *out_done)
{
    const struct cddpi_net_schedule *schedule = &cddpi_net_plan_of(net, collective)->schedule;
    cddp_status status = CDDP_OK;

    *out_done = false;
    while (status == CDDP_OK && piece->round < schedule->rounds) {
        if (!is_round_done(collective, piece)) {
            return CDDP_OK;
        }
        status = merge_round(net, collective, piece);
        copy_to_peers(net, collective, piece);
        piece->round++;
        if (status == CDDP_OK && piece->round < schedule->rounds) {
            status = start_round(net, collective, piece, false);
        }
    }
    *out_done = status == CDDP_OK && cddpi_net_are_done(piece->transfers, piece->transfer_count);
    return status;
}
