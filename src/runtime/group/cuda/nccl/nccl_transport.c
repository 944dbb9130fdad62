/* nccl_transport.c - owns the transport "nccl": opens it, closes it, and runs its operations. */
#include "group/cuda/nccl/nccl_transport.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How long close waits for the peers, which close at about the same time. */
enum { GRACE_MS = 2000 };

struct nccl_transport_intro {
    int32_t version;
    int32_t shares; /* ranks may share devices, if all ranks allow it */
    char unique[48];
    char pci[16]; /* by which NCCL distinguishes devices, including parts of one device (MIG) */
    char host[160];
};

/* Write the name by which NCCL distinguishes machines. */
static void name_host(char *out, size_t bytes)
{
    const char *id = getenv("NCCL_HOSTID"); /* cddpi_nccl_tell_hosts() may have set it */
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

static void introduce(struct nccl_transport *transport, struct nccl_transport_intro *out)
{
    const char *shares = getenv("NCCL_MULTI_RANK_GPU_ENABLE");

    memset(out, 0, sizeof *out);
    out->version = transport->nccl.version;
    out->shares = shares != NULL && strcmp(shares, "1") == 0;
    snprintf(out->unique, sizeof out->unique, "%s", transport->device->unique);
    if (cudaDeviceGetPCIBusId(out->pci, sizeof out->pci, transport->device->index) != cudaSuccess) {
        (void)cudaGetLastError();
        out->pci[0] = '\0';
    }
    name_host(out->host, sizeof out->host);
}

static cddp_status compare_two(const struct nccl_transport *transport,
                               const struct nccl_transport_intro *intros, int a, int b)
{
    const struct nccl_transport_intro *first = &intros[a];
    const struct nccl_transport_intro *second = &intros[b];
    bool may_share = first->version >= NCCL_SHARES_DEVICES && first->shares && second->shares;
    bool same = strcmp(first->unique, second->unique) == 0 ||
                (first->pci[0] != '\0' && strcmp(first->pci, second->pci) == 0);
    char one[32];
    char two[32];

    cddpi_nccl_version_text(first->version, one, sizeof one);
    cddpi_nccl_version_text(second->version, two, sizeof two);
    if (first->version != second->version) {
        return cddpi_transport_fail(transport->device, CDDP_ERR_UNAVAILABLE,
                                    "NCCL %s on rank %d but %s on rank %d: all ranks need the same",
                                    one, a, two, b);
    }
    if (same && strcmp(first->host, second->host) == 0 && !may_share) {
        return cddpi_transport_fail(transport->device, CDDP_ERR_UNAVAILABLE,
                                    "ranks %d and %d share the device %s (PCI %s): NCCL %s cannot "
                                    "do that: set CDDP_BACKEND=ipc",
                                    a, b, first->unique, first->pci, one);
    }
    return CDDP_OK;
}

/* Detect errors that NCCL would report less clearly, or by hanging. */
static cddp_status compare(const struct nccl_transport *transport,
                           const struct nccl_transport_intro *intros)
{
    cddp_status status = CDDP_OK;

    for (int b = 1; b < transport->size && status == CDDP_OK; b++) {
        for (int a = 0; a < b && status == CDDP_OK; a++) {
            status = compare_two(transport, intros, a, b);
        }
    }
    return status;
}

static cddp_status join_ranks(struct nccl_transport *transport)
{
    struct nccl_transport_intro own;
    struct nccl_transport_intro *all;
    cddp_status status = cddpi_nccl_load(transport->device, &transport->nccl);

    introduce(transport, &own);
    all = cddpi_transport_zalloc(transport->device, (size_t)transport->size * sizeof *all);
    if (status == CDDP_OK && all == NULL) {
        status = cddpi_transport_fail(transport->device, CDDP_ERR_NO_MEMORY,
                                      "transport: no memory");
    }
    status = cddpi_transport_agree(&transport->params, status);
    if (status == CDDP_OK) {
        status = transport->params.exchange(transport->params.context, &own, sizeof own, all);
    }
    if (status == CDDP_OK) {
        status = compare(transport, all);
    }
    cddpi_transport_free(transport->device, all);
    return status;
}

static cddp_status make_memory(struct nccl_transport *transport)
{
    struct cddpi_device *device = transport->device;
    size_t ranks = (size_t)transport->size;
    size_t one_hot_bytes = 2 * 16 * ranks;
    unsigned char one_hot[2 * 16 * NCCL_MOST_RANKS] = {0};
    float f32 = 1;
    double f64 = 1;
    cddp_status status;

    transport->row = NCCL_ROW_BYTES;
    transport->own_weight = (ranks + 1) / 2 * 2;
    memcpy(one_hot + (size_t)transport->rank * 16, &f32, sizeof f32);
    memcpy(one_hot + (ranks + (size_t)transport->rank) * 16, &f64, sizeof f64);
    status = CUDA_CHECK(device,
                        cudaMalloc((void **)&transport->scratch, transport->row * (ranks + 1)));
    if (status == CDDP_OK) {
        status = CUDA_CHECK(
            device, cudaMalloc((void **)&transport->weights, (transport->own_weight + 4) * 8));
    }
    if (status == CDDP_OK) {
        status = CUDA_CHECK(device, cudaMalloc(&transport->one_hot, one_hot_bytes));
    }
    if (status == CDDP_OK) {
        status = CUDA_CHECK(device, cudaMemcpyAsync(transport->one_hot, one_hot, one_hot_bytes,
                                                    cudaMemcpyHostToDevice, transport->stream));
    }
    if (status == CDDP_OK) {
        status = CUDA_CHECK(device, cudaStreamSynchronize(transport->stream));
    }
    *(void **)&transport->fill = cuda_driver_symbol("cuMemsetD32Async");
    CDDPI_TRY(status);
    if (transport->fill == NULL) {
        return cuda_fail(device, CDDP_ERR_UNAVAILABLE, "the driver has no cuMemsetD32Async");
    }
    return CDDP_OK;
}

static const struct cddpi_device_transport_ops ops;

static cddp_status open_ranks(struct nccl_transport *transport)
{
    cddp_status status;

    if (pthread_mutex_init(&transport->mutex, NULL) == 0) {
        transport->has_mutex = true;
    }
    status = cddpi_transport_agree(
        &transport->params,
        transport->has_mutex
            ? CDDP_OK
            : cddpi_transport_fail(transport->device, CDDP_ERR_NO_MEMORY, "transport: no mutex"));
    if (status == CDDP_OK) {
        status = join_ranks(transport);
    }
    if (status == CDDP_OK) {
        status = cddpi_transport_agree(&transport->params, make_memory(transport));
    }
    if (status == CDDP_OK) {
        status = cddpi_nccl_connect(transport);
    }
    return status != CDDP_OK || transport->size == 1
               ? status
               : cddpi_p2p_open(&transport->params, NULL, &transport->p2p);
}

static cddp_status probe(const struct cddpi_device_open_params *params)
{
    struct nccl_library library;

    if (params->world_size > NCCL_MOST_RANKS) {
        return cddpi_transport_fail(params->device, CDDP_ERR_UNAVAILABLE,
                                    "%d ranks: kernels here reduce those of at most %d",
                                    params->world_size, NCCL_MOST_RANKS);
    }
    return cddpi_nccl_load(params->device, &library);
}

static cddp_status open_transport(const struct cddpi_device_open_params *params,
                                  struct cddpi_device_transport **out)
{
    struct nccl_transport *transport = cddpi_transport_zalloc(params->device, sizeof *transport);
    cddp_status status = CDDP_OK;

    if (transport == NULL) {
        status = cddpi_transport_fail(params->device, CDDP_ERR_NO_MEMORY, "transport: no memory");
    } else {
        transport->base.ops = &ops;
        transport->params = *params;
        transport->device = params->device;
        transport->rank = params->rank;
        transport->size = params->world_size;
        transport->timeout_ms = params->timeout_ms;
        transport->deterministic = params->deterministic;
        transport->stream = cuda_device_stream(params->device, CDDPI_STREAM_COMM);
        cddpi_nccl_tell_hosts(params);
        status = cddpi_nccl_load(transport->device, &transport->nccl);
    }
    status = cddpi_transport_agree(params, status);
    if (status == CDDP_OK) {
        status = open_ranks(transport);
    }
    if (status != CDDP_OK) {
        return cddpi_transport_give_up(params->device, status,
                                       transport != NULL ? &transport->base : NULL);
    }
    /* The group's watchdog has the same deadline, and can name the missing rank, so let it report
     * first.
     */
    transport->timeout_ms += NCCL_LATER_MS;
    *out = &transport->base;
    return CDDP_OK;
}

/* Let the work in progress end, if the peers do their part soon; else abort it. False: it still
 * runs, because other work in the stream does not end. */
static bool end_work(struct nccl_transport *transport)
{
    if (transport->comm != NULL &&
        !cddpi_transport_drain(transport->device, transport->stream, GRACE_MS)) {
        cddpi_nccl_abort(transport, "left the group while work was under way");
    }
    return cddpi_transport_drain(transport->device, transport->stream, NCCL_DRAIN_MS);
}

/* Let NCCL close the connections to the peers. Returns whether all peers did so in time. */
static bool finalize(struct nccl_transport *transport)
{
    bool done;

    if (cddpi_nccl_enter(transport) != CDDP_OK) {
        return false;
    }
    transport->timeout_ms = GRACE_MS;
    done = NCCL_CALL(transport, finalize, transport->comm) == CDDP_OK;
    if (done) {
        cddpi_nccl_release_comm(transport, transport->nccl.destroy, transport->comm);
        transport->comm = NULL;
    }
    cddpi_nccl_leave(transport);
    return done;
}

static void close_transport(struct cddpi_device_transport *base)
{
    struct nccl_transport *transport = nccl_of(base);
    bool dry = true;

    if (transport == NULL) {
        return;
    }
    cddpi_transport_enter(transport->device);
    if (transport->has_mutex) {
        dry = end_work(transport);
        while (transport->blocks != NULL) {
            cddpi_nccl_free(&transport->base, transport->blocks->memory);
        }
        if (!finalize(transport)) {
            cddpi_nccl_abort(transport, "left the group");
        }
        pthread_mutex_destroy(&transport->mutex);
    }
    (void)cddpi_p2p_close(transport->p2p);
    if (dry) {
        (void)cudaFree(transport->scratch);
        (void)cudaFree(transport->weights);
        (void)cudaFree(transport->one_hot);
        (void)cudaGetLastError(); /* if the device is lost, all of these calls fail */
    }
    cddpi_transport_free(transport->device, transport);
}

static bool is_captured(const struct nccl_transport *transport)
{
    enum cudaStreamCaptureStatus state = cudaStreamCaptureStatusNone;

    return cudaStreamIsCapturing(transport->stream, &state) == cudaSuccess &&
           state != cudaStreamCaptureStatusNone;
}

/* Enqueue during a capture. A failure does not end the transport: the caller may continue without a
 * capture. Meanwhile the peers wait for the result of this rank's capture, so this rank waits only
 * half their timeout. */
static cddp_status record(struct nccl_transport *transport, const struct cddpi_group_op *op)
{
    uint32_t whole = transport->timeout_ms;
    cddp_status status;

    transport->timeout_ms = whole / 2;
    status = cddpi_nccl_collective(transport, op);
    transport->timeout_ms = whole;
    if (status != CDDP_OK && status != CDDP_ERR_UNAVAILABLE) {
        atomic_store(&transport->suspect, true);
        status = cddpi_fail_again(CDDP_ERR_UNAVAILABLE, cddpi_last_failure());
    }
    return status;
}

static cddp_status enqueue(struct cddpi_device_transport *base, const struct cddpi_group_op *op)
{
    struct nccl_transport *transport = nccl_of(base);
    cddp_status status = cddpi_nccl_enter(transport);
    bool captured;

    if (status != CDDP_OK) {
        return status;
    }
    captured = is_captured(transport);
    if (op->count > 0) {
        status = captured ? record(transport, op) : cddpi_nccl_collective(transport, op);
    }
    cddpi_nccl_leave(transport);
    if (status != CDDP_OK && status != CDDP_ERR_UNAVAILABLE) {
        cddpi_nccl_abort(transport, cddpi_transport_reason(transport->device));
    }
    return status;
}

static cddp_status message(struct cddpi_device_transport *base,
                           const struct cddpi_p2p_message *message)
{
    struct nccl_transport *transport = nccl_of(base);

    return cddpi_p2p_start(transport->p2p, message);
}

static cddp_status poll_transport(struct cddpi_device_transport *base)
{
    struct nccl_transport *transport = nccl_of(base);
    cddp_status status = cddpi_nccl_poll(transport);

    return status != CDDP_OK ? status : cddpi_p2p_advance(transport->p2p);
}

static void abort_transport(struct cddpi_device_transport *base, const char *reason)
{
    struct nccl_transport *transport = nccl_of(base);

    cddpi_p2p_release(transport->p2p);
    cddpi_nccl_abort(transport, reason);
}

/* Correct as long as all ranks capture and replay the same operations. A captured operation keeps
 * its weight. */
static bool can_capture(const struct cddpi_device_transport *base)
{
    (void)base;
    return true;
}

static const struct cddpi_device_transport_ops ops = {.close = close_transport,
                                                      .enqueue = enqueue,
                                                      .message = message,
                                                      .poll = poll_transport,
                                                      .abort = abort_transport,
                                                      .alloc = cddpi_nccl_alloc,
                                                      .free_memory = cddpi_nccl_free,
                                                      .can_capture = can_capture,
                                                      .recover = cddpi_nccl_recover};

const struct cddpi_transport cddpi_nccl_transport = {
    .name = "nccl",
    .carries = CDDPI_MEMORY_DEVICE,
    .device = {.probe = probe, .open = open_transport}};
