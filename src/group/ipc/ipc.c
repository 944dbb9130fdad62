/* ipc.c - the planes "ipc" and "staged": opening, closing, and one operation after another. */
#include "group/ipc/ipc.h"

#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* How long close waits for peers to do their part of what is under way, and then to close what they
 * have open of this rank's memory. After that it ends the one, and frees the other all the same:
 * drivers keep pages that somebody maps, but NVIDIA does not promise it. */
enum { GRACE_MS = 1000 };

/* How long close waits for streams that nothing of the plane holds up any more. */
enum { DRAIN_MS = 10000 };

struct intro {
    int32_t pid;
};

static cddp_status check_here(struct cddpi_plane *plane)
{
    if (plane->size > IPC_RANKS) {
        return cddpi_plane_fail(plane->device, CDDP_ERR_UNAVAILABLE,
                                "%d ranks: kernels here reduce those of at most %d", plane->size,
                                IPC_RANKS);
    }
    if (plane->seat.local_world_size != plane->size) {
        return cddpi_plane_fail(plane->device, CDDP_ERR_UNAVAILABLE,
                                "the ranks are on several machines");
    }
    return cddpi_flags_find(plane->device, &plane->flags);
}

/* Who is there; processes are watched from here on. */
static cddp_status introduce(struct cddpi_plane *plane)
{
    struct intro own = {.pid = (int32_t)getpid()};
    struct intro all[IPC_RANKS];
    int pids[IPC_RANKS];
    cddp_status status = plane->seat.exchange(plane->seat.context, &own, sizeof own, all);

    for (int r = 0; r < plane->size && status == CDDP_OK; r++) {
        pids[r] = all[r].pid;
        for (int q = 0; q < r && status == CDDP_OK; q++) {
            if (pids[q] == pids[r]) { /* CUDA opens no handle in the process that made it */
                status = cddpi_plane_fail(plane->device, CDDP_ERR_UNAVAILABLE,
                                          "ranks %d and %d are in one process", q, r);
            }
        }
    }
    if (status == CDDP_OK) {
        cddpi_ipc_watch(plane, pids);
    }
    return status;
}

static cddp_status make_events(struct cddpi_plane *plane)
{
    cudaEvent_t *const events[] = {&plane->started, &plane->came[0], &plane->came[1],
                                   &plane->came[2], &plane->gone[0], &plane->gone[1],
                                   &plane->gone[2]};
    cddp_status status = CDDP_OK;

    for (size_t i = 0; i < sizeof events / sizeof *events && status == CDDP_OK; i++) {
        status = CUDA_CHECK(plane->device,
                            cudaEventCreateWithFlags(events[i], cudaEventDisableTiming));
    }
    return status;
}

/* What this rank needs for itself. */
static cddp_status make_own(struct cddpi_plane *plane)
{
    struct cddpi_device *device = plane->device;
    struct ipc_rank *me = &plane->block->ranks[plane->rank];
    cddp_status status;

    atomic_store(&me->arrived, ipc_sizes.start);
    atomic_store(&me->done, ipc_sizes.start);
    status = CUDA_CHECK(device,
                        cudaHostRegister(plane->block, plane->block_bytes,
                                         cudaHostRegisterPortable | cudaHostRegisterMapped));
    if (status != CDDP_OK) {
        return status;
    }
    plane->registered = true;
    status = CUDA_CHECK(device,
                        cudaHostGetDevicePointer((void **)&plane->block_device, plane->block, 0));
    if (status == CDDP_OK) {
        status = CUDA_CHECK(device, cudaStreamCreateWithFlags(&plane->side, cudaStreamNonBlocking));
    }
    if (status == CDDP_OK) {
        status = make_events(plane);
    }
    plane->row = ipc_round(plane->window / (size_t)plane->size, IPC_GRAIN) + IPC_GRAIN;
    plane->row = plane->row < ipc_sizes.small ? ipc_sizes.small : plane->row;
    if (status == CDDP_OK) {
        status = CUDA_CHECK(
            device, cudaMalloc((void **)&plane->scratch, plane->row * ((size_t)plane->size + 1)));
    }
    if (status == CDDP_OK) {
        status = CUDA_CHECK(device, cudaMalloc((void **)&plane->weights,
                                               (size_t)plane->size * sizeof *plane->weights));
    }
    return status;
}

