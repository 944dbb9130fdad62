/* chunked.c - owns collectives that go piece by piece through the ranks' windows; for any memory
 * and every kind.
 *
 * In the staged transport, stage A has its own stream: one piece is copied to host memory while
 * another is copied back and reduced. The flags already order the two streams, but CUDA does not
 * know that, so events repeat the order. */
#include "group/cuda/ipc/ipc.h"

/* How an operation is cut into pieces. */
struct chunked_run {
    const struct cddpi_group_op *op;
    size_t element;
    size_t blocks; /* number of blocks in a piece: 1, or one per rank */
    size_t stride; /* bytes between blocks in a window */
    size_t chunk;  /* elements of each block in a piece */
    size_t chunks;
    bool reduces;
    bool small; /* every rank reduces all elements */
    bool wants; /* this rank gets a result */
};

/* A piece: elements [at, at + count) of each block. */
struct chunked_piece {
    uint64_t number;
    size_t at, count;
};

static struct chunked_run cut(const struct ipc_transport *ipc, const struct cddpi_group_op *op)
{
    bool scatters = op->kind == CDDPI_SCATTER || op->kind == CDDPI_ALL_TO_ALL ||
                    op->kind == CDDPI_REDUCE_SCATTER;
    bool rooted = op->kind == CDDPI_REDUCE || op->kind == CDDPI_GATHER;
    struct chunked_run run = {.op = op, .element = cddp_type_bytes(op->type)};

    run.blocks = scatters ? (size_t)ipc->size : 1;
    run.stride = ipc->window / run.blocks / IPC_GRAIN * IPC_GRAIN;
    run.chunk = run.stride / run.element;
    run.chunks = (op->count + run.chunk - 1) / run.chunk;
    run.reduces = op->kind == CDDPI_ALL_REDUCE || op->kind == CDDPI_REDUCE;
    run.small = run.reduces && op->count * run.element <= ipc_sizes.small;
    run.wants = !rooted || ipc->rank == op->root;
    return run;
}

static struct chunked_piece piece_of(const struct ipc_transport *ipc, const struct chunked_run *run,
                                     size_t t)
{
    size_t at = t * run->chunk;
    size_t left = run->op->count - at;

    return (struct chunked_piece){atomic_load(&ipc->pieces) + 1 + t, at,
                                  left < run->chunk ? left : run->chunk};
}

/* Copy a piece into the window, except the part or block that only this rank needs. */
static cddp_status bring_all(struct ipc_transport *ipc, cudaStream_t stream,
                             const struct chunked_run *run, const struct chunked_piece *piece)
{
    const struct cddpi_group_op *op = run->op;
    const char *in = (const char *)op->in + piece->at * run->element;
    char *window = ipc_window(ipc, ipc->rank, piece->number);

    if (run->reduces && !run->small) {
        size_t start = cddpi_ipc_part(ipc, op, piece->count, ipc->rank) * run->element;
        size_t end = cddpi_ipc_part(ipc, op, piece->count, ipc->rank + 1) * run->element;

        CDDPI_TRY(cddpi_ipc_copy(ipc, stream, window, in, start));
        return cddpi_ipc_copy(ipc, stream, window + end, in + end,
                              piece->count * run->element - end);
    }
    for (size_t b = 0; b < run->blocks; b++) {
        if (run->blocks == 1 || b != (size_t)ipc->rank) {
            CDDPI_TRY(cddpi_ipc_copy(ipc, stream, window + b * run->stride,
                                     in + b * op->count * run->element,
                                     piece->count * run->element));
        }
    }
    return CDDP_OK;
}

