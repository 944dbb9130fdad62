/* plane.c - the plane "nccl": opening, closing, and one operation after another. */
#include "group/nccl/nccl_plane.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How long close waits for the peers, who close about now, too. Then it ends without them. */
enum { GRACE_MS = 2000 };

struct intro {
    int32_t status; /* of finding the library */
    int32_t version;
    int32_t shares; /* devices may be shared, if all say so */
    char unique[48];
    char pci[16]; /* what NCCL tells devices apart by, parts of one among them (MIG) */
    char host[160];
    char text[CDDPI_PLANE_TEXT];
};

/* NCCL tells machines apart by this. */
static void name_host(char *out, size_t bytes)
{
    const char *id = getenv("NCCL_HOSTID");
    char boot[48] = "";
    char name[96] = "";
    FILE *file;

    if (id != NULL && id[0] != '\0') {
        snprintf(out, bytes, "%s", id);
        return;
    }
    (void)gethostname(name, sizeof name - 1);
    file = fopen("/proc/sys/kernel/random/boot_id", "re");
    if (file != NULL) {
        if (fgets(boot, sizeof boot, file) == NULL) {
            boot[0] = '\0';
        }
        fclose(file);
    }
    boot[strcspn(boot, "\n")] = '\0';
    snprintf(out, bytes, "%s %s", name, boot);
}

static void introduce(struct cddpi_plane *plane, struct intro *out)
{
    const char *shares = getenv("NCCL_MULTI_RANK_GPU_ENABLE");

    memset(out, 0, sizeof *out);
    out->status = cddpi_nccl_load(plane->device, &plane->nccl);
    if (out->status != CDDP_OK) {
        snprintf(out->text, sizeof out->text, "%s", cddpi_plane_last_error(plane->device));
    }
    out->version = plane->nccl.version;
    out->shares = shares != NULL && strcmp(shares, "1") == 0;
    snprintf(out->unique, sizeof out->unique, "%s", plane->device->unique);
    if (cudaDeviceGetPCIBusId(out->pci, sizeof out->pci, plane->device->index) != cudaSuccess) {
        (void)cudaGetLastError();
        out->pci[0] = '\0';
    }
    name_host(out->host, sizeof out->host);
}

static cddp_status compare_two(const struct cddpi_plane *plane, const struct intro *intros, int a,
                               int b)
{
    const struct intro *first = &intros[a];
    const struct intro *second = &intros[b];
    bool may_share = first->version >= NCCL_SHARES_DEVICES && first->shares && second->shares;
    bool same = strcmp(first->unique, second->unique) == 0 ||
                (first->pci[0] != '\0' && strcmp(first->pci, second->pci) == 0);
    char one[32];
    char two[32];

    cddpi_nccl_version_text(first->version, one, sizeof one);
    cddpi_nccl_version_text(second->version, two, sizeof two);
    if (first->version != second->version) {
        return cddpi_plane_fail(plane->device, CDDP_ERR_UNAVAILABLE,
                                "NCCL %s on rank %d but %s on rank %d: all ranks need the same",
                                one, a, two, b);
    }
    if (same && strcmp(first->host, second->host) == 0 && !may_share) {
        return cddpi_plane_fail(plane->device, CDDP_ERR_UNAVAILABLE,
                                "ranks %d and %d share the device %s (PCI %s): NCCL %s cannot do "
                                "that, use the ipc plane",
                                a, b, first->unique, first->pci, one);
    }
    return CDDP_OK;
}

/* What NCCL would find out by itself, in fewer words, or by hanging. */
static cddp_status compare(const struct cddpi_plane *plane, const struct intro *intros)
{
    cddp_status status = CDDP_OK;

    if (plane->size > NCCL_MOST_RANKS) {
        return cddpi_plane_fail(plane->device, CDDP_ERR_UNAVAILABLE,
                                "%d ranks: kernels here reduce those of at most %d", plane->size,
                                NCCL_MOST_RANKS);
    }
    for (int r = 0; r < plane->size; r++) {
        if (intros[r].status != CDDP_OK) {
            return cddpi_plane_fail(plane->device, (cddp_status)intros[r].status, "rank %d: %.*s",
                                    r, CDDPI_PLANE_TEXT - 1, intros[r].text);
        }
    }
    for (int b = 1; b < plane->size && status == CDDP_OK; b++) {
        for (int a = 0; a < b && status == CDDP_OK; a++) {
            status = compare_two(plane, intros, a, b);
        }
    }
    return status;
}

