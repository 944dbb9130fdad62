/* direct.c - collectives on memory of alloc: ranks read the peers' input where it lies. All end
 * when all are done, since only then the input may change. */
#include "group/ipc/ipc.h"

/* What peers reach of an operation: memory that lies in the same place on all ranks. */
struct reach {
    const char *base;
    size_t bytes;    /* 0: this kind, or size, never goes this way */
    size_t own_step; /* what rank r reads or shows is so many bytes further, times r */
};

static struct reach reach_of(const struct cddpi_plane *plane, const struct cddpi_group_op *op)
{
    size_t bytes = op->count * cddp_type_bytes(op->type);
    size_t all = bytes * (size_t)plane->size;
    const char *own = op->out == NULL ? NULL : (const char *)op->out + (size_t)plane->rank * bytes;
    struct reach reach = {op->in, 0, 0};

    switch (op->kind) {
    case CDDPI_ALL_REDUCE:
    case CDDPI_REDUCE:
        reach.bytes = bytes <= ipc_sizes.small ? 0 : bytes;
        break;
    case CDDPI_REDUCE_SCATTER: /* kernels want blocks that are aligned */
        reach.bytes = bytes % 16 == 0 ? all : 0;
        break;
    case CDDPI_BROADCAST:
        reach.bytes = bytes;
        break;
    case CDDPI_ALL_GATHER:
        reach.bytes = bytes;
        if (op->in == own) { /* in place, each rank has its input in another part */
            reach = (struct reach){op->out, all, bytes};
        }
        break;
    case CDDPI_ALL_TO_ALL: /* in place, peers would still read what is written */
        reach.bytes = op->in == op->out ? 0 : all;
        break;
    default: /* of gather and scatter, only root knows where it lies */
        break;
    }
    return reach;
}

static bool aligned(const void *memory)
{
    return (uintptr_t)memory % 16 == 0; /* blocks begin at pages, on all ranks */
}

bool cddpi_ipc_is_direct(struct cddpi_plane *plane, const struct cddpi_group_op *op)
{
    struct reach reach = reach_of(plane, op);
    bool all = op->kind == CDDPI_ALL_REDUCE; /* all ranks write into the peers' output */
    const struct ipc_segment *in = NULL;
    const struct ipc_segment *out = NULL;
    bool direct;

    if (reach.bytes > 0 && !plane->staged) {
        in = cddpi_ipc_find(plane, reach.base, reach.bytes);
        out = all ? cddpi_ipc_find(plane, op->out, reach.bytes) : NULL;
    }
    direct = in != NULL && aligned(reach.base) && (!all || (out != NULL && aligned(op->out)));
    cddpi_ipc_note_place(plane, direct ? in : NULL, reach.base, direct ? out : NULL, op->out);
    return direct;
}

/* Where rank @p rank has the counterpart of @p own. */
static char *theirs(const struct cddpi_plane *plane, const struct ipc_segment *segment,
                    const void *own, int rank)
{
    return segment->at[rank] + ((const char *)own - segment->at[plane->rank]);
}

/* Rank r reduces part r, and writes it into everyone's output, where nobody else reads or writes
 * that part. */
static cddp_status all_reduce(struct cddpi_plane *plane, const struct cddpi_group_op *op,
                              const struct ipc_segment *in)
{
    size_t element = cddp_type_bytes(op->type);
    const struct ipc_segment *out = cddpi_ipc_find(plane, op->out, op->count * element);
    size_t start = cddpi_ipc_part(plane, op, op->count, plane->rank);
    size_t count = cddpi_ipc_part(plane, op, op->count, plane->rank + 1) - start;
    char *result = (char *)op->out + start * element;
    const char *inputs[IPC_RANKS];
    cddp_status status;

    for (int r = 0; r < plane->size; r++) {
        inputs[r] = theirs(plane, in, op->in, r) + start * element;
    }
    status = cddpi_ipc_reduce(plane, op, inputs, count, result);
    for (int i = 1; i < plane->size && status == CDDP_OK; i++) {
        int r = (plane->rank + i) % plane->size; /* not all to the same one at once */

        status = cddpi_ipc_copy(plane, plane->comm, theirs(plane, out, result, r), result,
                                count * element);
    }
    return status;
}

static cddp_status reduce(struct cddpi_plane *plane, const struct cddpi_group_op *op,
                          const struct ipc_segment *in)
{
    size_t block = op->count * cddp_type_bytes(op->type);
    size_t offset = op->kind == CDDPI_REDUCE_SCATTER ? (size_t)plane->rank * block : 0;
    const char *inputs[IPC_RANKS];

    if (op->kind == CDDPI_REDUCE && plane->rank != op->root) {
        return CDDP_OK;
    }
    for (int r = 0; r < plane->size; r++) {
        inputs[r] = theirs(plane, in, op->in, r) + offset;
    }
    return cddpi_ipc_reduce(plane, op, inputs, op->count, op->out);
}

static cddp_status move(struct cddpi_plane *plane, const struct cddpi_group_op *op,
                        const struct ipc_segment *in)
{
    struct reach reach = reach_of(plane, op);
    size_t block = op->count * cddp_type_bytes(op->type);
    size_t offset = op->kind == CDDPI_ALL_TO_ALL ? (size_t)plane->rank * block : 0;
    cddp_status status = CDDP_OK;

    if (op->kind == CDDPI_BROADCAST) {
        return cddpi_ipc_copy(plane, plane->comm, op->out, theirs(plane, in, op->in, op->root),
                              block);
    }
    for (int i = 0; i < plane->size && status == CDDP_OK; i++) {
        int r = (plane->rank + i) % plane->size;

        status = cddpi_ipc_copy(
            plane, plane->comm, (char *)op->out + (size_t)r * block,
            theirs(plane, in, reach.base, r) + offset + (size_t)r * reach.own_step, block);
    }
    return status;
}

static cddp_status run(struct cddpi_plane *plane, const struct cddpi_group_op *op)
{
    const struct ipc_segment *in = cddpi_ipc_find(plane, reach_of(plane, op).base, 1);

    switch (op->kind) {
    case CDDPI_ALL_REDUCE:
        return all_reduce(plane, op, in);
    case CDDPI_REDUCE:
    case CDDPI_REDUCE_SCATTER:
        return reduce(plane, op, in);
    default:
        return move(plane, op, in);
    }
}

cddp_status cddpi_ipc_direct(struct cddpi_plane *plane, const struct cddpi_group_op *op)
{
    uint64_t piece = atomic_fetch_add(&plane->pieces, 1) + 1;
    cddp_status status = CDDP_OK;

    if (op->weighted) {
        status = cddpi_ipc_await(plane, plane->comm, IPC_DONE, piece - 2);
        if (status == CDDP_OK) {
            status = cddpi_ipc_tell_weight(plane, plane->comm, piece, op->weight);
        }
    }
    if (status == CDDP_OK) {
        status = cddpi_ipc_signal(plane, plane->comm, IPC_ARRIVED, piece);
    }
    if (status == CDDP_OK) {
        status = cddpi_ipc_await(plane, plane->comm, IPC_ARRIVED, piece);
    }
    if (status == CDDP_OK && op->weighted) {
        status = cddpi_ipc_fetch_weights(plane, piece);
    }
    if (status == CDDP_OK) {
        status = run(plane, op);
    }
    if (status == CDDP_OK) {
        status = cddpi_ipc_signal(plane, plane->comm, IPC_DONE, piece);
    }
    return status != CDDP_OK ? status : cddpi_ipc_await(plane, plane->comm, IPC_DONE, piece);
}
