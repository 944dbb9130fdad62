/* windowed.c - collectives piece by piece through the ranks' windows: any memory, every kind.
 *
 * In the staged plane stage A has a stream of its own: a piece goes down to host memory while
 * another comes up and is reduced. Flags order the two streams as well, but CUDA does not see that,
 * so events say it again. */
#include "group/ipc/ipc.h"

/* How an operation is cut. */
struct run {
    const struct cddpi_group_op *op;
    size_t element;
    size_t blocks; /* that a piece brings: 1, or one for each rank */
    size_t stride; /* bytes between them in a window */
    size_t chunk;  /* elements of a piece, of each block */
    size_t chunks;
    bool reduces;
    bool small; /* every rank reduces everything */
    bool wants; /* this rank gets a result */
};

/* A piece: elements [at, at + count) of each block. */
struct piece {
    uint64_t number;
    size_t at, count;
};

static struct run cut(const struct cddpi_plane *plane, const struct cddpi_group_op *op)
{
    bool scatters = op->kind == CDDPI_SCATTER || op->kind == CDDPI_ALL_TO_ALL ||
                    op->kind == CDDPI_REDUCE_SCATTER;
    bool rooted = op->kind == CDDPI_REDUCE || op->kind == CDDPI_GATHER;
    struct run run = {.op = op, .element = cddp_type_bytes(op->type)};

    run.blocks = scatters ? (size_t)plane->size : 1;
    run.stride = plane->window / run.blocks / IPC_GRAIN * IPC_GRAIN;
    run.chunk = run.stride / run.element;
    run.chunks = (op->count + run.chunk - 1) / run.chunk;
    run.reduces = op->kind == CDDPI_ALL_REDUCE || op->kind == CDDPI_REDUCE;
    run.small = run.reduces && op->count * run.element <= ipc_sizes.small;
    run.wants = !rooted || plane->rank == op->root;
    return run;
}

static struct piece piece_of(const struct cddpi_plane *plane, const struct run *run, size_t t)
{
    size_t at = t * run->chunk;
    size_t left = run->op->count - at;

    return (struct piece){atomic_load(&plane->pieces) + 1 + t, at,
                          left < run->chunk ? left : run->chunk};
}

static bool has_input(const struct cddpi_plane *plane, const struct cddpi_group_op *op)
{
    return (op->kind != CDDPI_BROADCAST && op->kind != CDDPI_SCATTER) || plane->rank == op->root;
}

/* Which ranks' blocks, or parts, of a piece this rank need not bring: its own. */
static cddp_status bring_all(struct cddpi_plane *plane, cudaStream_t stream, const struct run *run,
                             const struct piece *piece)
{
    const struct cddpi_group_op *op = run->op;
    const char *in = (const char *)op->in + piece->at * run->element;
    char *window = ipc_window(plane, plane->rank, piece->number);
    cddp_status status = CDDP_OK;

    if (run->reduces && !run->small) {
        size_t start = cddpi_ipc_part(plane, op, piece->count, plane->rank) * run->element;
        size_t end = cddpi_ipc_part(plane, op, piece->count, plane->rank + 1) * run->element;

        status = cddpi_ipc_copy(plane, stream, window, in, start);
        return status != CDDP_OK ? status
                                 : cddpi_ipc_copy(plane, stream, window + end, in + end,
                                                  piece->count * run->element - end);
    }
    for (size_t b = 0; b < run->blocks && status == CDDP_OK; b++) {
        if (run->blocks == 1 || b != (size_t)plane->rank) {
            status = cddpi_ipc_copy(plane, stream, window + b * run->stride,
                                    in + b * op->count * run->element, piece->count * run->element);
        }
    }
    return status;
}