static cddp_status open_windows(struct cddpi_plane *plane)
{
    size_t bytes = IPC_SLOTS * plane->window;

    if (!plane->staged) {
        return cddpi_ipc_share(plane, bytes, plane->windows);
    }
    for (int r = 0; r < plane->size; r++) {
        plane->windows[r] = (char *)plane->block + plane->block_bytes -
                            (size_t)(plane->size - r) * bytes;
    }
    return CDDP_OK;
}

/* Everyone writes a word into everyone's window, and reads those that came to the others: whether
 * memory can be opened says little about whether the way there works. */
static cddp_status write_words(struct cddpi_plane *plane)
{
    cddp_status status = CDDP_OK;

    for (int r = 0; r < plane->size && status == CDDP_OK; r++) {
        uint64_t word = (uint64_t)plane->rank * 1000 + (uint64_t)r + 1;

        status = CUDA_CHECK(plane->device,
                            cudaMemcpyAsync(plane->windows[r] + (size_t)plane->rank * sizeof word,
                                            &word, sizeof word, cudaMemcpyDefault, plane->side));
        if (status == CDDP_OK) {
            status = CUDA_CHECK(plane->device, cudaStreamSynchronize(plane->side));
        }
    }
    return status;
}

static cddp_status read_words(struct cddpi_plane *plane)
{
    cddp_status status = CDDP_OK;

    for (int r = 0; r < plane->size && status == CDDP_OK; r++) {
        uint64_t words[IPC_RANKS];

        status = CUDA_CHECK(plane->device, cudaMemcpyAsync(words, plane->windows[r],
                                                           (size_t)plane->size * sizeof *words,
                                                           cudaMemcpyDefault, plane->side));
        if (status == CDDP_OK) {
            status = CUDA_CHECK(plane->device, cudaStreamSynchronize(plane->side));
        }
        for (int q = 0; q < plane->size && status == CDDP_OK; q++) {
            if (words[q] != (uint64_t)q * 1000 + (uint64_t)r + 1) {
                status = cddpi_plane_fail(
                    plane->device, CDDP_ERR_UNAVAILABLE,
                    "what rank %d wrote into the device memory of rank %d does not "
                    "reach device %s: peer access does not work on this machine",
                    q, r, plane->device->unique);
            }
        }
    }
    return status;
}

static cddp_status try_windows(struct cddpi_plane *plane)
{
    cddp_status status = cddpi_plane_agree(&plane->seat, write_words(plane));

    return status != CDDP_OK ? status : cddpi_plane_agree(&plane->seat, read_words(plane));
}

static void close_plane(struct cddpi_plane *plane);

static cddp_status open_ranks(struct cddpi_plane *plane)
{
    size_t header = ipc_round(
        sizeof *plane->block + (size_t)plane->size * sizeof *plane->block->ranks, 4096);
    size_t windows = plane->staged ? IPC_SLOTS * ipc_sizes.staging : 0;
    cddp_status status = cddpi_plane_agree(&plane->seat, check_here(plane));

    if (status == CDDP_OK) {
        status = introduce(plane);
    }
    if (status != CDDP_OK) {
        return status;
    }
    plane->window = plane->staged ? ipc_sizes.staging : ipc_sizes.window;
    plane->block_bytes = header + (size_t)plane->size * windows;
    atomic_store(&plane->pieces, ipc_sizes.start);
    status = plane->seat.shared(plane->seat.context, plane->block_bytes, (void **)&plane->block);
    if (status != CDDP_OK) {
        plane->block = NULL;
        return status;
    }
    status = cddpi_plane_agree(&plane->seat, make_own(plane));
    if (status == CDDP_OK) {
        status = open_windows(plane);
    }
    if (status == CDDP_OK && !plane->staged) {
        status = try_windows(plane);
    }
    if (status == CDDP_OK && !plane->staged) {
        status = cddpi_ipc_share(plane,
                                 ipc_round(cddpi_mail_area_bytes(plane->size), IPC_ALLOC_BYTES),
                                 plane->mail_areas);
    }
    return status != CDDP_OK
               ? status
               : cddpi_mail_open(&plane->seat, plane->staged ? NULL : plane->mail_areas,
                                 &plane->mail);
}

