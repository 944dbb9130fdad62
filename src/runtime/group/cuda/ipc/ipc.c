/* ipc.c - owns the transports "ipc" and "staged": opens them, closes them, and runs their
 * operations. */
#include "group/cuda/ipc/ipc.h"
#include "base/alloc.h"

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

struct ipc_intro {
    int32_t pid;
};

static cddp_status probe(const struct cddpi_device_open_params *params)
{
    struct cddpi_stream_flags flags;

    if (params->world_size == 1) {
        return CDDP_OK; /* there are only copies */
    }
    if (params->world_size > IPC_RANKS) {
        return cddpi_transport_fail(params->device, CDDP_ERR_UNAVAILABLE,
                                    "%d ranks: kernels here reduce those of at most %d",
                                    params->world_size, IPC_RANKS);
    }
    if (params->local_world_size != params->world_size) {
        return cddpi_transport_fail(params->device, CDDP_ERR_UNAVAILABLE,
                                    "the ranks are on several machines");
    }
    return cddpi_flags_find(params->device, &flags);
}

/* Get the peers' process ids, and watch these processes from now on. */
static cddp_status introduce(struct ipc_transport *transport)
{
    struct ipc_intro own = {.pid = (int32_t)getpid()};
    struct ipc_intro all[IPC_RANKS];
    int pids[IPC_RANKS];
    cddp_status status = transport->params.exchange(transport->params.context, &own, sizeof own,
                                                    all);

    for (int r = 0; r < transport->size && status == CDDP_OK; r++) {
        pids[r] = all[r].pid;
        for (int q = 0; q < r && status == CDDP_OK; q++) {
            if (pids[q] == pids[r]) { /* CUDA cannot open a handle in the process that created it */
                status = cddpi_transport_fail(transport->device, CDDP_ERR_UNAVAILABLE,
                                              "ranks %d and %d are in one process", q, r);
            }
        }
    }
    if (status == CDDP_OK) {
        cddpi_ipc_watch(transport, pids);
    }
    return status;
}

static cddp_status make_events(struct ipc_transport *transport)
{
    cudaEvent_t *const events[] = {&transport->started,      &transport->copied_in[0],
                                   &transport->copied_in[1], &transport->copied_in[2],
                                   &transport->consumed[0],  &transport->consumed[1],
                                   &transport->consumed[2]};

    for (size_t i = 0; i < sizeof events / sizeof *events; i++) {
        CDDPI_TRY(CUDA_CHECK(transport->device,
                             cudaEventCreateWithFlags(events[i], cudaEventDisableTiming)));
    }
    return CDDP_OK;
}

/* Create the streams, events and memory that only this rank uses. */
static cddp_status make_own(struct ipc_transport *transport)
{
    struct cddpi_device *device = transport->device;
    struct ipc_rank *me = &transport->block->ranks[transport->rank];
    cddp_status status;

    atomic_store(&me->arrived, ipc_sizes.start);
    atomic_store(&me->done, ipc_sizes.start);
    CDDPI_TRY(
        CUDA_CHECK(device, cudaHostRegister(transport->block, transport->block_bytes,
                                            cudaHostRegisterPortable | cudaHostRegisterMapped)));
    transport->registered = true;
    status = CUDA_CHECK(
        device, cudaHostGetDevicePointer((void **)&transport->block_device, transport->block, 0));
    if (status == CDDP_OK) {
        status = CUDA_CHECK(
            device, cudaStreamCreateWithFlags(&transport->side_stream, cudaStreamNonBlocking));
    }
    if (status == CDDP_OK) {
        status = make_events(transport);
    }
    transport->row = cddpi_align_to(transport->window / (size_t)transport->size, IPC_GRAIN) +
                     IPC_GRAIN;
    transport->row = transport->row < ipc_sizes.small ? ipc_sizes.small : transport->row;
    CDDPI_TRY(status);
    CDDPI_TRY(CUDA_CHECK(device, cudaMalloc((void **)&transport->scratch,
                                            transport->row * ((size_t)transport->size + 1))));
    return CUDA_CHECK(device, cudaMalloc((void **)&transport->weights,
                                         (size_t)transport->size * sizeof *transport->weights));
}