/* Stage A. */
static cddp_status bring(struct ipc_transport *ipc, const struct chunked_run *run, size_t t)
{
    struct chunked_piece piece = piece_of(ipc, run, t);
    cudaStream_t stream = ipc->staged ? ipc->side_stream : ipc->comm;

    if (ipc->staged) { /* wait for the start of the operation, and for the end of the slot's
                                last use */
        cudaEvent_t after = t < 2 ? ipc->started : ipc->consumed[(piece.number - 2) % IPC_SLOTS];

        CDDPI_TRY(CUDA_CHECK(ipc->device, cudaStreamWaitEvent(stream, after, 0)));
    }
    CDDPI_TRY(cddpi_ipc_await(ipc, stream, IPC_DONE, piece.number - 2));
    if (t == 0 && run->op->weighted) {
        CDDPI_TRY(cddpi_ipc_write_weight(ipc, stream, piece.number, run->op->weight));
    }
    if ((run->op->kind != CDDPI_BROADCAST && run->op->kind != CDDPI_SCATTER) ||
        ipc->rank == run->op->root) { /* this rank has input */
        CDDPI_TRY(bring_all(ipc, stream, run, &piece));
    }
    CDDPI_TRY(cddpi_ipc_signal(ipc, stream, IPC_ARRIVED, piece.number));
    if (ipc->staged) {
        CDDPI_TRY(CUDA_CHECK(ipc->device,
                             cudaEventRecord(ipc->copied_in[piece.number % IPC_SLOTS], stream)));
    }
    return CDDP_OK;
}

/* Find all ranks' input: it starts at byte @p offset of their windows; this rank's is at @p own. */
static void inputs_of(const struct ipc_transport *ipc, const struct chunked_piece *piece,
                      size_t offset, const char *own, const char **out)
{
    for (int r = 0; r < ipc->size; r++) {
        out[r] = ipc_window(ipc, r, piece->number) + offset;
    }
    out[ipc->rank] = own;
}

/* Reduce this rank's part of the piece into out, or into scratch if this rank gets no result. Then
 * copy it into the window, over the input, for the peers. */
static cddp_status reduce_part(struct ipc_transport *ipc, const struct chunked_run *run,
                               const struct chunked_piece *piece)
{
    const struct cddpi_group_op *op = run->op;
    size_t start = run->small ? 0 : cddpi_ipc_part(ipc, op, piece->count, ipc->rank);
    size_t end = run->small ? piece->count : cddpi_ipc_part(ipc, op, piece->count, ipc->rank + 1);
    size_t at = (piece->at + start) * run->element;
    size_t offset = start * run->element;
    char *result = run->wants ? (char *)op->out + at : ipc->scratch + (size_t)ipc->size * ipc->row;
    const char *inputs[IPC_RANKS];
    cddp_status status;

    if (run->small && !run->wants) {
        return CDDP_OK;
    }
    inputs_of(ipc, piece, offset, (const char *)op->in + at, inputs);
    status = cddpi_ipc_reduce(ipc, op, inputs, end - start, result);
    if (status != CDDP_OK || run->small || (op->kind == CDDPI_REDUCE && run->wants)) {
        return status;
    }
    return cddpi_ipc_copy(ipc, ipc->comm, ipc_window(ipc, ipc->rank, piece->number) + offset,
                          result, (end - start) * run->element);
}

static cddp_status reduce_block(struct ipc_transport *ipc, const struct chunked_run *run,
                                const struct chunked_piece *piece)
{
    const struct cddpi_group_op *op = run->op;
    size_t at = ((size_t)ipc->rank * op->count + piece->at) * run->element;
    const char *inputs[IPC_RANKS];

    inputs_of(ipc, piece, (size_t)ipc->rank * run->stride, (const char *)op->in + at, inputs);
    return cddpi_ipc_reduce(ipc, op, inputs, piece->count,
                            (char *)op->out + piece->at * run->element);
}

/* Copy the data for this rank from the window of rank @p from. */
static cddp_status take(struct ipc_transport *ipc, const struct chunked_run *run,
                        const struct chunked_piece *piece, int from)
{
    const struct cddpi_group_op *op = run->op;
    bool gathers = op->kind == CDDPI_ALL_GATHER || op->kind == CDDPI_GATHER ||
                   op->kind == CDDPI_ALL_TO_ALL;
    size_t bytes = piece->count * run->element;
    size_t at = piece->at * run->element;
    size_t block = op->count * run->element;
    const char *window = ipc_window(ipc, from, piece->number);
    char *out = (char *)op->out + at + (gathers ? (size_t)from * block : 0);

    if (from == ipc->rank) { /* this rank's own block is not in its window */
        size_t own = run->blocks > 1 ? (size_t)ipc->rank * block : 0;

        return cddpi_ipc_copy(ipc, ipc->comm, out, (const char *)op->in + own + at, bytes);
    }
    return cddpi_ipc_copy(ipc, ipc->comm, out,
                          window + (run->blocks > 1 ? (size_t)ipc->rank * run->stride : 0), bytes);
}

