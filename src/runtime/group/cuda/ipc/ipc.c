/* ipc.c - owns the transports "ipc" and "staged": opens them, closes them, and runs their
 * operations. */
#include "group/cuda/ipc/ipc.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* How long close waits for peers to do their part of the work in progress, and then again for them
 * to close this rank's memory. After that, close aborts the work, and frees the memory anyway:
 * drivers keep pages that another process maps, although NVIDIA does not guarantee it. */
enum { GRACE_MS = 1000 };

/* How long close waits for streams that the transport no longer blocks. */
enum { DRAIN_MS = 10000 };

static cddp_status probe(const struct cddpi_device_open_params *params)
{
    struct cddpi_stream_flags flags;

    if (params->world_size == 1) {
        return CDDP_OK; /* there are only copies */
    }
    if (params->world_size > IPC_RANKS) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "%d ranks: kernels here reduce those of at most %d",
                          params->world_size, IPC_RANKS);
    }
    if (params->local_world_size != params->world_size) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "the ranks are on several machines");
    }
    return cddpi_flags_find(params->device, &flags);
}

/* Get the peers' process ids, and watch these processes from now on. */
static cddp_status introduce(struct ipc_transport *ipc)
{
    int32_t own = (int32_t)getpid();
    int32_t pids[IPC_RANKS];

    CDDPI_TRY(ipc->params.exchange(ipc->params.context, &own, sizeof own, pids));
    for (int r = 0; r < ipc->size; r++) {
        for (int q = 0; q < r; q++) {
            if (pids[q] == pids[r]) { /* CUDA cannot open a handle in the process that created it */
                return cddpi_fail(CDDP_ERR_UNAVAILABLE, "ranks %d and %d are in one process", q, r);
            }
        }
    }
    cddpi_ipc_watch(ipc, pids);
    return CDDP_OK;
}

static cddp_status make_events(struct ipc_transport *ipc)
{
    cudaEvent_t *const events[] = {&ipc->started,      &ipc->copied_in[0], &ipc->copied_in[1],
                                   &ipc->copied_in[2], &ipc->consumed[0],  &ipc->consumed[1],
                                   &ipc->consumed[2]};

    for (size_t i = 0; i < sizeof events / sizeof *events; i++) {
        CDDPI_TRY(
            CUDA_CHECK(ipc->device, cudaEventCreateWithFlags(events[i], cudaEventDisableTiming)));
    }
    return CDDP_OK;
}

/* Create the streams, events and memory that only this rank uses. */
static cddp_status make_own(struct ipc_transport *ipc)
{
    struct cddpi_device *device = ipc->device;
    struct ipc_rank *me = &ipc->block->ranks[ipc->rank];

    atomic_store(&me->arrived, ipc_sizes.start);
    atomic_store(&me->done, ipc_sizes.start);
    CDDPI_TRY(
        CUDA_CHECK(device, cudaHostRegister(ipc->block, ipc->block_bytes,
                                            cudaHostRegisterPortable | cudaHostRegisterMapped)));
    ipc->registered = true;
    ipc->flags.memory = ipc->block;
    CDDPI_TRY(CUDA_CHECK(
        device, cudaHostGetDevicePointer((void **)&ipc->flags.memory_device, ipc->block, 0)));
    CDDPI_TRY(
        CUDA_CHECK(device, cudaStreamCreateWithFlags(&ipc->side_stream, cudaStreamNonBlocking)));
    CDDPI_TRY(make_events(ipc));
    ipc->row = cddpi_align_to(ipc->window / (size_t)ipc->size, IPC_GRAIN) + IPC_GRAIN;
    ipc->row = ipc->row < ipc_sizes.small ? ipc_sizes.small : ipc->row;
    CDDPI_TRY(
        CUDA_CHECK(device, cudaMalloc((void **)&ipc->scratch, ipc->row * ((size_t)ipc->size + 1))));
    return CUDA_CHECK(device,
                      cudaMalloc((void **)&ipc->weights, (size_t)ipc->size * sizeof *ipc->weights));
}

static cddp_status open_windows(struct ipc_transport *ipc)
{
    size_t bytes = IPC_SLOTS * ipc->window;

    if (!ipc->staged) {
        return cddpi_ipc_share(ipc, bytes, ipc->windows);
    }
    for (int r = 0; r < ipc->size; r++) {
        ipc->windows[r] = (char *)ipc->block + ipc->block_bytes - (size_t)(ipc->size - r) * bytes;
    }
    return CDDP_OK;
}

