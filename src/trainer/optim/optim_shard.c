/* optim_shard.c - owns the state of a sharded optimizer in the form of checkpoints: full tensors on
 * rank 0, gathered from all ranks or scattered to them, piece by piece. */
#include "base/alloc.h"
#include "base/error.h"
#include "optim/optim_impl.h"

#include <string.h>

/* The largest share of any rank: each rank sends or receives this many elements of a moment. */
static size_t most_elements(const struct cddpi_optim *optim)
{
    size_t most = 0;

    for (int rank = 0; rank < cddp_group_world_size(optim->group); rank++) {
        size_t count = 0;
        size_t elements = 0;
        const cddp_span *spans = cddp_ddp_spans(optim->ddp, rank, &count);

        for (size_t s = 0; s < count; s++) {
            elements += spans[s].count;
        }
        most = elements > most ? elements : most;
    }
    return most;
}

/* Elements of each rank that move at once. Pieces stay in the processor's cache between their
 * copies, and need no memory that grows with the model. */
enum { PIECE = 1 << 18 };

/* A transfer of one piece, and its buffers. */
struct transfer {
    size_t first, count; /* the piece, of each rank */
    float *own;
    float *all; /* on rank 0 */
};

static cddp_status transfer_init(const struct cddpi_optim *optim, size_t most, struct transfer *out)
{
    size_t world_size = (size_t)cddp_group_world_size(optim->group);
    bool root = cddp_group_rank(optim->group) == 0;
    size_t count = most < PIECE ? most : PIECE;

    out->own = cddpi_zalloc_array(count, sizeof *out->own);
    out->all = root ? cddpi_zalloc_array(count * world_size, sizeof *out->all) : NULL;
    if (out->own == NULL || (root && out->all == NULL)) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "optimizer: no memory for %zu elements of its state",
                          count * (1 + (root ? world_size : 0)));
    }
    return CDDP_OK;
}

/* Copy the part of the @p count elements at @p state that is in the piece to @p packed, which holds
 * the piece, or from it. @p at: the place of the first of these elements among the rank's; it
 * advances past them. */
static void move_part(const struct transfer *transfer, size_t *at, float *state, size_t count,
                      float *packed, bool pack)
{
    size_t begin = *at > transfer->first ? *at : transfer->first;
    size_t piece_end = transfer->first + transfer->count;
    size_t end = *at + count < piece_end ? *at + count : piece_end;

    if (begin < end) {
        float *here = state + (begin - *at);
        float *there = packed + (begin - transfer->first);

        memcpy(pack ? there : here, pack ? here : there, (end - begin) * sizeof *here);
    }
    *at += count;
}

/* Copy this rank's state, one span after the other, to transfer->own or from it. */
static void move_own(const struct cddpi_optim *optim, size_t moment,
                     const struct transfer *transfer, bool pack)
{
    size_t at = 0;

    for (size_t i = 0; i < optim->slot_count; i++) {
        const struct cddpi_optim_slot *slot = &optim->slots[i];

        move_part(transfer, &at, slot->moments[moment], slot->count, transfer->own, pack);
    }
}

/* On rank 0: copy all ranks' state, one rank after the other, to full tensors or from them. */
static void move_all(const struct cddpi_optim *optim, size_t moment,
                     const struct transfer *transfer, bool pack)
{
    for (int rank = 0; transfer->all != NULL && rank < cddp_group_world_size(optim->group);
         rank++) {
        size_t count = 0;
        size_t at = 0;
        const cddp_span *spans = cddp_ddp_spans(optim->ddp, rank, &count);

        for (size_t s = 0; s < count && at < transfer->first + transfer->count; s++) {
            const struct cddpi_optim_trainable *param = optim->trainable;
            float *tensor = optim->full_state + moment * optim->full_elements + spans[s].first;

            if (at + spans[s].count <= transfer->first) {
                at += spans[s].count;
                continue;
            }
            while (param->index != spans[s].param) {
                param++;
            }
            move_part(transfer, &at, tensor + param->offset, spans[s].count,
                      transfer->all + (size_t)rank * transfer->count, pack);
        }
    }
}

