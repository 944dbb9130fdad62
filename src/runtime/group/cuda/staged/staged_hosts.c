/* staged_hosts.c - owns the transport "staged" for ranks on several hosts. Data is copied through
 * pinned CPU memory, where the group's backend reduces it; so results are bitwise equal to those of
 * CPU memory.
 *
 * An operation is cut into pieces, which are numbered across all operations. Three counters in
 * pinned memory show the progress:
 *
 *   brought  = k: the side stream has copied the input of piece k into its slot
 *   reduced  = k: the processor has done the collective of piece k from slot to slot
 *   taken    = k: the communication stream has copied the result of piece k to its place
 *
 * Streams raise the first and the last counter, and wait for the second; the thread of
 * group/device/remote.c, which calls host_part, does the opposite. Slots are used in turn. An abort
 * releases the counters (stream_flags.h), so that streams become empty. Messages between ranks of
 * one host use group_cuda_p2p.h. */
#include "group/cuda/group_cuda_p2p.h"
#include "group/cuda/stream_flags.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

enum {
    SLOTS = 3,
    GRACE_MS = 1000, /* time limit for work in progress when the group is left */
    DRAIN_MS = 10000,
    SHORT_NS = 20000,
    LONG_NS = 500000,
    SHORT_LOOKS = 50
};

/* Tests use small slots, so that little data has many pieces. */
#ifndef CDDPI_STAGED_SLOT_BYTES
#define CDDPI_STAGED_SLOT_BYTES (4 << 20)
#endif

/* The start of the pinned memory. */
struct counters {
    _Alignas(128) _Atomic uint64_t brought;
    _Alignas(128) _Atomic uint64_t reduced;
    _Alignas(128) _Atomic uint64_t taken;
};

struct staged_transport {
    struct cddpi_device_transport base;     /* first: see staged_of() */
    struct cddpi_device_open_params params; /* copied */
    struct cddpi_device *device;
    cudaStream_t comm, side;
    cudaEvent_t started;
    struct cddpi_stream_flags flags;
    struct cddpi_p2p *p2p;
    struct counters *counters; /* pinned; `slots` has the slots for input, then those for results */
    char *slots;
    uint64_t put;             /* number of pieces enqueued so far */
    uint64_t done;            /* number of pieces that the CPU has done; only host_part uses it */
    _Atomic uint32_t aborted; /* 0: no, 1: being written, 2: yes */
    char reason[CDDPI_TRANSPORT_TEXT_BYTES];
};

static struct staged_transport *staged_of(struct cddpi_device_transport *base)
{
    return (struct staged_transport *)(void *)base;
}

/* How an operation is cut into pieces. */
struct staged_hosts_cut {
    size_t element;
    /* number of blocks, of `count` elements each, that a rank gives and gets */
    size_t in_blocks, out_blocks;
    size_t chunk;     /* elements of each block in a piece */
    bool gives, gets; /* this rank */
};

static struct staged_hosts_cut cut(const struct staged_transport *staged,
                                   const struct cddpi_group_op *op)
{
    size_t size = (size_t)staged->params.world_size;
    bool is_root = staged->params.rank == op->root;
    bool splits = op->kind == CDDPI_SCATTER || op->kind == CDDPI_ALL_TO_ALL ||
                  op->kind == CDDPI_REDUCE_SCATTER;
    bool gathers = op->kind == CDDPI_GATHER || op->kind == CDDPI_ALL_TO_ALL ||
                   op->kind == CDDPI_ALL_GATHER;
    struct staged_hosts_cut cut = {.element = cddp_type_bytes(op->type)};

    cut.in_blocks = splits ? size : 1;
    cut.out_blocks = gathers ? size : 1;
    cut.chunk = CDDPI_STAGED_SLOT_BYTES / (splits || gathers ? size : 1) / cut.element;
    cut.gives = (op->kind != CDDPI_BROADCAST && op->kind != CDDPI_SCATTER) || is_root;
    cut.gets = (op->kind != CDDPI_REDUCE && op->kind != CDDPI_GATHER) || is_root;
    return cut;
}

static size_t piece_count(const struct staged_hosts_cut *cut, const struct cddpi_group_op *op,
                          size_t at)
{
    return op->count - at < cut->chunk ? op->count - at : cut->chunk;
}

static char *in_slot(const struct staged_transport *staged, uint64_t piece)
{
    return staged->slots + piece % SLOTS * CDDPI_STAGED_SLOT_BYTES;
}