/* Stage A. */
static cddp_status bring(struct cddpi_plane *plane, const struct run *run, size_t t)
{
    struct piece piece = piece_of(plane, run, t);
    cudaStream_t stream = plane->staged ? plane->side : plane->comm;
    cddp_status status = CDDP_OK;

    if (plane->staged) { /* what the operation follows, and the reader before the last */
        cudaEvent_t after = t < 2 ? plane->started : plane->gone[(piece.number - 2) % IPC_SLOTS];

        status = CUDA_CHECK(plane->device, cudaStreamWaitEvent(stream, after, 0));
    }
    if (status == CDDP_OK) {
        status = cddpi_ipc_await(plane, stream, IPC_DONE, piece.number - 2);
    }
    if (status == CDDP_OK && t == 0 && run->op->weighted) {
        status = cddpi_ipc_tell_weight(plane, stream, piece.number, run->op->weight);
    }
    if (status == CDDP_OK && has_input(plane, run->op)) {
        status = bring_all(plane, stream, run, &piece);
    }
    if (status == CDDP_OK) {
        status = cddpi_ipc_signal(plane, stream, IPC_ARRIVED, piece.number);
    }
    if (status == CDDP_OK && plane->staged) {
        status = CUDA_CHECK(plane->device,
                            cudaEventRecord(plane->came[piece.number % IPC_SLOTS], stream));
    }
    return status;
}

/* All ranks' numbers from byte @p offset of their windows; this rank's are at @p own. */
static void inputs_of(const struct cddpi_plane *plane, const struct piece *piece, size_t offset,
                      const char *own, const char **out)
{
    for (int r = 0; r < plane->size; r++) {
        out[r] = ipc_window(plane, r, piece->number) + offset;
    }
    out[plane->rank] = own;
}

/* This rank's part of the piece is reduced into out or, where nobody wants it, scratch; and shown
 * to the peers in place of the input. */
static cddp_status reduce_part(struct cddpi_plane *plane, const struct run *run,
                               const struct piece *piece)
{
    const struct cddpi_group_op *op = run->op;
    size_t start = run->small ? 0 : cddpi_ipc_part(plane, op, piece->count, plane->rank);
    size_t end = run->small ? piece->count
                            : cddpi_ipc_part(plane, op, piece->count, plane->rank + 1);
    size_t at = (piece->at + start) * run->element;
    size_t offset = start * run->element;
    char *result = run->wants ? (char *)op->out + at
                              : plane->scratch + (size_t)plane->size * plane->row;
    const char *inputs[IPC_RANKS];
    cddp_status status;

    if (run->small && !run->wants) {
        return CDDP_OK;
    }
    inputs_of(plane, piece, offset, (const char *)op->in + at, inputs);
    status = cddpi_ipc_reduce(plane, op, inputs, end - start, result);
    if (status != CDDP_OK || run->small || (op->kind == CDDPI_REDUCE && run->wants)) {
        return status;
    }
    return cddpi_ipc_copy(plane, plane->comm,
                          ipc_window(plane, plane->rank, piece->number) + offset, result,
                          (end - start) * run->element);
}

static cddp_status reduce_block(struct cddpi_plane *plane, const struct run *run,
                                const struct piece *piece)
{
    const struct cddpi_group_op *op = run->op;
    size_t at = ((size_t)plane->rank * op->count + piece->at) * run->element;
    const char *inputs[IPC_RANKS];

    inputs_of(plane, piece, (size_t)plane->rank * run->stride, (const char *)op->in + at, inputs);
    return cddpi_ipc_reduce(plane, op, inputs, piece->count,
                            (char *)op->out + piece->at * run->element);
}

/* Copy what rank @p from's window has for this rank. */
static cddp_status take(struct cddpi_plane *plane, const struct run *run, const struct piece *piece,
                        int from)
{
    const struct cddpi_group_op *op = run->op;
    bool gathers = op->kind == CDDPI_ALL_GATHER || op->kind == CDDPI_GATHER ||
                   op->kind == CDDPI_ALL_TO_ALL;
    size_t bytes = piece->count * run->element;
    size_t at = piece->at * run->element;
    size_t block = op->count * run->element;
    const char *window = ipc_window(plane, from, piece->number);
    char *out = (char *)op->out + at + (gathers ? (size_t)from * block : 0);

    if (from == plane->rank) { /* its own, which it did not have to bring */
        size_t own = run->blocks > 1 ? (size_t)plane->rank * block : 0;

        return cddpi_ipc_copy(plane, plane->comm, out, (const char *)op->in + own + at, bytes);
    }
    return cddpi_ipc_copy(plane, plane->comm, out,
                          window + (run->blocks > 1 ? (size_t)plane->rank * run->stride : 0),
                          bytes);
}