static cddp_status meet(struct cddpi_plane *plane)
{
    struct intro own;
    struct intro *all;
    cddp_status status;

    introduce(plane, &own);
    all = cddpi_plane_zalloc(plane->device, (size_t)plane->size * sizeof *all);
    status = all != NULL ? CDDP_OK
                         : cddpi_plane_fail(plane->device, CDDP_ERR_NO_MEMORY, "plane: no memory");
    status = cddpi_plane_agree(&plane->seat, status);
    if (status == CDDP_OK) {
        status = plane->seat.exchange(plane->seat.context, &own, sizeof own, all);
    }
    if (status == CDDP_OK) {
        status = compare(plane, all);
    }
    cddpi_plane_free(plane->device, all);
    return status;
}

static cddp_status make_memory(struct cddpi_plane *plane)
{
    struct cddpi_device *device = plane->device;
    size_t ranks = (size_t)plane->size;
    size_t one_hot_bytes = 2 * 16 * ranks;
    unsigned char one_hot[2 * 16 * NCCL_MOST_RANKS] = {0};
    float f32 = 1;
    double f64 = 1;
    cddp_status status;

    plane->row = NCCL_ROW_BYTES;
    plane->own_weight = (ranks + 1) / 2 * 2;
    memcpy(one_hot + (size_t)plane->rank * 16, &f32, sizeof f32);
    memcpy(one_hot + (ranks + (size_t)plane->rank) * 16, &f64, sizeof f64);
    status = CUDA_CHECK(device, cudaMalloc((void **)&plane->scratch, plane->row * (ranks + 1)));
    if (status == CDDP_OK) {
        status = CUDA_CHECK(device,
                            cudaMalloc((void **)&plane->weights, (plane->own_weight + 4) * 8));
    }
    if (status == CDDP_OK) {
        status = CUDA_CHECK(device, cudaMalloc(&plane->one_hot, one_hot_bytes));
    }
    if (status == CDDP_OK) {
        status = CUDA_CHECK(device, cudaMemcpyAsync(plane->one_hot, one_hot, one_hot_bytes,
                                                    cudaMemcpyHostToDevice, plane->stream));
    }
    if (status == CDDP_OK) {
        status = CUDA_CHECK(device, cudaStreamSynchronize(plane->stream));
    }
    *(void **)&plane->fill = cuda_driver_symbol("cuMemsetD32Async");
    if (status == CDDP_OK && plane->fill == NULL) {
        status = cuda_fail(device, CDDP_ERR_UNAVAILABLE, "the driver has no cuMemsetD32Async");
    }
    return status;
}

static void close_plane(struct cddpi_plane *plane);

static cddp_status open_ranks(struct cddpi_plane *plane)
{
    cddp_status status;

    if (pthread_mutex_init(&plane->mutex, NULL) == 0) {
        plane->has_mutex = true;
    }
    status = cddpi_plane_agree(
        &plane->seat, plane->has_mutex
                          ? CDDP_OK
                          : cddpi_plane_fail(plane->device, CDDP_ERR_NO_MEMORY, "plane: no mutex"));
    if (status == CDDP_OK) {
        status = meet(plane);
    }
    if (status == CDDP_OK) {
        status = cddpi_plane_agree(&plane->seat, make_memory(plane));
    }
    if (status == CDDP_OK) {
        status = cddpi_nccl_connect(plane);
    }
    return status != CDDP_OK || plane->size == 1
               ? status
               : cddpi_mail_open(&plane->seat, NULL, &plane->mail);
}

static cddp_status open_plane(const struct cddpi_plane_seat *seat, struct cddpi_plane **out)
{
    struct cddpi_plane *plane = cddpi_plane_zalloc(seat->device, sizeof *plane);
    cddp_status status = CDDP_OK;

    if (plane == NULL) {
        status = cddpi_plane_fail(seat->device, CDDP_ERR_NO_MEMORY, "plane: no memory");
    } else {
        plane->seat = *seat;
        plane->device = seat->device;
        plane->rank = seat->rank;
        plane->size = seat->world_size;
        plane->timeout_ms = seat->timeout_ms;
        plane->deterministic = seat->deterministic;
        plane->stream = cuda_device_stream(seat->device, CDDPI_STREAM_COMM);
    }
    status = cddpi_plane_agree(seat, status);
    if (status == CDDP_OK) {
        status = open_ranks(plane);
    }
    if (status != CDDP_OK) {
        return cddpi_plane_give_up(seat->device, status, close_plane, plane);
    }
    /* The group's watchdog has the same deadline, and knows who is missing: it comes first. */
    plane->timeout_ms += NCCL_LATER_MS;
    *out = plane;
    return CDDP_OK;
}

/* Work that is still under way ends, if the peers come soon; else it is aborted. False: it goes on
 * all the same, because something else in the stream does not end. */