static char *out_slot(const struct staged_transport *staged, const struct cddpi_group_op *op,
                      uint64_t piece)
{
    return op->kind == CDDPI_BROADCAST
               ? in_slot(staged, piece) /* one buffer */
               : staged->slots + (SLOTS + piece % SLOTS) * CDDPI_STAGED_SLOT_BYTES;
}

/* --- the streams' part --- */

/* Enqueue a copy of @p blocks parts of @p bytes each; they start @p from_step and @p to_step bytes
 * apart. */
static cddp_status copy(struct staged_transport *staged, cudaStream_t stream, char *to,
                        size_t to_step, const char *from, size_t from_step, size_t blocks,
                        size_t bytes)
{
    for (size_t b = 0; b < blocks; b++) {
        CDDPI_TRY(CUDA_CHECK(staged->device, cudaMemcpyAsync(to + b * to_step, from + b * from_step,
                                                             bytes, cudaMemcpyDefault, stream)));
    }
    return CDDP_OK;
}

static cddp_status bring(struct staged_transport *staged, const struct staged_hosts_cut *cut,
                         const struct cddpi_group_op *op, size_t at, uint64_t piece)
{
    size_t bytes = piece_count(cut, op, at) * cut->element;

    if (piece > SLOTS) {
        /* the slot was used before; if there is one buffer, also for a result */
        CDDPI_TRY(cddpi_flag_await(&staged->flags, staged->side, &staged->counters->taken,
                                   piece - SLOTS));
    }
    if (cut->gives) {
        CDDPI_TRY(copy(staged, staged->side, in_slot(staged, piece), bytes,
                       (const char *)op->in + at * cut->element, op->count * cut->element,
                       cut->in_blocks, bytes));
    }
    return cddpi_flag_raise(&staged->flags, staged->side, &staged->counters->brought, piece);
}

static cddp_status take_result(struct staged_transport *staged, const struct staged_hosts_cut *cut,
                               const struct cddpi_group_op *op, size_t at, uint64_t piece)
{
    size_t bytes = piece_count(cut, op, at) * cut->element;

    CDDPI_TRY(cddpi_flag_await(&staged->flags, staged->comm, &staged->counters->reduced, piece));
    if (cut->gets) {
        CDDPI_TRY(copy(staged, staged->comm, (char *)op->out + at * cut->element,
                       op->count * cut->element, out_slot(staged, op, piece), bytes,
                       cut->out_blocks, bytes));
    }
    return cddpi_flag_raise(&staged->flags, staged->comm, &staged->counters->taken, piece);
}

static cddp_status put_pieces(struct staged_transport *staged, const struct cddpi_group_op *op)
{
    struct staged_hosts_cut how = cut(staged, op);

    CDDPI_TRY(CUDA_CHECK(staged->device, cudaEventRecord(staged->started, staged->comm)));
    CDDPI_TRY(CUDA_CHECK(staged->device, cudaStreamWaitEvent(staged->side, staged->started, 0)));
    for (size_t at = 0; at < op->count; at += how.chunk) {
        uint64_t piece = ++staged->put;

        CDDPI_TRY(bring(staged, &how, op, at, piece));
        CDDPI_TRY(take_result(staged, &how, op, at, piece));
    }
    return CDDP_OK;
}

/* --- the CPU's part --- */

static cddp_status ended(struct staged_transport *staged)
{
    return atomic_load_explicit(&staged->aborted, memory_order_acquire) == 2
               ? cddpi_fail_rank(CDDP_ERR_BROKEN, staged->params.rank, "%s", staged->reason)
               : CDDP_OK;
}

/* Wait until a stream has raised @p counter to @p value. The wait ends when the device has done its
 * work, or with abort. */
static cddp_status await_here(struct staged_transport *staged, const _Atomic uint64_t *counter,
                              uint64_t value)
{
    for (int looks = 0;; looks++) {
        struct timespec pause = {0, looks < SHORT_LOOKS ? SHORT_NS : LONG_NS};
        cddp_status status = ended(staged);

        if (status != CDDP_OK || atomic_load_explicit(counter, memory_order_acquire) >= value) {
            return status;
        }
        nanosleep(&pause, NULL);
    }
}

