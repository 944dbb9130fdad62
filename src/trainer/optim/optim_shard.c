/* optim_shard.c - owns the state of a sharded optimizer in the form of checkpoints: full tensors on
 * rank 0, gathered from all ranks or scattered to them, one moment at a time. */
#include "base/alloc.h"
#include "base/error.h"
#include "optim/optim_impl.h"

#include <string.h>

/* The largest share of any rank: each rank sends or receives this many elements. */
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

/* Buffers of a transfer. */
struct transfer {
    size_t count; /* of each rank */
    float *own;
    float *all; /* on rank 0 */
};

static cddp_status transfer_init(const struct cddpi_optim *optim, struct transfer *out)
{
    size_t world_size = (size_t)cddp_group_world_size(optim->group);
    bool root = cddp_group_rank(optim->group) == 0;

    out->count = most_elements(optim);
    out->own = cddpi_zalloc_array(out->count, sizeof *out->own);
    out->all = root ? cddpi_zalloc_array(out->count * world_size, sizeof *out->all) : NULL;
    if (out->own == NULL || (root && out->all == NULL)) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "optimizer: no memory for %zu elements of its state",
                          out->count * (1 + (root ? world_size : 0)));
    }
    return CDDP_OK;
}

/* Copy this rank's state, one span after the other, to @p own or from it. */
static void move_own(const struct cddpi_optim *optim, size_t moment, float *own, bool pack)
{
    for (size_t i = 0; i < optim->slot_count; i++) {
        const struct cddpi_optim_slot *slot = &optim->slots[i];
        float *state = slot->moments[moment];

        memcpy(pack ? own : state, pack ? state : own, slot->count * sizeof *own);
        own += slot->count;
    }
}

/* On rank 0: copy all ranks' state, one rank after the other, to full tensors or from them. */
static void move_all(const struct cddpi_optim *optim, size_t moment,
                     const struct transfer *transfer, bool pack)
{
    for (int rank = 0; transfer->all != NULL && rank < cddp_group_world_size(optim->group);
         rank++) {
        float *at = transfer->all + (size_t)rank * transfer->count;
        size_t count = 0;
        const cddp_span *spans = cddp_ddp_spans(optim->ddp, rank, &count);

        for (size_t s = 0; s < count; s++) {
            const struct cddpi_optim_trainable *param = optim->trainable;
            float *tensor = optim->full_state + moment * optim->full_elements + spans[s].first;

            while (param->index != spans[s].param) {
                param++;
            }
            tensor += param->offset;

            memcpy(pack ? at : tensor, pack ? tensor : at, spans[s].count * sizeof *tensor);
            at += spans[s].count;
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
    cddpi_free(optim->full_state);
    optim->full_state = NULL;
}

/* Moves one moment of the state; collective. */
typedef cddp_status (*move_fn)(const struct cddpi_optim *optim, size_t moment,
                               const struct transfer *transfer);

static cddp_status gather_moment(const struct cddpi_optim *optim, size_t moment,
                                 const struct transfer *transfer)
{
    move_own(optim, moment, transfer->own, true);
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
    move_own(optim, moment, transfer->own, false);
    return CDDP_OK;
}

static cddp_status move_state(struct cddpi_optim *optim, move_fn move)
{
    struct transfer transfer = {0, NULL, NULL};
    size_t moments = cddpi_optim_moment_count(optim);
    cddp_status status;

    if (optim->group == NULL) {
        return CDDP_OK;
    }
    status = transfer_init(optim, &transfer);
    if (status == CDDP_OK && transfer.all != NULL) {
        status = cddpi_optim_alloc_full_state(optim);
    }
    if (status != CDDP_OK) { /* the others would wait for a rank that cannot take part */
        cddp_group_abort(optim->group, cddp_last_error());
    }
    for (size_t moment = 0; status == CDDP_OK && moment < moments; moment++) {
        status = move(optim, moment, &transfer);
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