static cddp_status open_windows(struct ipc_transport *transport)
{
    size_t bytes = IPC_SLOTS * transport->window;

    if (!transport->staged) {
        return cddpi_ipc_share(transport, bytes, transport->windows);
    }
    for (int r = 0; r < transport->size; r++) {
        transport->windows[r] = (char *)transport->block + transport->block_bytes -
                                (size_t)(transport->size - r) * bytes;
    }
    return CDDP_OK;
}

/* Test access to the peers' memory: every rank writes a word into every rank's window, and reads
 * the words in the other windows. Memory that can be opened is not always accessible. */
static cddp_status write_words(struct ipc_transport *transport)
{
    cddp_status status = CDDP_OK;

    for (int r = 0; r < transport->size && status == CDDP_OK; r++) {
        uint64_t word = (uint64_t)transport->rank * 1000 + (uint64_t)r + 1;

        status = CUDA_CHECK(
            transport->device,
            cudaMemcpyAsync(transport->windows[r] + (size_t)transport->rank * sizeof word, &word,
                            sizeof word, cudaMemcpyDefault, transport->side_stream));
        if (status == CDDP_OK) {
            status = CUDA_CHECK(transport->device, cudaStreamSynchronize(transport->side_stream));
        }
    }
    return status;
}

static cddp_status read_words(struct ipc_transport *transport)
{
    cddp_status status = CDDP_OK;

    for (int r = 0; r < transport->size && status == CDDP_OK; r++) {
        uint64_t words[IPC_RANKS];

        status = CUDA_CHECK(transport->device,
                            cudaMemcpyAsync(words, transport->windows[r],
                                            (size_t)transport->size * sizeof *words,
                                            cudaMemcpyDefault, transport->side_stream));
        if (status == CDDP_OK) {
            status = CUDA_CHECK(transport->device, cudaStreamSynchronize(transport->side_stream));
        }
        for (int q = 0; q < transport->size && status == CDDP_OK; q++) {
            if (words[q] != (uint64_t)q * 1000 + (uint64_t)r + 1) {
                status = cddpi_transport_fail(
                    transport->device, CDDP_ERR_UNAVAILABLE,
                    "what rank %d wrote into the device memory of rank %d does not "
                    "reach device %s: peer access does not work on this machine",
                    q, r, transport->device->unique);
            }
        }
    }
    return status;
}

static cddp_status try_windows(struct ipc_transport *transport)
{
    cddp_status status = cddpi_transport_agree(&transport->params, write_words(transport));

    return status != CDDP_OK ? status
                             : cddpi_transport_agree(&transport->params, read_words(transport));
}

static const struct cddpi_device_transport_ops ops;

static cddp_status open_ranks(struct ipc_transport *transport)
{
    size_t header = cddpi_align_to(
        sizeof *transport->block + (size_t)transport->size * sizeof *transport->block->ranks, 4096);
    size_t windows = transport->staged ? IPC_SLOTS * ipc_sizes.staging : 0;
    cddp_status status = cddpi_transport_agree(
        &transport->params, cddpi_flags_find(transport->device, &transport->flags));

    if (status == CDDP_OK) {
        status = introduce(transport);
    }
    if (status != CDDP_OK) {
        return status;
    }
    transport->window = transport->staged ? ipc_sizes.staging : ipc_sizes.window;
    transport->block_bytes = header + (size_t)transport->size * windows;
    atomic_store(&transport->pieces, ipc_sizes.start);
    status = transport->params.shared(transport->params.context, transport->block_bytes,
                                      (void **)&transport->block);
    if (status != CDDP_OK) {
        transport->block = NULL;
        return status;
    }
    status = cddpi_transport_agree(&transport->params, make_own(transport));
    if (status == CDDP_OK) {
        status = open_windows(transport);
    }
    if (status == CDDP_OK && !transport->staged) {
        status = try_windows(transport);
    }
    if (status == CDDP_OK && !transport->staged) {
        status = cddpi_ipc_share(
            transport, cddpi_align_to(cddpi_p2p_area_bytes(transport->size), IPC_ALLOC_BYTES),
            transport->p2p_areas);
    }
    return status != CDDP_OK
               ? status
               : cddpi_p2p_open(&transport->params, transport->staged ? NULL : transport->p2p_areas,
                                &transport->p2p);
}

