/* net_collective.c - runs a collective over several hosts: compares calls, then moves its pieces.
 *
 * All ranks of a host run the operations of the inner transport in this order: the heads; those of
 * the pieces; a barrier if no data goes down. */
#include "group/net/net_collective.h"

#include "base/alloc.h"
#include "base/error.h"
#include "group/net/heads.h"
#include "group/net/net_message.h"
#include "group/net/net_reduce.h"
#include "group/net/pieces.h"
#include "group/net/transfer.h"
#include "kernels/cpu/reduce.h"

enum net_collective_phase { PHASE_HEADS, PHASE_PIECES, PHASE_BARRIER, PHASE_DONE };

cddp_status cddpi_net_collective_open(struct net_backend *net)
{
    struct net_collective *collective = cddpi_zalloc(sizeof *collective);
    size_t hosts = (size_t)net->host_count;
    size_t local = (size_t)net->local_size;
    size_t size = (size_t)net->size;

    net->collective = collective;
    net->root_plans = cddpi_zalloc_array(hosts, sizeof *net->root_plans);
    CDDPI_TRY_MEMORY(collective != NULL && net->root_plans != NULL, "net: no memory for %zu hosts",
                     hosts);
    collective->heads = cddpi_zalloc_array(local, sizeof *collective->heads);
    collective->others = cddpi_zalloc_array(hosts, sizeof *collective->others);
    collective->weights = cddpi_zalloc_array(size, sizeof *collective->weights);
    collective->factors = cddpi_zalloc_array(size, sizeof *collective->factors);
    collective->peers_in = cddpi_zalloc_array(local, sizeof *collective->peers_in);
    collective->peers_out = cddpi_zalloc_array(local, sizeof *collective->peers_out);
    CDDPI_TRY_MEMORY(collective->heads != NULL && collective->others != NULL &&
                         collective->weights != NULL && collective->factors != NULL &&
                         collective->peers_in != NULL && collective->peers_out != NULL,
                     "net: no memory for %zu ranks on %zu hosts", size, hosts);
    return CDDP_OK;
}

void cddpi_net_collective_close(struct net_backend *net)
{
    struct net_collective *collective = net->collective;

    for (int host = 0; net->root_plans != NULL && host < net->host_count; host++) {
        cddpi_net_plan_fini(&net->root_plans[host]);
    }
    cddpi_free(net->root_plans);
    if (net->is_memory_lent) {
        return; /* a library may still read and write the other memory */
    }
    for (int i = 0; i < NET_PIECES; i++) {
        cddpi_net_room_fini(&net->rooms[i]);
    }
    if (collective != NULL) {
        cddpi_free(collective->heads);
        cddpi_free(collective->others);
        cddpi_free(collective->weights);
        cddpi_free(collective->factors);
        cddpi_free(collective->peers_in);
        cddpi_free(collective->peers_out);
        cddpi_free(collective);
    }
}

static uint64_t place_of_memory(const struct net_backend *net, const void *memory, size_t bytes)
{
    return net->inner->ops->place != NULL && bytes > 0
               ? net->inner->ops->place(net->inner, memory, bytes)
               : 0;
}

static cddp_status begin_collective(struct net_backend *net, struct cddpi_group_op *op)
{
    struct net_collective *collective = net->collective;
    size_t bytes = op->count * cddp_type_bytes(op->type);

    if (net->is_memory_lent) { /* a collective failed and lent it */
        return cddpi_fail(CDDP_ERR_BROKEN, "%s: the group has failed", cddpi_kind_name(op->kind));
    }
    *collective = (struct net_collective){
        .op = op,
        .element = cddp_type_bytes(op->type),
        .sum = cddp_type_bytes(cddpi_reduce_sum_type(op->type, op->op)),
        .whole = bytes,
        .op_of_sums = op->op,
        .leaders = 1,
        .heads = collective->heads,
        .others = collective->others,
        .weights = collective->weights,
        .factors = collective->factors,
        .peers_in = collective->peers_in,
        .peers_out = collective->peers_out,
    };
    net_state(op)->collective = collective;
    collective->mine.call = cddpi_call_of(op);
    collective->mine.weight = op->weight;
    if (op->kind == CDDPI_ALL_REDUCE && net->local_size > 1) {
        collective->mine.in_place_of = place_of_memory(net, op->in, bytes);
        collective->mine.out_place_of = place_of_memory(net, op->out, bytes);
    }
    if (net->local_size > 1) {
        cddpi_net_inner_begin(net, CDDPI_ALL_GATHER, net->leaders[net->host], &collective->mine,
                              collective->heads, sizeof collective->mine);
    } else {
        collective->heads[0] = collective->mine;
    }
    return CDDP_OK;
}