/* Test access to the peers' memory: every rank writes a word into every rank's window, and reads
 * the words in the other windows. Memory that can be opened is not always accessible. */
static cddp_status write_words(struct ipc_transport *ipc)
{
    for (int r = 0; r < ipc->size; r++) {
        uint64_t word = (uint64_t)ipc->rank * 1000 + (uint64_t)r + 1;

        CDDPI_TRY(CUDA_CHECK(
            ipc->device, cudaMemcpyAsync(ipc->windows[r] + (size_t)ipc->rank * sizeof word, &word,
                                         sizeof word, cudaMemcpyDefault, ipc->side_stream)));
        CDDPI_TRY(CUDA_CHECK(ipc->device, cudaStreamSynchronize(ipc->side_stream)));
    }
    return CDDP_OK;
}

static cddp_status read_words(struct ipc_transport *ipc)
{
    for (int r = 0; r < ipc->size; r++) {
        uint64_t words[IPC_RANKS];

        CDDPI_TRY(CUDA_CHECK(ipc->device, cudaMemcpyAsync(words, ipc->windows[r],
                                                          (size_t)ipc->size * sizeof *words,
                                                          cudaMemcpyDefault, ipc->side_stream)));
        CDDPI_TRY(CUDA_CHECK(ipc->device, cudaStreamSynchronize(ipc->side_stream)));
        for (int q = 0; q < ipc->size; q++) {
            if (words[q] != (uint64_t)q * 1000 + (uint64_t)r + 1) {
                return cddpi_fail(CDDP_ERR_UNAVAILABLE,
                                  "what rank %d wrote into the device memory of rank %d does not "
                                  "reach device %s: peer access does not work on this machine",
                                  q, r, ipc->device->unique);
            }
        }
    }
    return CDDP_OK;
}

static const struct cddpi_device_transport_ops ops;

static cddp_status open_ranks(struct ipc_transport *ipc)
{
    size_t header = cddpi_align_to(
        sizeof *ipc->block + (size_t)ipc->size * sizeof *ipc->block->ranks, 4096);
    size_t windows = ipc->staged ? IPC_SLOTS * ipc_sizes.staging : 0;
    cddp_status status;

    CDDPI_TRY(cddpi_transport_agree(&ipc->params, cddpi_flags_find(ipc->device, &ipc->flags)));
    CDDPI_TRY(introduce(ipc));
    ipc->window = ipc->staged ? ipc_sizes.staging : ipc_sizes.window;
    ipc->block_bytes = header + (size_t)ipc->size * windows;
    atomic_store(&ipc->pieces, ipc_sizes.start);
    status = ipc->params.shared(ipc->params.context, ipc->block_bytes, (void **)&ipc->block);
    if (status != CDDP_OK) {
        ipc->block = NULL;
        return status;
    }
    CDDPI_TRY(cddpi_transport_agree(&ipc->params, make_own(ipc)));
    CDDPI_TRY(open_windows(ipc));
    if (!ipc->staged) {
        CDDPI_TRY(cddpi_transport_agree(&ipc->params, write_words(ipc)));
        CDDPI_TRY(cddpi_transport_agree(&ipc->params, read_words(ipc)));
        CDDPI_TRY(cddpi_ipc_share(
            ipc, cddpi_align_to(cddpi_p2p_area_bytes(ipc->size), IPC_ALLOC_BYTES), ipc->p2p_areas));
    }
    return cddpi_p2p_open(&ipc->params, ipc->staged ? NULL : ipc->p2p_areas, &ipc->p2p);
}

static cddp_status open_transport(const struct cddpi_device_open_params *params, bool staged,
                                  struct cddpi_device_transport **out)
{
    struct ipc_transport *ipc = cddpi_zalloc(sizeof *ipc);
    cddp_status status = CDDP_OK;

