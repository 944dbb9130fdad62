/* zero_copy.c - owns collectives on memory of alloc, in which ranks read the peers' input without
 * copying it. An operation ends once all ranks are done, since the input may change only then. */
#include "group/cuda/ipc/ipc.h"

/* The memory of an operation that peers read; it has the same place on all ranks. */
struct reach {
    const char *base;
    size_t bytes;    /* 0: never zero-copy for this kind or size */
    size_t own_step; /* rank r's input begins at base + r * own_step */
};

static struct reach reach_of(const struct ipc_transport *ipc, const struct cddpi_group_op *op)
{
    size_t bytes = op->count * cddp_type_bytes(op->type);
    size_t all = bytes * (size_t)ipc->size;
    const char *own = op->out == NULL ? NULL : (const char *)op->out + (size_t)ipc->rank * bytes;
    struct reach reach = {op->in, 0, 0};

    switch (op->kind) {
    case CDDPI_ALL_REDUCE:
    case CDDPI_REDUCE:
        reach.bytes = bytes <= ipc_sizes.small ? 0 : bytes;
        break;
    case CDDPI_REDUCE_SCATTER: /* kernels require aligned blocks */
        reach.bytes = bytes % 16 == 0 ? all : 0;
        break;
    case CDDPI_BROADCAST:
        reach.bytes = bytes;
        break;
    case CDDPI_ALL_GATHER:
        reach.bytes = bytes;
        if (op->in == own) { /* in place, each rank has its input in a different part */
            reach = (struct reach){op->out, all, bytes};
        }
        break;
    case CDDPI_ALL_TO_ALL: /* in place, this rank would overwrite data that peers still read */
        reach.bytes = op->in == op->out ? 0 : all;
        break;
    default: /* for gather and scatter, only the root knows the place */
        break;
    }
    return reach;
}

bool cddpi_ipc_is_zero_copy(struct ipc_transport *ipc, const struct cddpi_group_op *op)
{
    struct reach reach = reach_of(ipc, op);
    bool all = op->kind == CDDPI_ALL_REDUCE; /* in all_reduce, ranks write into the peers' output */
    const struct ipc_segment *in = NULL;
    const struct ipc_segment *out = NULL;
    bool zero_copy;

    if (reach.bytes > 0 && !ipc->staged) {
        in = cddpi_ipc_find(ipc, reach.base, reach.bytes);
        out = all ? cddpi_ipc_find(ipc, op->out, reach.bytes) : NULL;
    }
    /* blocks begin at page boundaries on all ranks */
    zero_copy = in != NULL && cuda_is_aligned(reach.base) &&
                (!all || (out != NULL && cuda_is_aligned(op->out)));
    cddpi_ipc_note_place(ipc, zero_copy ? in : NULL, reach.base, zero_copy ? out : NULL, op->out);
    return zero_copy;
}

/* The address in this process of rank @p rank's counterpart of @p own. */
static char *theirs(const struct ipc_transport *ipc, const struct ipc_segment *segment,
                    const void *own, int rank)
{
    return segment->at[rank] + ((const char *)own - segment->at[ipc->rank]);
}

/* Rank r reduces part r and writes it into all ranks' output. No other rank reads or writes that
 * part. */
static cddp_status all_reduce(struct ipc_transport *ipc, const struct cddpi_group_op *op,
                              const struct ipc_segment *in)
{
    size_t element = cddp_type_bytes(op->type);
    const struct ipc_segment *out = cddpi_ipc_find(ipc, op->out, op->count * element);
    size_t start = cddpi_ipc_part(ipc, op, op->count, ipc->rank);
    size_t count = cddpi_ipc_part(ipc, op, op->count, ipc->rank + 1) - start;
    char *result = (char *)op->out + start * element;
    const char *inputs[IPC_RANKS];

    for (int r = 0; r < ipc->size; r++) {
        inputs[r] = theirs(ipc, in, op->in, r) + start * element;
    }
    CDDPI_TRY(cddpi_ipc_reduce(ipc, op, inputs, count, result));
    for (int i = 1; i < ipc->size; i++) {
        /* each rank begins with a different peer */
        int r = (ipc->rank + i) % ipc->size;

        CDDPI_TRY(
            cddpi_ipc_copy(ipc, ipc->comm, theirs(ipc, out, result, r), result, count * element));
    }
    return CDDP_OK;
}

static cddp_status reduce(struct ipc_transport *ipc, const struct cddpi_group_op *op,
                          const struct ipc_segment *in)
{
    size_t block = op->count * cddp_type_bytes(op->type);
    size_t offset = op->kind == CDDPI_REDUCE_SCATTER ? (size_t)ipc->rank * block : 0;
    const char *inputs[IPC_RANKS];

    if (op->kind == CDDPI_REDUCE && ipc->rank != op->root) {
        return CDDP_OK;
    }
    for (int r = 0; r < ipc->size; r++) {
        inputs[r] = theirs(ipc, in, op->in, r) + offset;
    }
    return cddpi_ipc_reduce(ipc, op, inputs, op->count, op->out);
}

static cddp_status move(struct ipc_transport *ipc, const struct cddpi_group_op *op,
                        const struct ipc_segment *in)
{
    struct reach reach = reach_of(ipc, op);
    size_t block = op->count * cddp_type_bytes(op->type);
    size_t offset = op->kind == CDDPI_ALL_TO_ALL ? (size_t)ipc->rank * block : 0;

    if (op->kind == CDDPI_BROADCAST) {
        return cddpi_ipc_copy(ipc, ipc->comm, op->out, theirs(ipc, in, op->in, op->root), block);
    }
    for (int i = 0; i < ipc->size; i++) {
        int r = (ipc->rank + i) % ipc->size;

        CDDPI_TRY(cddpi_ipc_copy(
            ipc, ipc->comm, (char *)op->out + (size_t)r * block,
            theirs(ipc, in, reach.base, r) + offset + (size_t)r * reach.own_step, block));
    }
    return CDDP_OK;
}

static cddp_status run(struct ipc_transport *ipc, const struct cddpi_group_op *op)
{
    const struct ipc_segment *in = cddpi_ipc_find(ipc, reach_of(ipc, op).base, 1);

    switch (op->kind) {
    case CDDPI_ALL_REDUCE:
        return all_reduce(ipc, op, in);
    case CDDPI_REDUCE:
    case CDDPI_REDUCE_SCATTER:
        return reduce(ipc, op, in);
    default:
        return move(ipc, op, in);
    }
}

cddp_status cddpi_ipc_zero_copy(struct ipc_transport *ipc, const struct cddpi_group_op *op)
{
    uint64_t piece = atomic_fetch_add(&ipc->pieces, 1) + 1;

    if (op->weighted) {
        CDDPI_TRY(cddpi_ipc_await(ipc, ipc->comm, IPC_DONE, piece - 2));
        CDDPI_TRY(cddpi_ipc_write_weight(ipc, ipc->comm, piece, op->weight));
    }
    CDDPI_TRY(cddpi_ipc_signal(ipc, ipc->comm, IPC_ARRIVED, piece));
    CDDPI_TRY(cddpi_ipc_await(ipc, ipc->comm, IPC_ARRIVED, piece));
    if (op->weighted) {
        CDDPI_TRY(cddpi_ipc_fetch_weights(ipc, piece));
    }
    CDDPI_TRY(run(ipc, op));
    CDDPI_TRY(cddpi_ipc_signal(ipc, ipc->comm, IPC_DONE, piece));
    return cddpi_ipc_await(ipc, ipc->comm, IPC_DONE, piece);
}