static cddp_status do_piece(struct staged_transport *staged, const struct staged_hosts_cut *cut,
                            const struct cddpi_group_op *op, size_t at, uint64_t piece)
{
    struct cddpi_group_op part = {.kind = op->kind,
                                  .type = op->type,
                                  .op = op->op,
                                  .root = op->root,
                                  .weighted = op->weighted,
                                  .weight = op->weight,
                                  .count = piece_count(cut, op, at),
                                  .in = in_slot(staged, piece),
                                  .out = out_slot(staged, op, piece)};
    uint64_t before = piece - 1;

    CDDPI_TRY(await_here(staged, &staged->counters->brought, piece));
    if (piece > SLOTS) {
        CDDPI_TRY(await_here(staged, &staged->counters->taken, piece - SLOTS));
    }
    CDDPI_TRY(staged->params.collective(staged->params.context, &part));
    /* raise the counter for the stream, unless it was released in the meantime */
    (void)atomic_compare_exchange_strong(&staged->counters->reduced, &before, piece);
    return CDDP_OK;
}

static cddp_status host_part(struct cddpi_device_transport *base, const struct cddpi_group_op *op)
{
    struct staged_transport *staged = staged_of(base);
    struct staged_hosts_cut how = cut(staged, op);

    for (size_t at = 0; at < op->count; at += how.chunk) {
        CDDPI_TRY(do_piece(staged, &how, op, at, ++staged->done));
    }
    return CDDP_OK;
}

/* --- opening and closing --- */

static cddp_status probe(const struct cddpi_device_open_params *params)
{
    struct cddpi_stream_flags flags;

    if (CDDPI_STAGED_SLOT_BYTES / (size_t)params->world_size < sizeof(double)) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "%d ranks: at most %zu", params->world_size,
                          CDDPI_STAGED_SLOT_BYTES / sizeof(double));
    }
    return cddpi_flags_find(params->device, &flags);
}

static cddp_status make_own(struct staged_transport *staged)
{
    struct cddpi_device *device = staged->device;

    staged->comm = cuda_device_stream(device, CDDPI_STREAM_COMM);
    CDDPI_TRY(cddpi_flags_find(device, &staged->flags));
    CDDPI_TRY(CUDA_CHECK(device, cudaStreamCreateWithFlags(&staged->side, cudaStreamNonBlocking)));
    CDDPI_TRY(
        CUDA_CHECK(device, cudaEventCreateWithFlags(&staged->started, cudaEventDisableTiming)));
    CDDPI_TRY(CUDA_CHECK(device, cudaHostAlloc((void **)&staged->counters, sizeof *staged->counters,
                                               cudaHostAllocPortable | cudaHostAllocMapped)));
    memset(staged->counters, 0, sizeof *staged->counters);
    staged->flags.memory = staged->counters;
    CDDPI_TRY(CUDA_CHECK(device, cudaHostGetDevicePointer((void **)&staged->flags.memory_device,
                                                          staged->counters, 0)));
    return CUDA_CHECK(device, cudaHostAlloc((void **)&staged->slots,
                                            2 * SLOTS * (size_t)CDDPI_STAGED_SLOT_BYTES,
                                            cudaHostAllocPortable));
}

static const struct cddpi_device_transport_ops ops;

static cddp_status open_transport(const struct cddpi_device_open_params *params,
                                  struct cddpi_device_transport **out)
{
    struct staged_transport *staged = cddpi_zalloc(sizeof *staged);
    cddp_status status;

    if (staged == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "transport: no memory");
    } else {
        staged->base.ops = &ops;
        staged->params = *params;
        staged->device = params->device;
        status = make_own(staged);
    }
    status = cddpi_transport_agree(params, status);
    if (status == CDDP_OK) {
        status = cddpi_p2p_open(params, NULL, &staged->p2p);
    }
    return cddpi_transport_opened(status, staged, out);
}

static void abort_transport(struct cddpi_device_transport *base, const char *reason)
{
    struct staged_transport *staged = staged_of(base);
    uint32_t none = 0;

    if (atomic_compare_exchange_strong(&staged->aborted, &none, 1)) {
        snprintf(staged->reason, sizeof staged->reason, "%s", reason);
        atomic_store_explicit(&staged->aborted, 2, memory_order_release);
    }
    if (staged->counters != NULL) {
        cddpi_flag_release(&staged->counters->brought);
        cddpi_flag_release(&staged->counters->reduced);
        cddpi_flag_release(&staged->counters->taken);
    }
    cddpi_p2p_release(staged->p2p);
}

