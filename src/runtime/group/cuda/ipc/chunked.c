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

static struct chunked_run cut(const struct ipc_transport *transport,
                              const struct cddpi_group_op *op)
{
    bool scatters = op->kind == CDDPI_SCATTER || op->kind == CDDPI_ALL_TO_ALL ||
                    op->kind == CDDPI_REDUCE_SCATTER;
    bool rooted = op->kind == CDDPI_REDUCE || op->kind == CDDPI_GATHER;
    struct chunked_run run = {.op = op, .element = cddp_type_bytes(op->type)};

    run.blocks = scatters ? (size_t)transport->size : 1;
    run.stride = transport->window / run.blocks / IPC_GRAIN * IPC_GRAIN;
    run.chunk = run.stride / run.element;
    run.chunks = (op->count + run.chunk - 1) / run.chunk;
    run.reduces = op->kind == CDDPI_ALL_REDUCE || op->kind == CDDPI_REDUCE;
    run.small = run.reduces && op->count * run.element <= ipc_sizes.small;
    run.wants = !rooted || transport->rank == op->root;
    return run;
}

static struct chunked_piece piece_of(const struct ipc_transport *transport,
                                     const struct chunked_run *run, size_t t)
{
    size_t at = t * run->chunk;
    size_t left = run->op->count - at;

    return (struct chunked_piece){atomic_load(&transport->pieces) + 1 + t, at,
                                  left < run->chunk ? left : run->chunk};
}

static bool has_input(const struct ipc_transport *transport, const struct cddpi_group_op *op)
{
    return (op->kind != CDDPI_BROADCAST && op->kind != CDDPI_SCATTER) ||
           transport->rank == op->root;
}

/* Copy a piece into the window, except the part or block that only this rank needs. */
static cddp_status bring_all(struct ipc_transport *transport, cudaStream_t stream,
                             const struct chunked_run *run, const struct chunked_piece *piece)
{
    const struct cddpi_group_op *op = run->op;
    const char *in = (const char *)op->in + piece->at * run->element;
    char *window = ipc_window(transport, transport->rank, piece->number);
    cddp_status status = CDDP_OK;

    if (run->reduces && !run->small) {
        size_t start = cddpi_ipc_part(transport, op, piece->count, transport->rank) * run->element;
        size_t end = cddpi_ipc_part(transport, op, piece->count, transport->rank + 1) *
                     run->element;

        status = cddpi_ipc_copy(transport, stream, window, in, start);
        return status != CDDP_OK ? status
                                 : cddpi_ipc_copy(transport, stream, window + end, in + end,
                                                  piece->count * run->element - end);
    }
    for (size_t b = 0; b < run->blocks && status == CDDP_OK; b++) {
        if (run->blocks == 1 || b != (size_t)transport->rank) {
            status = cddpi_ipc_copy(transport, stream, window + b * run->stride,
                                    in + b * op->count * run->element, piece->count * run->element);
        }
    }
    return status;
}

/* Stage A. */
static cddp_status bring(struct ipc_transport *transport, const struct chunked_run *run, size_t t)
{
    struct chunked_piece piece = piece_of(transport, run, t);
    cudaStream_t stream = transport->staged ? transport->side_stream : transport->comm;
    cddp_status status = CDDP_OK;

    if (transport->staged) { /* wait for the start of the operation, and for the end of the slot's
                                last use */
        cudaEvent_t after = t < 2 ? transport->started
                                  : transport->consumed[(piece.number - 2) % IPC_SLOTS];

        status = CUDA_CHECK(transport->device, cudaStreamWaitEvent(stream, after, 0));
    }
    CDDPI_TRY(status);
    CDDPI_TRY(cddpi_ipc_await(transport, stream, IPC_DONE, piece.number - 2));
    if (t == 0 && run->op->weighted) {
        CDDPI_TRY(cddpi_ipc_write_weight(transport, stream, piece.number, run->op->weight));
    }
    if (has_input(transport, run->op)) {
        CDDPI_TRY(bring_all(transport, stream, run, &piece));
    }
    CDDPI_TRY(cddpi_ipc_signal(transport, stream, IPC_ARRIVED, piece.number));
    if (transport->staged) {
        CDDPI_TRY(
            CUDA_CHECK(transport->device,
                       cudaEventRecord(transport->copied_in[piece.number % IPC_SLOTS], stream)));
    }
    return CDDP_OK;
}