    if (ipc == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "transport: no memory");
    } else {
        ipc->base.ops = &ops;
        ipc->params = *params;
        ipc->device = params->device;
        ipc->comm = cuda_device_stream(params->device, CDDPI_STREAM_COMM);
        ipc->rank = params->rank;
        ipc->size = params->world_size;
        ipc->staged = staged;
        for (int r = 0; r < IPC_RANKS; r++) {
            ipc->alive[r] = -1;
        }
    }
    if (params->world_size > 1) {
        status = cddpi_transport_agree(params, status);
        if (status == CDDP_OK) {
            status = open_ranks(ipc);
        }
    }
    return cddpi_transport_opened(status, ipc, out);
}

static cddp_status open_ipc(const struct cddpi_device_open_params *params,
                            struct cddpi_device_transport **out)
{
    return open_transport(params, false, out);
}

static cddp_status open_staged(const struct cddpi_device_open_params *params,
                               struct cddpi_device_transport **out)
{
    return open_transport(params, true, out);
}

/* Whether the work in the streams can still end by itself. */
static bool can_end(const struct ipc_transport *ipc, uint64_t pieces)
{
    for (int r = 0; r < ipc->size; r++) {
        /* in this order: what a rank has done is final once it is gone */
        if (r != ipc->rank && cddpi_ipc_gone(ipc, r) && cddpi_ipc_read(ipc, r, IPC_DONE) < pieces) {
            return false;
        }
    }
    return true;
}

/* Let the work in progress end, if the peers do their part soon; else end all waits for them.
 * False: it still runs, because other work in the stream does not end. */
static bool end_work(struct ipc_transport *ipc)
{
    uint64_t pieces = atomic_load(&ipc->pieces);
    bool busy = true;

    if (ipc->windows[ipc->rank] == NULL) {
        return true; /* the transport is only partly built: it has no work */
    }
    for (int ms = 0; ms < GRACE_MS && busy && can_end(ipc, pieces); ms++) {
        busy = !cddpi_transport_drain(ipc->device, ipc->comm, 1);
    }
    if (busy) {
        cddpi_ipc_abort(&ipc->base, "left the group while work was under way");
    }
    return cddpi_transport_drain(ipc->device, ipc->comm, DRAIN_MS) &&
           cddpi_transport_drain(ipc->device, ipc->side_stream, DRAIN_MS);
}

/* Wait until no peer has this rank's memory open, for a limited time. */
static void wait_for_peers(const struct ipc_transport *ipc)
{
    struct timespec pause = {0, 1000000};
    bool all = false;

    for (int ms = 0; ms < GRACE_MS && !all; ms++) {
        all = true;
        for (int r = 0; r < ipc->size; r++) {
            all = all && (r == ipc->rank || cddpi_ipc_gone(ipc, r));
        }
        if (!all) {
            nanosleep(&pause, NULL);
        }
    }
}

static void close_memory(struct ipc_transport *ipc)
{
    while (ipc->segments != NULL) {
        cddpi_ipc_free(&ipc->base, ipc->segments->at[ipc->rank]);
    }
    cddpi_ipc_close_retired(ipc, true);
    cddpi_ipc_unshare(ipc, ipc->windows);
    cddpi_ipc_unshare(ipc, ipc->p2p_areas);
    atomic_store_explicit(&ipc->block->ranks[ipc->rank].left, 1, memory_order_release);
    wait_for_peers(ipc);
    cddpi_ipc_free_retired(ipc, true);
    (void)cudaFree(ipc->windows[ipc->rank]);
    (void)cudaFree(ipc->p2p_areas[ipc->rank]);
}

static void free_own(struct ipc_transport *ipc)
{
    cudaEvent_t events[] = {NULL, NULL, NULL, NULL, NULL, NULL, NULL};

    memcpy(events, ipc->copied_in, sizeof ipc->copied_in);
    memcpy(events + IPC_SLOTS, ipc->consumed, sizeof ipc->consumed);
    events[2 * IPC_SLOTS] = ipc->started;
    for (size_t i = 0; i < sizeof events / sizeof *events; i++) {
        if (events[i] != NULL) {
            (void)cudaEventDestroy(events[i]);
        }
    }
    if (ipc->side_stream != NULL) {
        (void)cudaStreamDestroy(ipc->side_stream);
    }
    (void)cudaFree(ipc->scratch);
    (void)cudaFree(ipc->weights);
    if (ipc->registered) {
        (void)cudaHostUnregister(ipc->block);
    }
    (void)cudaGetLastError(); /* if the device is lost, all of these calls fail */
}