static bool drain(struct staged_transport *staged, uint32_t timeout_ms)
{
    return staged->side == NULL ||
           (cddpi_transport_drain(staged->device, staged->comm, timeout_ms) &&
            cddpi_transport_drain(staged->device, staged->side, timeout_ms));
}

static void free_own(struct staged_transport *staged)
{
    if (staged->started != NULL) {
        (void)cudaEventDestroy(staged->started);
    }
    if (staged->side != NULL) {
        (void)cudaStreamDestroy(staged->side);
    }
    (void)cudaFreeHost(staged->slots);
    (void)cudaFreeHost(staged->counters);
    (void)cudaGetLastError(); /* if the device is lost, all of these calls fail */
}

static void close_transport(struct cddpi_device_transport *base)
{
    struct staged_transport *staged = staged_of(base);
    bool dry;

    if (staged == NULL) {
        return;
    }
    cddpi_transport_enter(staged->device);
    if (!drain(staged, GRACE_MS)) {
        abort_transport(&staged->base, "left the group while work was under way");
    }
    dry = drain(staged, DRAIN_MS);
    dry = cddpi_p2p_close(staged->p2p) && dry;
    if (dry) {
        free_own(staged);
    } else {
        cddpi_transport_warn(
            staged->device,
            "work on the device does not end: its memory stays until this process ends");
    }
    cddpi_free(staged);
}

/* --- one operation after another --- */

static cddp_status enqueue(struct cddpi_device_transport *base, const struct cddpi_group_op *op)
{
    struct staged_transport *staged = staged_of(base);
    cddp_status status;

    CDDPI_TRY(ended(staged));
    if (op->kind == CDDPI_BARRIER || op->kind == CDDPI_ALLOC || op->kind == CDDPI_SEND ||
        op->kind == CDDPI_RECV) {
        return cddpi_transport_refuse(op);
    }
    status = put_pieces(staged, op);
    if (status != CDDP_OK) { /* the CPU waits for work that was not enqueued */
        abort_transport(&staged->base, cddpi_transport_reason(staged->device));
    }
    return status;
}

static cddp_status message(struct cddpi_device_transport *base,
                           const struct cddpi_p2p_message *message)
{
    struct staged_transport *staged = staged_of(base);

    CDDPI_TRY(ended(staged));
    return cddpi_p2p_start(staged->p2p, message);
}

static cddp_status poll_transport(struct cddpi_device_transport *base)
{
    struct staged_transport *staged = staged_of(base);

    CDDPI_TRY(ended(staged));
    return cddpi_p2p_advance(staged->p2p);
}

static cddp_status alloc(struct cddpi_device_transport *base, size_t bytes, void **out)
{
    struct staged_transport *staged = staged_of(base);
    void *memory = NULL;
    cddp_status status = CUDA_CHECK(staged->device, cudaMalloc(&memory, bytes));

    if (status == CDDP_OK) {
        status = CUDA_CHECK(staged->device, cudaMemset(memory, 0, bytes));
    }
    status = cddpi_transport_agree(&staged->params, status);
    if (status != CDDP_OK) {
        (void)cudaFree(memory);
        return status;
    }
    *out = memory;
    return CDDP_OK;
}

static void free_memory(struct cddpi_device_transport *base, void *memory)
{
    struct staged_transport *staged = staged_of(base);

    cddpi_transport_enter(staged->device);
    if (drain(staged, DRAIN_MS)) {
        (void)cudaFree(memory);
    } else {
        cddpi_transport_warn(staged->device, "work on the device does not end: memory of the "
                                             "group stays until this process ends");
    }
}

/* No: the counters increase from one operation to the next, so a replay would find them reached,
 * and the CPU does a part of each operation. */
static bool can_capture(const struct cddpi_device_transport *base)
{
    (void)base;
    return false;
}

static const struct cddpi_device_transport_ops ops = {.close = close_transport,
                                                      .enqueue = enqueue,
                                                      .message = message,
                                                      .poll = poll_transport,
                                                      .abort = abort_transport,
                                                      .alloc = alloc,
                                                      .free_memory = free_memory,
                                                      .can_capture = can_capture,
                                                      .host_part = host_part};

const struct cddpi_transport cddpi_staged_hosts_transport = {
    .name = "staged",
    .carries = CDDPI_MEMORY_DEVICE,
    .device = {.probe = probe,
               .open = open_transport,
               .hosts = CDDPI_SEVERAL_HOSTS,
               .for_host = true,
               .by_carrier = true}};