/* Stage B, once all ranks have arrived. */
static cddp_status use(struct ipc_transport *ipc, const struct chunked_run *run,
                       const struct chunked_piece *piece)
{
    const struct cddpi_group_op *op = run->op;

    switch (op->kind) {
    case CDDPI_ALL_REDUCE:
    case CDDPI_REDUCE:
        return reduce_part(ipc, run, piece);
    case CDDPI_REDUCE_SCATTER:
        return reduce_block(ipc, run, piece);
    case CDDPI_BROADCAST:
    case CDDPI_SCATTER:
        return take(ipc, run, piece, op->root);
    default:
        break;
    }
    for (int r = 0; r < ipc->size && run->wants; r++) {
        CDDPI_TRY(take(ipc, run, piece, r));
    }
    return CDDP_OK;
}

/* Stage C: copy the parts that peers have reduced. */
static cddp_status collect(struct ipc_transport *ipc, const struct chunked_run *run,
                           const struct chunked_piece *piece)
{
    CDDPI_TRY(cddpi_ipc_await(ipc, ipc->comm, IPC_DONE, piece->number));
    for (int r = 0; r < ipc->size; r++) {
        size_t start = cddpi_ipc_part(ipc, run->op, piece->count, r) * run->element;
        size_t end = cddpi_ipc_part(ipc, run->op, piece->count, r + 1) * run->element;

        if (r != ipc->rank) {
            CDDPI_TRY(cddpi_ipc_copy(ipc, ipc->comm,
                                     (char *)run->op->out + piece->at * run->element + start,
                                     ipc_window(ipc, r, piece->number) + start, end - start));
        }
    }
    return CDDP_OK;
}

/* Stages B and C. */
static cddp_status finish(struct ipc_transport *ipc, const struct chunked_run *run, size_t t)
{
    struct chunked_piece piece = piece_of(ipc, run, t);
    size_t slot = piece.number % IPC_SLOTS;

    if (ipc->staged) {
        CDDPI_TRY(CUDA_CHECK(ipc->device, cudaStreamWaitEvent(ipc->comm, ipc->copied_in[slot], 0)));
    }
    CDDPI_TRY(cddpi_ipc_await(ipc, ipc->comm, IPC_ARRIVED, piece.number));
    if (t == 0 && run->op->weighted) {
        CDDPI_TRY(cddpi_ipc_fetch_weights(ipc, piece.number));
    }
    CDDPI_TRY(use(ipc, run, &piece));
    CDDPI_TRY(cddpi_ipc_signal(ipc, ipc->comm, IPC_DONE, piece.number));
    if (run->reduces && !run->small && run->wants) {
        CDDPI_TRY(collect(ipc, run, &piece));
    }
    if (ipc->staged) {
        CDDPI_TRY(CUDA_CHECK(ipc->device, cudaEventRecord(ipc->consumed[slot], ipc->comm)));
    }
    return CDDP_OK;
}

cddp_status cddpi_ipc_chunked(struct ipc_transport *ipc, const struct cddpi_group_op *op)
{
    struct chunked_run run = cut(ipc, op);
    cddp_status status = CDDP_OK;

    if (ipc->staged) {
        status = CUDA_CHECK(ipc->device, cudaEventRecord(ipc->started, ipc->comm));
    }
    if (status == CDDP_OK) {
        status = bring(ipc, &run, 0);
    }
    for (size_t t = 0; t < run.chunks && status == CDDP_OK; t++) {
        if (t + 1 < run.chunks) {
            /* overlaps with stages B and C of piece t, and their waits */
            status = bring(ipc, &run, t + 1);
        }
        if (status == CDDP_OK) {
            status = finish(ipc, &run, t);
        }
    }
    atomic_fetch_add(&ipc->pieces, run.chunks);
    return status;
}