/* If the leader can see the data of all ranks of its host, it works on that data directly. */
static void look_for_zero_copy(struct net_backend *net)
{
    struct net_collective *collective = net->collective;
    const struct cddpi_group_op *op = collective->op;

    if (op->kind != CDDPI_ALL_REDUCE || net->local_size == 1 || collective->whole == 0) {
        return;
    }
    for (int i = 0; i < net->local_size; i++) {
        const struct net_head *head = &collective->heads[i];

        if (head->in_place_of == 0 || head->out_place_of == 0 ||
            head->in_place_of != collective->heads[0].in_place_of ||
            head->out_place_of != collective->heads[0].out_place_of) {
            return;
        }
    }
    collective->zero_copy = net->inner->ops->peers(net->inner, op->in, collective->whole,
                                                   collective->peers_in) &&
                            net->inner->ops->peers(net->inner, op->out, collective->whole,
                                                   (const void **)collective->peers_out);
}

static cddp_status begin_heads(struct net_backend *net)
{
    net->collective->heads_have_begun = true;
    return net->collective->heads_are_done ? CDDP_OK : cddpi_net_heads_begin(net);
}

/* Called once all calls of this host's ranks are known. */
static cddp_status begin_pieces(struct net_backend *net)
{
    struct net_collective *collective = net->collective;
    const struct cddpi_group_op *op = collective->op;

    CDDPI_TRY(cddpi_net_heads_compare(net));
    look_for_zero_copy(net);
    if (op->kind == CDDPI_ALL_REDUCE || op->kind == CDDPI_REDUCE ||
        op->kind == CDDPI_REDUCE_SCATTER) {
        CDDPI_TRY(cddpi_net_reduce_choose(net));
    }
    cddpi_net_pieces_cut(net);
    collective->phase = PHASE_PIECES;
    collective->heads_are_done = net->local_rank >= collective->leaders;
    if (op->kind == CDDPI_ALLOC) {
        cddpi_net_inner_begin(net, CDDPI_ALLOC, net->leaders[net->host], NULL, op->out, op->count);
        return CDDP_OK; /* the other hosts get this host's call when it has the memory */
    }
    return begin_heads(net);
}

/* Whether the ranks of the host must wait for their leader at the end. */
static bool has_barrier(const struct net_backend *net)
{
    enum cddpi_kind kind = net->collective->op->kind;

    return net->local_size > 1 &&
           (net->collective->zero_copy || kind == CDDPI_BARRIER || kind == CDDPI_ALLOC);
}

static cddp_status advance_collective(struct net_backend *net, bool *out_done)
{
    struct net_collective *collective = net->collective;
    bool done = true;

    if (collective->phase == PHASE_HEADS) {
        CDDPI_TRY(cddpi_net_inner_advance(net, &done));
        if (!done) {
            return CDDP_OK;
        }
        CDDPI_TRY(begin_pieces(net));
    }
    if (collective->heads_have_begun && !collective->heads_are_done) {
        CDDPI_TRY(cddpi_net_heads_advance(net, &collective->heads_are_done));
    }
    if (collective->phase == PHASE_PIECES) {
        CDDPI_TRY(collective->pieces > 0 ? cddpi_net_pieces_advance(net, &done)
                                         : cddpi_net_inner_advance(net, &done));
        if (done && !collective->heads_have_begun) {
            CDDPI_TRY(begin_heads(net));
        }
        if (done && collective->heads_are_done) {
            collective->phase = PHASE_BARRIER;
            if (has_barrier(net)) {
                cddpi_net_inner_begin(net, CDDPI_BARRIER, net->leaders[net->host], NULL, NULL, 0);
            }
        }
    }
    return collective->phase == PHASE_BARRIER ? cddpi_net_inner_advance(net, out_done) : CDDP_OK;
}