size_t cddpi_optim_counters(const struct cddpi_optim *optim)
{
    return optim->tensor_count - cddpi_optim_moment_count(optim) * optim->trainable_count;
}

cddp_status cddpi_optim_alloc_full_state(struct cddpi_optim *optim)
{
    size_t moments = cddpi_optim_moment_count(optim);
    size_t elements = optim->full_elements * moments;
    cddp_param *tensor = optim->tensors + cddpi_optim_counters(optim);

    if (optim->group == NULL || optim->full_state != NULL) {
        return CDDP_OK;
    }
    optim->full_state = cddpi_zalloc_array(elements > 0 ? elements : 1, sizeof *optim->full_state);
    CDDPI_TRY_MEMORY(optim->full_state != NULL, "optimizer: no memory for %zu bytes of whole state",
                     elements * sizeof *optim->full_state);
    for (size_t i = 0; i < optim->trainable_count; i++) {
        for (size_t moment = 0; moment < moments; moment++) {
            (tensor++)->data = optim->full_state + moment * optim->full_elements +
                               optim->trainable[i].offset;
        }
    }
    return CDDP_OK;
}

void cddpi_optim_free_full_state(struct cddpi_optim *optim)
{
    size_t first = cddpi_optim_counters(optim);

    for (size_t i = first; optim->full_state != NULL && i < optim->tensor_count; i++) {
        optim->tensors[i].data = NULL;
    }
    cddpi_free(optim->full_state);
    optim->full_state = NULL;
}

size_t cddpi_optim_part_tensor(const struct cddpi_optim *optim, size_t index)
{
    size_t i = 0;

    while (optim->trainable[i].index != optim->slots[index].index) {
        i++;
    }
    return cddpi_optim_counters(optim) + i * cddpi_optim_moment_count(optim);
}

/* Moves a piece of one moment of the state; collective. */
typedef cddp_status (*move_fn)(const struct cddpi_optim *optim, size_t moment,
                               const struct transfer *transfer);

static cddp_status gather_moment(const struct cddpi_optim *optim, size_t moment,
                                 const struct transfer *transfer)
{
    move_own(optim, moment, transfer, true);
    CDDPI_TRY(cddp_gather(optim->group, transfer->own, transfer->all, transfer->count, CDDP_F32, 0,
                          NULL));
    move_all(optim, moment, transfer, false);
    return CDDP_OK;
}

static cddp_status scatter_moment(const struct cddpi_optim *optim, size_t moment,
                                  const struct transfer *transfer)
{
    move_all(optim, moment, transfer, true);
    CDDPI_TRY(cddp_scatter(optim->group, transfer->all, transfer->own, transfer->count, CDDP_F32, 0,
                           NULL));
    move_own(optim, moment, transfer, false);
    return CDDP_OK;
}

static cddp_status move_state(struct cddpi_optim *optim, move_fn move)
{
    struct transfer transfer = {0, 0, NULL, NULL};
    size_t moments = cddpi_optim_moment_count(optim);
    size_t most;
    cddp_status status;

    if (optim->group == NULL) {
        return CDDP_OK;
    }
    most = most_elements(optim);
    status = transfer_init(optim, most, &transfer);
    if (status == CDDP_OK && transfer.all != NULL) {
        status = cddpi_optim_alloc_full_state(optim);
    }
    if (status != CDDP_OK) { /* the others would wait for a rank that cannot take part */
        cddp_group_abort(optim->group, cddp_last_error());
    }
    for (size_t moment = 0; moment < moments; moment++) {
        for (size_t first = 0; status == CDDP_OK && first < most; first += PIECE) {
            transfer.first = first;
            transfer.count = most - first < PIECE ? most - first : PIECE;
            status = move(optim, moment, &transfer);
        }
    }
    cddpi_free(transfer.own);
    cddpi_free(transfer.all);
    return status == CDDP_OK ? CDDP_OK : cddpi_fail_prefix(status, "state of the optimizer");
}

cddp_status cddpi_optim_gather_full_state(struct cddpi_optim *optim)
{
    return move_state(optim, gather_moment);
}

cddp_status cddpi_optim_scatter_full_state(struct cddpi_optim *optim)
{
    return move_state(optim, scatter_moment);
}