static bool end_work(struct cddpi_plane *plane)
{
    if (plane->comm != NULL && !cddpi_plane_drain(plane->device, plane->stream, GRACE_MS)) {
        cddpi_nccl_abort(plane, "left the group while work was under way");
    }
    return cddpi_plane_drain(plane->device, plane->stream, NCCL_DRAIN_MS);
}

/* Let NCCL take leave of the peers: whether they all came to that. */
static bool finalize(struct cddpi_plane *plane)
{
    bool done;

    if (cddpi_nccl_enter(plane) != CDDP_OK) {
        return false;
    }
    plane->timeout_ms = GRACE_MS;
    done = NCCL_CALL(plane, finalize, plane->comm) == CDDP_OK;
    if (done) {
        cddpi_nccl_part(plane, plane->nccl.destroy, plane->comm);
        plane->comm = NULL;
    }
    cddpi_nccl_leave(plane);
    return done;
}

static void close_plane(struct cddpi_plane *plane)
{
    bool dry = true;

    if (plane == NULL) {
        return;
    }
    cddpi_plane_enter(plane->device);
    if (plane->has_mutex) {
        dry = end_work(plane);
        while (plane->blocks != NULL) {
            cddpi_nccl_free(plane, plane->blocks->memory);
        }
        if (!finalize(plane)) {
            cddpi_nccl_abort(plane, "left the group");
        }
        pthread_mutex_destroy(&plane->mutex);
    }
    (void)cddpi_mail_close(plane->mail);
    if (dry) {
        (void)cudaFree(plane->scratch);
        (void)cudaFree(plane->weights);
        (void)cudaFree(plane->one_hot);
        (void)cudaGetLastError(); /* after a lost device all of these fail */
    }
    cddpi_plane_free(plane->device, plane);
}

static bool is_captured(const struct cddpi_plane *plane)
{
    enum cudaStreamCaptureStatus state = cudaStreamCaptureStatusNone;

    return cudaStreamIsCapturing(plane->stream, &state) == cudaSuccess &&
           state != cudaStreamCaptureStatusNone;
}

/* In a recording: a failure is none of the plane's, the caller may go on without a recording. The
 * peers wait meanwhile to hear whether this rank could, so it takes half their time. */
static cddp_status record(struct cddpi_plane *plane, const struct cddpi_group_op *op)
{
    uint32_t whole = plane->timeout_ms;
    cddp_status status;

    plane->timeout_ms = whole / 2;
    status = cddpi_nccl_collective(plane, op);
    plane->timeout_ms = whole;
    if (status != CDDP_OK && status != CDDP_ERR_UNAVAILABLE) {
        atomic_store(&plane->spoilt, true);
        status = cddpi_plane_fail(plane->device, CDDP_ERR_UNAVAILABLE, "%s",
                                  cddpi_plane_last_error(plane->device));
    }
    return status;
}

static cddp_status enqueue(struct cddpi_plane *plane, const struct cddpi_group_op *op)
{
    cddp_status status = cddpi_nccl_enter(plane);
    bool captured;

    if (status != CDDP_OK) {
        return status;
    }
    captured = is_captured(plane);
    if (op->count > 0) {
        status = captured ? record(plane, op) : cddpi_nccl_collective(plane, op);
    }
    cddpi_nccl_leave(plane);
    if (status != CDDP_OK && status != CDDP_ERR_UNAVAILABLE) {
        cddpi_nccl_abort(plane, cddpi_plane_last_error(plane->device));
    }
    return status;
}

static cddp_status message(struct cddpi_plane *plane, const struct cddpi_plane_message *message)
{
    return cddpi_mail_post(plane->mail, message);
}

static cddp_status poll_plane(struct cddpi_plane *plane)
{
    cddp_status status = cddpi_nccl_poll(plane);

    return status != CDDP_OK ? status : cddpi_mail_advance(plane->mail);
}

static void abort_plane(struct cddpi_plane *plane, const char *reason)
{
    cddpi_mail_release(plane->mail);
    cddpi_nccl_abort(plane, reason);
}

/* As long as all ranks record and replay alike. A weighted operation keeps its weight. */
static bool records(const struct cddpi_plane *plane)
{
    (void)plane;
    return true;
}

const struct cddpi_plane_ops cddpi_nccl_plane = {.name = "nccl",
                                                 .open = open_plane,
                                                 .close = close_plane,
                                                 .enqueue = enqueue,
                                                 .message = message,
                                                 .poll = poll_plane,
                                                 .abort = abort_plane,
                                                 .alloc = cddpi_nccl_alloc,
                                                 .free_memory = cddpi_nccl_free,
                                                 .records = records,
                                                 .mend = cddpi_nccl_mend};