static bool is_message(const struct cddpi_group_op *op)
{
    return op->kind == CDDPI_SEND || op->kind == CDDPI_RECV;
}

/* Advance @p op as far as possible without waiting. */
static cddp_status advance_op(struct net_backend *net, struct cddpi_group_op *op, bool *out_done)
{
    *out_done = false;
    if (is_message(op)) {
        return cddpi_net_message(net, op, out_done);
    }
    if (net_state(op)->collective == NULL) {
        CDDPI_TRY(begin_collective(net, op));
    }
    CDDPI_TRY(advance_collective(net, out_done));
    if (*out_done) {
        net_state(op)->collective = NULL;
    }
    return CDDP_OK;
}

/* Flushes what the operation has started to send, before this rank computes or sleeps. A collective
 * that has not begun must begin soon: other ranks wait for its first messages, and messages for it
 * have no place in memory before. */
cddp_status cddpi_net_advance(struct cddpi_backend *backend, struct cddpi_group_op *op,
                              bool *out_done)
{
    struct net_backend *net = net_of(backend);
    bool any = true;

    *out_done = false;
    if (is_message(op) || net_state(op)->collective != NULL) {
        CDDPI_TRY(cddpi_net_progress(net));
    }
    while (any && !*out_done) {
        CDDPI_TRY(advance_op(net, op, out_done));
        CDDPI_TRY(cddpi_net_flush(net, &any));
    }
    backend->moves = net->inner->moves; /* also what the ranks of this host have moved */
    return CDDP_OK;
}

void cddpi_net_drop(struct cddpi_backend *backend, struct cddpi_group_op *op)
{
    struct net_backend *net = net_of(backend);
    struct net_collective *collective = net_state(op)->collective;

    if (net->carrier != NULL && !net->carrier->ops->forget(net->carrier)) {
        net->is_memory_lent = true;
    }
    if (is_message(op)) {
        cddpi_net_message_drop(net, op);
        return;
    }
    if (collective != NULL && collective->inner_runs && net->inner->ops->drop != NULL) {
        net->inner->ops->drop(net->inner, &collective->inner);
    }
    net_state(op)->collective = NULL;
}

const struct cddpi_group_op *cddpi_net_inside(const struct cddpi_group_op *op)
{
    const struct net_collective *collective = net_state_of(op)->collective;

    if (is_message(op)) {
        return cddpi_net_message_inside(op);
    }
    return collective != NULL && collective->inner_runs ? &collective->inner : NULL;
}

void cddpi_net_waits_for(const struct net_backend *net, const struct cddpi_group_op *op,
                         void (*visit)(void *context, int rank), void *context)
{
    const struct net_collective *collective = net_state_of(op)->collective;

    if (is_message(op)) {
        if (net->host_of[op->root] != net->host) {
            visit(context, op->root);
        }
        return;
    }
    for (int host = 0; collective != NULL && host < net->host_count; host++) {
        int rank = cddpi_net_acting(net, host, (size_t)net->local_rank);
        bool waits = collective->heads_have_begun && !collective->heads_are_done &&
                     !cddpi_net_are_done(collective->others[host].recvs, 2);

        for (int i = 0; i < NET_PIECES && !waits; i++) {
            const struct net_piece *piece = &collective->window[i];

            for (size_t t = 0; t < piece->transfer_count && !waits; t++) {
                waits = piece->room->transfers[t].peer == rank &&
                        !piece->room->transfers[t].is_done;
            }
        }
        if (waits) {
            visit(context, rank);
        }
    }
}