/* Find all ranks' input: it starts at byte @p offset of their windows; this rank's is at @p own. */
static void inputs_of(const struct ipc_transport *transport, const struct chunked_piece *piece,
                      size_t offset, const char *own, const char **out)
{
    for (int r = 0; r < transport->size; r++) {
        out[r] = ipc_window(transport, r, piece->number) + offset;
    }
    out[transport->rank] = own;
}

/* Reduce this rank's part of the piece into out, or into scratch if this rank gets no result. Then
 * copy it into the window, over the input, for the peers. */
static cddp_status reduce_part(struct ipc_transport *transport, const struct chunked_run *run,
                               const struct chunked_piece *piece)
{
    const struct cddpi_group_op *op = run->op;
    size_t start = run->small ? 0 : cddpi_ipc_part(transport, op, piece->count, transport->rank);
    size_t end = run->small ? piece->count
                            : cddpi_ipc_part(transport, op, piece->count, transport->rank + 1);
    size_t at = (piece->at + start) * run->element;
    size_t offset = start * run->element;
    char *result = run->wants ? (char *)op->out + at
                              : transport->scratch + (size_t)transport->size * transport->row;
    const char *inputs[IPC_RANKS];
    cddp_status status;

    if (run->small && !run->wants) {
        return CDDP_OK;
    }
    inputs_of(transport, piece, offset, (const char *)op->in + at, inputs);
    status = cddpi_ipc_reduce(transport, op, inputs, end - start, result);
    if (status != CDDP_OK || run->small || (op->kind == CDDPI_REDUCE && run->wants)) {
        return status;
    }
    return cddpi_ipc_copy(transport, transport->comm,
                          ipc_window(transport, transport->rank, piece->number) + offset, result,
                          (end - start) * run->element);
}

static cddp_status reduce_block(struct ipc_transport *transport, const struct chunked_run *run,
                                const struct chunked_piece *piece)
{
    const struct cddpi_group_op *op = run->op;
    size_t at = ((size_t)transport->rank * op->count + piece->at) * run->element;
    const char *inputs[IPC_RANKS];

    inputs_of(transport, piece, (size_t)transport->rank * run->stride, (const char *)op->in + at,
              inputs);
    return cddpi_ipc_reduce(transport, op, inputs, piece->count,
                            (char *)op->out + piece->at * run->element);
}

/* Copy the data for this rank from the window of rank @p from. */
static cddp_status take(struct ipc_transport *transport, const struct chunked_run *run,
                        const struct chunked_piece *piece, int from)
{
    const struct cddpi_group_op *op = run->op;
    bool gathers = op->kind == CDDPI_ALL_GATHER || op->kind == CDDPI_GATHER ||
                   op->kind == CDDPI_ALL_TO_ALL;
    size_t bytes = piece->count * run->element;
    size_t at = piece->at * run->element;
    size_t block = op->count * run->element;
    const char *window = ipc_window(transport, from, piece->number);
    char *out = (char *)op->out + at + (gathers ? (size_t)from * block : 0);

    if (from == transport->rank) { /* this rank's own block is not in its window */
        size_t own = run->blocks > 1 ? (size_t)transport->rank * block : 0;

        return cddpi_ipc_copy(transport, transport->comm, out, (const char *)op->in + own + at,
                              bytes);
    }
    return cddpi_ipc_copy(transport, transport->comm, out,
                          window + (run->blocks > 1 ? (size_t)transport->rank * run->stride : 0),
                          bytes);
}