static void close_transport(struct cddpi_device_transport *base)
{
    struct ipc_transport *ipc = ipc_of(base);
    bool dry;

    if (ipc == NULL) {
        return;
    }
    cddpi_transport_enter(ipc->device);
    dry = ipc->block == NULL || end_work(ipc);
    dry = cddpi_p2p_close(ipc->p2p) && dry;
    if (dry && ipc->block != NULL && !ipc->staged) {
        close_memory(ipc);
    }
    if (ipc->block != NULL) {
        atomic_store_explicit(&ipc->block->ranks[ipc->rank].left, 1, memory_order_release);
    }
    if (dry) {
        free_own(ipc);
    } else {
        cddpi_transport_warn(
            ipc->device,
            "work on the device does not end: its memory stays until this process ends");
    }
    for (int r = 0; r < IPC_RANKS; r++) {
        if (ipc->alive[r] >= 0) {
            close(ipc->alive[r]);
        }
    }
    cddpi_free(ipc);
}

/* One rank: the result is the input. */
static cddp_status alone(struct ipc_transport *ipc, const struct cddpi_group_op *op)
{
    size_t bytes = op->count * cddp_type_bytes(op->type);

    if (op->weighted && op->weight == 0) {
        return CUDA_CHECK(ipc->device, cudaMemsetAsync(op->out, 0, bytes, ipc->comm));
    }
    return cddpi_ipc_copy(ipc, ipc->comm, op->out, op->in, bytes);
}

static cddp_status enqueue(struct cddpi_device_transport *base, const struct cddpi_group_op *op)
{
    struct ipc_transport *ipc = ipc_of(base);
    cddp_status status;

    CDDPI_TRY(cddpi_ipc_ended(ipc));
    if (op->kind == CDDPI_BARRIER || op->kind == CDDPI_ALLOC || op->kind == CDDPI_SEND ||
        op->kind == CDDPI_RECV) {
        return cddpi_transport_refuse(op);
    }
    if (op->count == 0) {
        return CDDP_OK;
    }
    if (ipc->size == 1) {
        return alone(ipc, op);
    }
    status = cddpi_ipc_is_zero_copy(ipc, op) ? cddpi_ipc_zero_copy(ipc, op)
                                             : cddpi_ipc_chunked(ipc, op);
    if (status != CDDP_OK) { /* the peers wait for work that was not enqueued */
        cddpi_ipc_abort(&ipc->base, cddpi_transport_reason(ipc->device));
    }
    return status;
}

static cddp_status message(struct cddpi_device_transport *base,
                           const struct cddpi_p2p_message *message)
{
    struct ipc_transport *ipc = ipc_of(base);

    CDDPI_TRY(cddpi_ipc_ended(ipc));
    return cddpi_p2p_start(ipc->p2p, message);
}

/* No: the flags increase from one operation to the next, so a replay would find them already
 * reached. */
static bool can_capture(const struct cddpi_device_transport *base)
{
    return ((const struct ipc_transport *)(const void *)base)->size == 1;
}

static void exits(struct cddpi_device_transport *base)
{
    struct ipc_transport *ipc = ipc_of(base);

    if (ipc->block != NULL) { /* a rank alone has none */
        atomic_store_explicit(&ipc->block->ranks[ipc->rank].left, 1, memory_order_release);
    }
}

static const struct cddpi_device_transport_ops ops = {.close = close_transport,
                                                      .exits = exits,
                                                      .enqueue = enqueue,
                                                      .message = message,
                                                      .poll = cddpi_ipc_poll,
                                                      .abort = cddpi_ipc_abort,
                                                      .alloc = cddpi_ipc_alloc,
                                                      .free_memory = cddpi_ipc_free,
                                                      .can_capture = can_capture};

const struct cddpi_transport cddpi_ipc_transport = {
    .name = "ipc",
    .carries = CDDPI_MEMORY_DEVICE,
    .device = {.probe = probe, .open = open_ipc, .for_host = true}};

const struct cddpi_transport cddpi_staged_transport = {
    .name = "staged",
    .carries = CDDPI_MEMORY_DEVICE,
    .device = {.probe = probe, .open = open_staged, .hosts = CDDPI_ONE_HOST, .for_host = true}};