/* Stage B, once all have arrived. */
static cddp_status use(struct cddpi_plane *plane, const struct run *run, const struct piece *piece)
{
    const struct cddpi_group_op *op = run->op;
    cddp_status status = CDDP_OK;

    switch (op->kind) {
    case CDDPI_ALL_REDUCE:
    case CDDPI_REDUCE:
        return reduce_part(plane, run, piece);
    case CDDPI_REDUCE_SCATTER:
        return reduce_block(plane, run, piece);
    case CDDPI_BROADCAST:
    case CDDPI_SCATTER:
        return take(plane, run, piece, op->root);
    default:
        break;
    }
    for (int r = 0; r < plane->size && run->wants && status == CDDP_OK; r++) {
        status = take(plane, run, piece, r);
    }
    return status;
}

/* Stage C: the parts that peers have reduced. */
static cddp_status collect(struct cddpi_plane *plane, const struct run *run,
                           const struct piece *piece)
{
    cddp_status status = cddpi_ipc_await(plane, plane->comm, IPC_DONE, piece->number);

    for (int r = 0; r < plane->size && status == CDDP_OK; r++) {
        size_t start = cddpi_ipc_part(plane, run->op, piece->count, r) * run->element;
        size_t end = cddpi_ipc_part(plane, run->op, piece->count, r + 1) * run->element;

        if (r != plane->rank) {
            status = cddpi_ipc_copy(plane, plane->comm,
                                    (char *)run->op->out + piece->at * run->element + start,
                                    ipc_window(plane, r, piece->number) + start, end - start);
        }
    }
    return status;
}

/* Stages B and C. */
static cddp_status finish(struct cddpi_plane *plane, const struct run *run, size_t t)
{
    struct piece piece = piece_of(plane, run, t);
    size_t slot = piece.number % IPC_SLOTS;
    cddp_status status = CDDP_OK;

    if (plane->staged) {
        status = CUDA_CHECK(plane->device, cudaStreamWaitEvent(plane->comm, plane->came[slot], 0));
    }
    if (status == CDDP_OK) {
        status = cddpi_ipc_await(plane, plane->comm, IPC_ARRIVED, piece.number);
    }
    if (status == CDDP_OK && t == 0 && run->op->weighted) {
        status = cddpi_ipc_fetch_weights(plane, piece.number);
    }
    if (status == CDDP_OK) {
        status = use(plane, run, &piece);
    }
    if (status == CDDP_OK) {
        status = cddpi_ipc_signal(plane, plane->comm, IPC_DONE, piece.number);
    }
    if (status == CDDP_OK && run->reduces && !run->small && run->wants) {
        status = collect(plane, run, &piece);
    }
    if (status == CDDP_OK && plane->staged) {
        status = CUDA_CHECK(plane->device, cudaEventRecord(plane->gone[slot], plane->comm));
    }
    return status;
}

cddp_status cddpi_ipc_windowed(struct cddpi_plane *plane, const struct cddpi_group_op *op)
{
    struct run run = cut(plane, op);
    cddp_status status = CDDP_OK;

    if (plane->staged) {
        status = CUDA_CHECK(plane->device, cudaEventRecord(plane->started, plane->comm));
    }
    if (status == CDDP_OK) {
        status = bring(plane, &run, 0);
    }
    for (size_t t = 0; t < run.chunks && status == CDDP_OK; t++) {
        if (t + 1 < run.chunks) { /* beside the next two stages, or while this rank waits there */
            status = bring(plane, &run, t + 1);
        }
        if (status == CDDP_OK) {
            status = finish(plane, &run, t);
        }
    }
    atomic_fetch_add(&plane->pieces, run.chunks);
    return status;
}