/* Stage B, once all ranks have arrived. */
static cddp_status use(struct ipc_transport *transport, const struct chunked_run *run,
                       const struct chunked_piece *piece)
{
    const struct cddpi_group_op *op = run->op;
    cddp_status status = CDDP_OK;

    switch (op->kind) {
    case CDDPI_ALL_REDUCE:
    case CDDPI_REDUCE:
        return reduce_part(transport, run, piece);
    case CDDPI_REDUCE_SCATTER:
        return reduce_block(transport, run, piece);
    case CDDPI_BROADCAST:
    case CDDPI_SCATTER:
        return take(transport, run, piece, op->root);
    default:
        break;
    }
    CDDPI_TRY(status);
    for (int r = 0; r < transport->size && run->wants; r++) {
        CDDPI_TRY(take(transport, run, piece, r));
    }
    return CDDP_OK;
}

/* Stage C: copy the parts that peers have reduced. */
static cddp_status collect(struct ipc_transport *transport, const struct chunked_run *run,
                           const struct chunked_piece *piece)
{
    cddp_status status = cddpi_ipc_await(transport, transport->comm, IPC_DONE, piece->number);

    for (int r = 0; r < transport->size && status == CDDP_OK; r++) {
        size_t start = cddpi_ipc_part(transport, run->op, piece->count, r) * run->element;
        size_t end = cddpi_ipc_part(transport, run->op, piece->count, r + 1) * run->element;

        if (r != transport->rank) {
            status = cddpi_ipc_copy(transport, transport->comm,
                                    (char *)run->op->out + piece->at * run->element + start,
                                    ipc_window(transport, r, piece->number) + start, end - start);
        }
    }
    return status;
}

/* Stages B and C. */
static cddp_status finish(struct ipc_transport *transport, const struct chunked_run *run, size_t t)
{
    struct chunked_piece piece = piece_of(transport, run, t);
    size_t slot = piece.number % IPC_SLOTS;
    cddp_status status = CDDP_OK;

    if (transport->staged) {
        status = CUDA_CHECK(transport->device,
                            cudaStreamWaitEvent(transport->comm, transport->copied_in[slot], 0));
    }
    CDDPI_TRY(status);
    CDDPI_TRY(cddpi_ipc_await(transport, transport->comm, IPC_ARRIVED, piece.number));
    if (t == 0 && run->op->weighted) {
        CDDPI_TRY(cddpi_ipc_fetch_weights(transport, piece.number));
    }
    CDDPI_TRY(use(transport, run, &piece));
    CDDPI_TRY(cddpi_ipc_signal(transport, transport->comm, IPC_DONE, piece.number));
    if (run->reduces && !run->small && run->wants) {
        CDDPI_TRY(collect(transport, run, &piece));
    }
    if (transport->staged) {
        CDDPI_TRY(CUDA_CHECK(transport->device,
                             cudaEventRecord(transport->consumed[slot], transport->comm)));
    }
    return CDDP_OK;
}

cddp_status cddpi_ipc_chunked(struct ipc_transport *transport, const struct cddpi_group_op *op)
{
    struct chunked_run run = cut(transport, op);
    cddp_status status = CDDP_OK;

    if (transport->staged) {
        status = CUDA_CHECK(transport->device,
                            cudaEventRecord(transport->started, transport->comm));
    }
    if (status == CDDP_OK) {
        status = bring(transport, &run, 0);
    }
    for (size_t t = 0; t < run.chunks && status == CDDP_OK; t++) {
        if (t + 1 < run.chunks) {
            /* overlaps with stages B and C of piece t, and their waits */
            status = bring(transport, &run, t + 1);
        }
        if (status == CDDP_OK) {
            status = finish(transport, &run, t);
        }
    }
    atomic_fetch_add(&transport->pieces, run.chunks);
    return status;
}
