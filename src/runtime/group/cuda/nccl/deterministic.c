/* deterministic.c - owns reductions whose bits do not depend on NCCL's algorithm: NCCL only moves
 * the data, and rank r reduces part r with the kernel that all transports use. It sends as many
 * bytes as a ring does, but more of them between hosts: see nccl_hosts.c. 16-bit types are
 * accumulated in float32, and rounded once. */
#include "group/cuda/nccl/nccl_transport.h"
#include "kernels/cuda/cuda_kernels.h"

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

size_t cddpi_nccl_part(const struct nccl_cut *cut, int r, size_t *out_start)
{
    size_t grains = (cut->count * cut->element + NCCL_GRAIN - 1) / NCCL_GRAIN;
    size_t ranks = (size_t)cut->ranks;
    size_t start = grains * (size_t)r / ranks * NCCL_GRAIN / cut->element;
    size_t end = grains * ((size_t)r + 1) / ranks * NCCL_GRAIN / cut->element;

    if (cut->op->kind == CDDPI_REDUCE_SCATTER) {
        *out_start = (size_t)r * cut->op->count + cut->at;
        return cut->count;
    }
    *out_start = cut->at + least(start, cut->count);
    return least(end, cut->count) - least(start, cut->count);
}

/* Receive all ranks' input for this rank's part into the rows of scratch. */
static cddp_status collect(struct nccl_transport *nccl, const struct nccl_cut *cut)
{
    struct nccl_transfer *transfers = cddpi_nccl_transfers(nccl);
    size_t start;
    size_t own = cddpi_nccl_part(cut, nccl->rank, &start);

    for (int r = 0; r < nccl->size; r++) {
        size_t count = cddpi_nccl_part(cut, r, &start);

        transfers[r] = (struct nccl_transfer){
            r, (const char *)cut->op->in + start * cut->element, count * cut->element,
            nccl->scratch + (size_t)r * nccl->row, own * cut->element};
    }
    if (cuda_is_aligned(transfers[nccl->rank].out)) {
        transfers[nccl->rank].in_bytes = 0; /* the kernel reads it from its own memory */
    }
    return cddpi_nccl_exchange(nccl);
}

static cddp_status reduce(struct nccl_transport *nccl, const struct nccl_cut *cut, char *out)
{
    const struct cddpi_group_op *op = cut->op;
    char *result = cuda_is_aligned(out) ? out : nccl->scratch + (size_t)nccl->size * nccl->row;
    size_t start;
    size_t count = cddpi_nccl_part(cut, nccl->rank, &start);
    const char *own = (const char *)op->in + start * cut->element;

    if (count == 0) {
        return CDDP_OK;
    }
    for (int r = 0; r < nccl->size; r++) {
        nccl->inputs[r] = nccl->scratch + (size_t)r * nccl->row;
    }
    if (cuda_is_aligned(own)) {
        nccl->inputs[nccl->rank] = own;
    }
    CDDPI_TRY(nccl->device->kernels->reduce(nccl->device, op->type, op->op, nccl->inputs,
                                            op->weighted ? nccl->weights : NULL, nccl->size, count,
                                            result));
    return cddpi_nccl_copy(nccl, out, result, count * cut->element);
}

/* Send the results to all ranks, or to root. */
static cddp_status spread(struct nccl_transport *nccl, const struct nccl_cut *cut, const char *own)
{
    const struct cddpi_group_op *op = cut->op;
    bool all = op->kind == CDDPI_ALL_REDUCE;
    struct nccl_transfer *transfers = cddpi_nccl_transfers(nccl);
    size_t start;
    size_t mine = cddpi_nccl_part(cut, nccl->rank, &start);

    for (int r = 0; r < nccl->size; r++) {
        size_t count = cddpi_nccl_part(cut, r, &start);

        if (all || r == op->root) {
            transfers[r].out = own;
            transfers[r].out_bytes = mine * cut->element;
        }
        if (all || nccl->rank == op->root) {
            transfers[r].in = (char *)op->out + start * cut->element;
            transfers[r].in_bytes = count * cut->element;
        }
    }
    return cddpi_nccl_exchange(nccl);
}

static cddp_status one_piece(struct nccl_transport *nccl, const struct cddpi_group_op *op,
                             size_t at, size_t count)
{
    struct nccl_cut piece = {op, cddp_type_bytes(op->type), at, count, nccl->size};
    bool wants = op->kind != CDDPI_REDUCE || nccl->rank == op->root;
    char *result = nccl->scratch + (size_t)nccl->size * nccl->row;
    size_t start = at;

    if (op->kind != CDDPI_REDUCE_SCATTER) {
        (void)cddpi_nccl_part(&piece, nccl->rank, &start);
    }
    if (wants) {
        result = (char *)op->out + start * piece.element;
    }
    CDDPI_TRY(collect(nccl, &piece));
    CDDPI_TRY(reduce(nccl, &piece, result));
    if (op->kind != CDDPI_REDUCE_SCATTER) {
        CDDPI_TRY(spread(nccl, &piece, result));
    }
    return CDDP_OK;
}

cddp_status cddpi_nccl_deterministic(struct nccl_transport *nccl, const struct cddpi_group_op *op)
{
    size_t element = cddp_type_bytes(op->type);
    size_t parts = op->kind == CDDPI_REDUCE_SCATTER ? 1 : (size_t)nccl->size;
    size_t most = (nccl->row - NCCL_GRAIN) / element * parts;

    if (nccl->size > CDDPI_NCCL_ORDERED_RANKS) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE,
                          "%s of %s over %d ranks: these are made in one order, of at most %d",
                          cddp_op_name(op->op), cddp_type_name(op->type), nccl->size,
                          CDDPI_NCCL_ORDERED_RANKS);
    }
    CDDPI_TRY(op->weighted ? cddpi_nccl_gather_weights(nccl, op) : CDDP_OK);
    if (cddpi_nccl_has_hosts(nccl, op)) {
        return cddpi_nccl_over_hosts(nccl, op);
    }
    for (size_t at = 0; at < op->count; at += most) {
        CDDPI_TRY(one_piece(nccl, op, at, least(op->count - at, most)));
    }
    return CDDP_OK;
}