static cddp_status open_plane(const struct cddpi_plane_seat *seat, bool staged,
                              struct cddpi_plane **out)
{
    struct cddpi_plane *plane = cddpi_plane_zalloc(seat->device, sizeof *plane);
    cddp_status status = CDDP_OK;

    if (plane == NULL) {
        status = cddpi_plane_fail(seat->device, CDDP_ERR_NO_MEMORY, "plane: no memory");
    } else {
        plane->seat = *seat;
        plane->device = seat->device;
        plane->comm = cuda_device_stream(seat->device, CDDPI_STREAM_COMM);
        plane->rank = seat->rank;
        plane->size = seat->world_size;
        plane->staged = staged;
        for (int r = 0; r < IPC_RANKS; r++) {
            plane->alive[r] = -1;
        }
    }
    if (seat->world_size > 1) {
        status = cddpi_plane_agree(seat, status);
        if (status == CDDP_OK) {
            status = open_ranks(plane);
        }
    }
    if (status != CDDP_OK) {
        return cddpi_plane_give_up(seat->device, status, close_plane, plane);
    }
    *out = plane;
    return CDDP_OK;
}

static cddp_status open_ipc(const struct cddpi_plane_seat *seat, struct cddpi_plane **out)
{
    return open_plane(seat, false, out);
}

static cddp_status open_staged(const struct cddpi_plane_seat *seat, struct cddpi_plane **out)
{
    return open_plane(seat, true, out);
}

/* Whether what is in the streams can still end by itself. */
static bool can_end(const struct cddpi_plane *plane, uint64_t pieces)
{
    for (int r = 0; r < plane->size; r++) {
        if (r != plane->rank && cddpi_ipc_read(plane, r, IPC_DONE) < pieces &&
            cddpi_ipc_gone(plane, r)) {
            return false;
        }
    }
    return true;
}

/* Work that is still under way ends, if the peers come soon; else all their waits do. False: it
 * goes on all the same, because something else in the stream does not end. */
static bool end_work(struct cddpi_plane *plane)
{
    uint64_t pieces = atomic_load(&plane->pieces);
    bool busy = true;

    if (plane->windows[plane->rank] == NULL) {
        return true; /* half-built: there was none */
    }
    for (int ms = 0; ms < GRACE_MS && busy && can_end(plane, pieces); ms++) {
        busy = !cddpi_plane_drain(plane->device, plane->comm, 1);
    }
    if (busy) {
        cddpi_ipc_abort(plane, "left the group while work was under way");
    }
    return cddpi_plane_drain(plane->device, plane->comm, DRAIN_MS) &&
           cddpi_plane_drain(plane->device, plane->side, DRAIN_MS);
}

/* Until no peer has this rank's memory open, or for a while. */
static void wait_for_peers(const struct cddpi_plane *plane)
{
    struct timespec pause = {0, 1000000};
    bool all = false;

    for (int ms = 0; ms < GRACE_MS && !all; ms++) {
        all = true;
        for (int r = 0; r < plane->size; r++) {
            all = all && (r == plane->rank || cddpi_ipc_gone(plane, r));
        }
        if (!all) {
            nanosleep(&pause, NULL);
        }
    }
}

static void close_memory(struct cddpi_plane *plane)
{
    while (plane->segments != NULL) {
        cddpi_ipc_free(plane, plane->segments->at[plane->rank]);
    }
    cddpi_ipc_close_retired(plane, true);
    cddpi_ipc_unshare(plane, plane->windows);
    cddpi_ipc_unshare(plane, plane->mail_areas);
    atomic_store_explicit(&plane->block->ranks[plane->rank].left, 1, memory_order_release);
    wait_for_peers(plane);
    cddpi_ipc_free_retired(plane, true);
    (void)cudaFree(plane->windows[plane->rank]);
    (void)cudaFree(plane->mail_areas[plane->rank]);
}

