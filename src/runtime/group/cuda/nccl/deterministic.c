/* deterministic.c - owns reductions whose bits do not depend on NCCL's algorithm: NCCL only moves
 * the data, and rank r reduces part r with the kernel that all transports use. It sends as many
 * bytes as a ring does. 16-bit types are accumulated in float32, and rounded once. */
#include "group/cuda/nccl/nccl_transport.h"
#include "kernels/cuda/cuda_kernels.h"

/* A piece of an operation: every rank's part of it, in elements from the start of the input. */
struct deterministic_cut {
    const struct cddpi_group_op *op;
    size_t element;
    size_t starts[NCCL_MOST_RANKS];
    size_t counts[NCCL_MOST_RANKS];
};

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Cut out a piece. all_reduce and reduce: elements [at, at + count) of the input are divided among
 * the ranks. reduce_scatter: elements [at, at + count) of each block, which belongs to its rank. */
static struct deterministic_cut cut(const struct nccl_transport *nccl,
                                    const struct cddpi_group_op *op, size_t at, size_t count)
{
    struct deterministic_cut cut = {.op = op, .element = cddp_type_bytes(op->type)};
    size_t grains = (count * cut.element + NCCL_GRAIN - 1) / NCCL_GRAIN;

    for (int r = 0; r < nccl->size; r++) {
        size_t ranks = (size_t)nccl->size;
        size_t start = grains * (size_t)r / ranks * NCCL_GRAIN / cut.element;
        size_t end = grains * ((size_t)r + 1) / ranks * NCCL_GRAIN / cut.element;

        if (op->kind == CDDPI_REDUCE_SCATTER) {
            cut.starts[r] = (size_t)r * op->count + at;
            cut.counts[r] = count;
        } else {
            cut.starts[r] = at + least(start, count);
            cut.counts[r] = least(end, count) - least(start, count);
        }
    }
    return cut;
}

/* Receive all ranks' input for this rank's part into the rows of scratch. */
static cddp_status collect(struct nccl_transport *nccl, const struct deterministic_cut *cut)
{
    struct nccl_transfer transfers[NCCL_MOST_RANKS];

    for (int r = 0; r < nccl->size; r++) {
        transfers[r] = (struct nccl_transfer){
            (const char *)cut->op->in + cut->starts[r] * cut->element,
            cut->counts[r] * cut->element, nccl->scratch + (size_t)r * nccl->row,
            cut->counts[nccl->rank] * cut->element};
    }
    if (cuda_is_aligned(transfers[nccl->rank].out)) {
        transfers[nccl->rank].in_bytes = 0; /* the kernel reads it from its own memory */
    }
    return cddpi_nccl_exchange(nccl, transfers);
}

static cddp_status reduce(struct nccl_transport *nccl, const struct deterministic_cut *cut,
                          char *out)
{
    const struct cddpi_group_op *op = cut->op;
    const char *own = (const char *)op->in + cut->starts[nccl->rank] * cut->element;
    char *result = cuda_is_aligned(out) ? out : nccl->scratch + (size_t)nccl->size * nccl->row;
    size_t count = cut->counts[nccl->rank];
    const void *inputs[NCCL_MOST_RANKS];

    if (count == 0) {
        return CDDP_OK;
    }
    for (int r = 0; r < nccl->size; r++) {
        inputs[r] = nccl->scratch + (size_t)r * nccl->row;
    }
    if (cuda_is_aligned(own)) {
        inputs[nccl->rank] = own;
    }
    CDDPI_TRY(nccl->device->kernels->reduce(nccl->device, op->type, op->op, inputs,
                                            op->weighted ? nccl->weights : NULL, nccl->size, count,
                                            result));
    return cddpi_nccl_copy(nccl, out, result, count * cut->element);
}

/* Send the results to all ranks, or to root. */
static cddp_status spread(struct nccl_transport *nccl, const struct deterministic_cut *cut,
                          const char *own)
{
    const struct cddpi_group_op *op = cut->op;
    bool all = op->kind == CDDPI_ALL_REDUCE;
    struct nccl_transfer transfers[NCCL_MOST_RANKS] = {{NULL, 0, NULL, 0}};

    for (int r = 0; r < nccl->size; r++) {
        if (all || r == op->root) {
            transfers[r].out = own;
            transfers[r].out_bytes = cut->counts[nccl->rank] * cut->element;
        }
        if (all || nccl->rank == op->root) {
            transfers[r].in = (char *)op->out + cut->starts[r] * cut->element;
            transfers[r].in_bytes = cut->counts[r] * cut->element;
        }
    }
    return cddpi_nccl_exchange(nccl, transfers);
}

static cddp_status one_piece(struct nccl_transport *nccl, const struct cddpi_group_op *op,
                             size_t at, size_t count)
{
    struct deterministic_cut piece = cut(nccl, op, at, count);
    bool wants = op->kind != CDDPI_REDUCE || nccl->rank == op->root;
    size_t start = op->kind == CDDPI_REDUCE_SCATTER ? at : piece.starts[nccl->rank];
    char *result = wants ? (char *)op->out + start * piece.element
                         : nccl->scratch + (size_t)nccl->size * nccl->row;

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

    CDDPI_TRY(op->weighted ? cddpi_nccl_gather_weights(nccl, op) : CDDP_OK);
    for (size_t at = 0; at < op->count; at += most) {
        CDDPI_TRY(one_piece(nccl, op, at, least(op->count - at, most)));
    }
    return CDDP_OK;
}