static cddp_status open_transport(const struct cddpi_device_open_params *params, bool staged,
                                  struct cddpi_device_transport **out)
{
    struct ipc_transport *transport = cddpi_transport_zalloc(params->device, sizeof *transport);
    cddp_status status = CDDP_OK;

    if (transport == NULL) {
        status = cddpi_transport_fail(params->device, CDDP_ERR_NO_MEMORY, "transport: no memory");
    } else {
        transport->base.ops = &ops;
        transport->params = *params;
        transport->device = params->device;
        transport->comm = cuda_device_stream(params->device, CDDPI_STREAM_COMM);
        transport->rank = params->rank;
        transport->size = params->world_size;
        transport->staged = staged;
        for (int r = 0; r < IPC_RANKS; r++) {
            transport->alive[r] = -1;
        }
    }
    if (params->world_size > 1) {
        status = cddpi_transport_agree(params, status);
        if (status == CDDP_OK) {
            status = open_ranks(transport);
        }
    }
    if (status != CDDP_OK) {
        return cddpi_transport_give_up(params->device, status,
                                       transport != NULL ? &transport->base : NULL);
    }
    *out = &transport->base;
    return CDDP_OK;
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
static bool can_end(const struct ipc_transport *transport, uint64_t pieces)
{
    for (int r = 0; r < transport->size; r++) {
        if (r != transport->rank && cddpi_ipc_read(transport, r, IPC_DONE) < pieces &&
            cddpi_ipc_gone(transport, r)) {
            return false;
        }
    }
    return true;
}

/* Let the work in progress end, if the peers do their part soon; else end all waits for them.
 * False: it still runs, because other work in the stream does not end. */
static bool end_work(struct ipc_transport *transport)
{
    uint64_t pieces = atomic_load(&transport->pieces);
    bool busy = true;

    if (transport->windows[transport->rank] == NULL) {
        return true; /* the transport is only partly built: it has no work */
    }
    for (int ms = 0; ms < GRACE_MS && busy && can_end(transport, pieces); ms++) {
        busy = !cddpi_transport_drain(transport->device, transport->comm, 1);
    }
    if (busy) {
        cddpi_ipc_abort(&transport->base, "left the group while work was under way");
    }
    return cddpi_transport_drain(transport->device, transport->comm, DRAIN_MS) &&
           cddpi_transport_drain(transport->device, transport->side_stream, DRAIN_MS);
}

/* Wait until no peer has this rank's memory open, for a limited time. */
static void wait_for_peers(const struct ipc_transport *transport)
{
    struct timespec pause = {0, 1000000};
    bool all = false;

    for (int ms = 0; ms < GRACE_MS && !all; ms++) {
        all = true;
        for (int r = 0; r < transport->size; r++) {
            all = all && (r == transport->rank || cddpi_ipc_gone(transport, r));
        }
        if (!all) {
            nanosleep(&pause, NULL);
        }
    }
}

static void close_memory(struct ipc_transport *transport)
{
    while (transport->segments != NULL) {
        cddpi_ipc_free(&transport->base, transport->segments->at[transport->rank]);
    }
    cddpi_ipc_close_retired(transport, true);
    cddpi_ipc_unshare(transport, transport->windows);
    cddpi_ipc_unshare(transport, transport->p2p_areas);
    atomic_store_explicit(&transport->block->ranks[transport->rank].left, 1, memory_order_release);
    wait_for_peers(transport);
    cddpi_ipc_free_retired(transport, true);
    (void)cudaFree(transport->windows[transport->rank]);
    (void)cudaFree(transport->p2p_areas[transport->rank]);
}

static void free_own(struct ipc_transport *transport)
{
    cudaEvent_t events[] = {NULL, NULL, NULL, NULL, NULL, NULL, NULL};

    memcpy(events, transport->copied_in, sizeof transport->copied_in);
    memcpy(events + IPC_SLOTS, transport->consumed, sizeof transport->consumed);
    events[2 * IPC_SLOTS] = transport->started;
    for (size_t i = 0; i < sizeof events / sizeof *events; i++) {
        if (events[i] != NULL) {
            (void)cudaEventDestroy(events[i]);
        }
    }
    if (transport->side_stream != NULL) {
        (void)cudaStreamDestroy(transport->side_stream);
    }
    (void)cudaFree(transport->scratch);
    (void)cudaFree(transport->weights);
    if (transport->registered) {
        (void)cudaHostUnregister(transport->block);
    }
    (void)cudaGetLastError(); /* if the device is lost, all of these calls fail */
}

static void close_transport(struct cddpi_device_transport *base)
{
    struct ipc_transport *transport = ipc_of(base);
    bool dry;

    if (transport == NULL) {
        return;
    }
    cddpi_transport_enter(transport->device);
    dry = transport->block == NULL || end_work(transport);
    dry = cddpi_p2p_close(transport->p2p) && dry;
    if (dry && transport->block != NULL && !transport->staged) {
        close_memory(transport);
    }
    if (transport->block != NULL) {
        atomic_store_explicit(&transport->block->ranks[transport->rank].left, 1,
                              memory_order_release);
    }
    if (dry) {
        free_own(transport);
    } else {
        cddpi_transport_warn(
            transport->device,
            "work on the device does not end: its memory stays until this process ends");
    }
    for (int r = 0; r < IPC_RANKS; r++) {
        if (transport->alive[r] >= 0) {
            close(transport->alive[r]);
        }
    }
    cddpi_transport_free(transport->device, transport);
}

/* One rank: the result is the input. */
static cddp_status alone(struct ipc_transport *transport, const struct cddpi_group_op *op)
{
    size_t bytes = op->count * cddp_type_bytes(op->type);

    if (op->weighted && op->weight == 0) {
        return CUDA_CHECK(transport->device, cudaMemsetAsync(op->out, 0, bytes, transport->comm));
    }
    return cddpi_ipc_copy(transport, transport->comm, op->out, op->in, bytes);
}

static cddp_status enqueue(struct cddpi_device_transport *base, const struct cddpi_group_op *op)
{
    struct ipc_transport *transport = ipc_of(base);
    cddp_status status = cddpi_ipc_ended(transport);

    if (status != CDDP_OK) {
        return status;
    }
    if (op->kind == CDDPI_BARRIER || op->kind == CDDPI_ALLOC || op->kind == CDDPI_SEND ||
        op->kind == CDDPI_RECV) {
        return cddpi_transport_refuse(transport->device, op);
    }
    if (op->count == 0) {
        return CDDP_OK;
    }
    if (transport->size == 1) {
        return alone(transport, op);
    }
    status = cddpi_ipc_is_zero_copy(transport, op) ? cddpi_ipc_zero_copy(transport, op)
                                                   : cddpi_ipc_chunked(transport, op);
    if (status != CDDP_OK) { /* the peers wait for work that was not enqueued */
        cddpi_ipc_abort(&transport->base, cddpi_transport_reason(transport->device));
    }
    return status;
}

static cddp_status message(struct cddpi_device_transport *base,
                           const struct cddpi_p2p_message *message)
{
    struct ipc_transport *transport = ipc_of(base);
    cddp_status status = cddpi_ipc_ended(transport);

    return status != CDDP_OK ? status : cddpi_p2p_start(transport->p2p, message);
}

/* No: the flags increase from one operation to the next, so a replay would find them already
 * reached. */
static bool can_capture(const struct cddpi_device_transport *base)
{
    const struct ipc_transport *transport = ipc_of_const(base);

    return transport->size == 1;
}

static void exits(struct cddpi_device_transport *base)
{
    struct ipc_transport *transport = ipc_of(base);

    atomic_store_explicit(&transport->block->ranks[transport->rank].left, 1, memory_order_release);
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