static void free_own(struct cddpi_plane *plane)
{
    cudaEvent_t events[] = {NULL, NULL, NULL, NULL, NULL, NULL, NULL};

    memcpy(events, plane->came, sizeof plane->came);
    memcpy(events + IPC_SLOTS, plane->gone, sizeof plane->gone);
    events[2 * IPC_SLOTS] = plane->started;
    for (size_t i = 0; i < sizeof events / sizeof *events; i++) {
        if (events[i] != NULL) {
            (void)cudaEventDestroy(events[i]);
        }
    }
    if (plane->side != NULL) {
        (void)cudaStreamDestroy(plane->side);
    }
    (void)cudaFree(plane->scratch);
    (void)cudaFree(plane->weights);
    if (plane->registered) {
        (void)cudaHostUnregister(plane->block);
    }
    (void)cudaGetLastError(); /* after a lost device all of these fail */
}

static void close_plane(struct cddpi_plane *plane)
{
    bool dry;

    if (plane == NULL) {
        return;
    }
    cddpi_plane_enter(plane->device);
    dry = plane->block == NULL || end_work(plane);
    dry = cddpi_mail_close(plane->mail) && dry;
    if (dry && plane->block != NULL && !plane->staged) {
        close_memory(plane);
    }
    if (plane->block != NULL) {
        atomic_store_explicit(&plane->block->ranks[plane->rank].left, 1, memory_order_release);
    }
    if (dry) {
        free_own(plane);
    } else {
        cddpi_plane_warn(
            plane->device,
            "work on the device does not end: its memory stays until this process ends");
    }
    for (int r = 0; r < IPC_RANKS; r++) {
        if (plane->alive[r] >= 0) {
            close(plane->alive[r]);
        }
    }
    cddpi_plane_free(plane->device, plane);
}

/* One rank: the result is the input. */
static cddp_status alone(struct cddpi_plane *plane, const struct cddpi_group_op *op)
{
    size_t bytes = op->count * cddp_type_bytes(op->type);

    if (op->weighted && op->weight == 0) {
        return CUDA_CHECK(plane->device, cudaMemsetAsync(op->out, 0, bytes, plane->comm));
    }
    return cddpi_ipc_copy(plane, plane->comm, op->out, op->in, bytes);
}

static cddp_status enqueue(struct cddpi_plane *plane, const struct cddpi_group_op *op)
{
    cddp_status status = cddpi_ipc_ended(plane);

    if (status != CDDP_OK) {
        return status;
    }
    if (op->kind == CDDPI_BARRIER || op->kind == CDDPI_ALLOC || op->kind == CDDPI_SEND ||
        op->kind == CDDPI_RECV) {
        return cddpi_plane_refuse(plane->device, op);
    }
    if (op->count == 0) {
        return CDDP_OK;
    }
    if (plane->size == 1) {
        return alone(plane, op);
    }
    status = cddpi_ipc_is_direct(plane, op) ? cddpi_ipc_direct(plane, op)
                                            : cddpi_ipc_windowed(plane, op);
    if (status != CDDP_OK) { /* the peers wait for what was not put into the stream */
        cddpi_ipc_abort(plane, cddpi_plane_last_error(plane->device));
    }
    return status;
}

static cddp_status message(struct cddpi_plane *plane, const struct cddpi_plane_message *message)
{
    cddp_status status = cddpi_ipc_ended(plane);

    return status != CDDP_OK ? status : cddpi_mail_post(plane->mail, message);
}

/* Flags count up from one operation to the next: a replay would find them reached. */
static bool records(const struct cddpi_plane *plane)
{
    return plane->size == 1;
}

const struct cddpi_plane_ops cddpi_ipc_plane = {.name = "ipc",
                                                .open = open_ipc,
                                                .close = close_plane,
                                                .enqueue = enqueue,
                                                .message = message,
                                                .poll = cddpi_ipc_poll,
                                                .abort = cddpi_ipc_abort,
                                                .alloc = cddpi_ipc_alloc,
                                                .free_memory = cddpi_ipc_free,
                                                .records = records};

const struct cddpi_plane_ops cddpi_staged_plane = {.name = "staged",
                                                   .open = open_staged,
                                                   .close = close_plane,
                                                   .enqueue = enqueue,
                                                   .message = message,
                                                   .poll = cddpi_ipc_poll,
                                                   .abort = cddpi_ipc_abort,
                                                   .alloc = cddpi_ipc_alloc,
                                                   .free_memory = cddpi_ipc_free,
                                                   .records = records};
