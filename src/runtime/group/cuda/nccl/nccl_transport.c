/* nccl_transport.c - owns the transport "nccl": opens it, closes it, and runs its operations. */
#include "group/cuda/nccl/nccl_transport.h"
#include "base/log.h"
#include "kernels/cuda/cuda_kernels.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* How long close waits for the peers, which close at about the same time. */
enum { GRACE_MS = 2000 };

struct nccl_transport_intro {
    int32_t version;
    int32_t shares; /* ranks may share devices, if all ranks allow it */
    int32_t number; /* of the host */
    char unique[48];
    char pci[16]; /* by which NCCL distinguishes devices, including parts of one device (MIG) */
    char host[160];
};

/* Write the name by which NCCL distinguishes machines. */
static void name_host(char *out, size_t bytes)
{
    const char *id = getenv("NCCL_HOSTID"); /* tell_hosts() may have set it */
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

static void introduce(struct nccl_transport *nccl, struct nccl_transport_intro *out)
{
    const char *shares = getenv("NCCL_MULTI_RANK_GPU_ENABLE");

    memset(out, 0, sizeof *out);
    out->version = nccl->library.version;
    out->shares = shares != NULL && strcmp(shares, "1") == 0;
    snprintf(out->unique, sizeof out->unique, "%s", nccl->device->unique);
    if (cudaDeviceGetPCIBusId(out->pci, sizeof out->pci, nccl->device->index) != cudaSuccess) {
        (void)cudaGetLastError();
        out->pci[0] = '\0';
    }
    out->number = nccl->params.host;
    name_host(out->host, sizeof out->host);
}

static cddp_status compare_two(const struct nccl_transport_intro *intros, int a, int b)
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
        return cddpi_fail(CDDP_ERR_UNAVAILABLE,
                          "NCCL %s on rank %d but %s on rank %d: all ranks need the same", one, a,
                          two, b);
    }
    if (same && strcmp(first->host, second->host) == 0 && !may_share) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE,
                          "ranks %d and %d share the device %s (PCI %s): NCCL %s cannot "
                          "do that: set CDDP_BACKEND=ipc",
                          a, b, first->unique, first->pci, one);
    }
    return CDDP_OK;
}

/* Detect errors that NCCL would report less clearly, or by hanging. */
static cddp_status compare(const struct nccl_transport *nccl,
                           const struct nccl_transport_intro *intros)
{
    for (int b = 1; b < nccl->size; b++) {
        for (int a = 0; a < b; a++) {
            CDDPI_TRY(compare_two(intros, a, b));
        }
    }
    return CDDP_OK;
}

static cddp_status find_hosts(struct nccl_transport *nccl, const struct nccl_transport_intro *all)
{
    int32_t *numbers = cddpi_zalloc_array((size_t)nccl->size, sizeof *numbers);

    CDDPI_TRY_MEMORY(numbers != NULL, "transport: no memory");
    for (int r = 0; r < nccl->size; r++) {
        numbers[r] = all[r].number;
    }
    cddpi_nccl_find_hosts(nccl, numbers);
    cddpi_free(numbers);
    return CDDP_OK;
}

static cddp_status join_ranks(struct nccl_transport *nccl)
{
    struct nccl_transport_intro own;
    struct nccl_transport_intro *all;
    cddp_status status = cddpi_nccl_load(&nccl->library);

    introduce(nccl, &own);
    all = cddpi_zalloc((size_t)nccl->size * sizeof *all);
    if (status == CDDP_OK && all == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "transport: no memory");
    }
    status = cddpi_transport_agree(&nccl->params, status);
    if (status == CDDP_OK) {
        status = nccl->params.exchange(nccl->params.context, &own, sizeof own, all);
    }
    if (status == CDDP_OK) {
        status = compare(nccl, all);
    }
    if (status == CDDP_OK) {
        status = find_hosts(nccl, all);
    }
    cddpi_free(all);
    return status;
}

static cddp_status make_memory(struct nccl_transport *nccl)
{
    struct cddpi_device *device = nccl->device;
    size_t ranks = (size_t)nccl->size;
    double equal = 1.0 / nccl->size;
    size_t most = NCCL_SCRATCH_BYTES / ranks / NCCL_GRAIN * NCCL_GRAIN;

    nccl->transfers = cddpi_zalloc_array(ranks, sizeof *nccl->transfers);
    nccl->inputs = cddpi_zalloc_array(ranks, sizeof *nccl->inputs);
    CDDPI_TRY_MEMORY(nccl->transfers != NULL && nccl->inputs != NULL,
                     "transport: no memory for %d ranks", nccl->size);
    nccl->row = most < NCCL_ROW_BYTES ? most : NCCL_ROW_BYTES;
    nccl->own_weight = (ranks + 1) / 2 * 2;
    CDDPI_TRY(CUDA_CHECK(device, cudaMalloc((void **)&nccl->scratch,
                                            nccl->row * (ranks + 1 + (size_t)nccl->hosts))));
    CDDPI_TRY(CUDA_CHECK(device, cudaMalloc((void **)&nccl->weights, (nccl->own_weight + 6) * 8)));
    CDDPI_TRY(
        CUDA_CHECK(device, cudaMemcpyAsync(nccl->weights + nccl->own_weight + 4, &equal,
                                           sizeof equal, cudaMemcpyHostToDevice, nccl->stream)));
    CDDPI_TRY(CUDA_CHECK(device, cudaStreamSynchronize(nccl->stream)));
    *(void **)&nccl->fill = cuda_driver_symbol("cuMemsetD32Async");
    if (nccl->fill == NULL) {
        return cuda_fail(device, CDDP_ERR_UNAVAILABLE, "the driver has no cuMemsetD32Async");
    }
    return CDDP_OK;
}

/* NCCL takes its buffers at its first operations, from the driver, after everything else was
 * allocated: keep some memory for it. */
static void keep_memory(struct nccl_transport *nccl)
{
    size_t free_bytes;
    size_t total_bytes;

    if (nccl->size > 1 && cudaMemGetInfo(&free_bytes, &total_bytes) == cudaSuccess) {
        struct cuda_device *device = cuda_device_of(nccl->device);
        size_t most = total_bytes / 64;

        device->kept_bytes = most < NCCL_KEPT_BYTES ? most : NCCL_KEPT_BYTES;
        device->keepers++;
        nccl->keeps = true;
    }
}

static void keep_no_longer(struct nccl_transport *nccl)
{
    struct cuda_device *device = cuda_device_of(nccl->device);

    if (nccl->keeps && --device->keepers == 0) {
        device->kept_bytes = 0;
    }
    nccl->keeps = false;
}

/* Before one of NCCL's first operations: give it the memory that the pool holds but does not use.
 */
static void make_room(struct nccl_transport *nccl)
{
    struct cuda_device *device = cuda_device_of(nccl->device);
    size_t free_bytes;
    size_t total_bytes;

    if (!nccl->keeps || cuda_is_captured(nccl->stream)) {
        return;
    }
    if (++nccl->begun == NCCL_KEPT_OPS) {
        keep_no_longer(nccl);
    } else if (device->pool != NULL && cudaMemGetInfo(&free_bytes, &total_bytes) == cudaSuccess &&
               free_bytes < 4 * device->kept_bytes) {
        (void)cudaMemPoolTrimTo(device->pool, 0);
    }
}

static const struct cddpi_device_transport_ops ops;

static cddp_status open_ranks(struct nccl_transport *nccl)
{
    nccl->has_mutex = pthread_mutex_init(&nccl->mutex, NULL) == 0;
    CDDPI_TRY(cddpi_transport_agree(
        &nccl->params,
        nccl->has_mutex ? CDDP_OK : cddpi_fail(CDDP_ERR_NO_MEMORY, "transport: no mutex")));
    CDDPI_TRY(join_ranks(nccl));
    CDDPI_TRY(cddpi_transport_agree(&nccl->params, make_memory(nccl)));
    keep_memory(nccl);
    make_room(nccl);
    CDDPI_TRY(cddpi_nccl_connect(nccl));
    return nccl->size == 1 ? CDDP_OK : cddpi_p2p_open(&nccl->params, NULL, &nccl->p2p);
}

/* If ranks are on several hosts, tell NCCL through which network interfaces they reach each other,
 * all of them, since its data goes through these, too; and which ranks share a host. Never
 * overrides a variable that the user has set. Call it before NCCL's first call for a communicator.
 */
static void tell_hosts(const struct cddpi_device_open_params *params, int version)
{
    if (params->host_count > 1 && version < NCCL_REGISTERS_SAFELY) {
        if (params->rank == 0 && getenv("NCCL_LOCAL_REGISTER") == NULL) {
            cddpi_log(
                CDDPI_LOG_INFO,
                "NCCL before 2.32 may hang with registered memory between hosts: "
                "NCCL_LOCAL_REGISTER=0 and NCCL_GRAPH_REGISTER=0 from now on, for all of this "
                "process, unless they are set");
        }
        setenv("NCCL_LOCAL_REGISTER", "0", 0);
        setenv("NCCL_GRAPH_REGISTER", "0", 0);
    }
    if (params->host_count > 1 && params->interfaces != NULL) {
        setenv("NCCL_SOCKET_IFNAME", params->interfaces, 0); /* NCCL uses the same syntax */
    }
    if (params->host_count > 1 && params->host_id != NULL) {
        /* ranks that must not share memory must not share it in NCCL, either */
        setenv("NCCL_HOSTID", params->host_id, 0);
    }
}

static cddp_status probe(const struct cddpi_device_open_params *params)
{
    struct nccl_library library;

    if (params->deterministic && params->world_size > CDDPI_NCCL_ORDERED_RANKS) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE,
                          "%d ranks: sums in one order are made of at most %d "
                          "(ddp.deterministic = false has no such limit)",
                          params->world_size, CDDPI_NCCL_ORDERED_RANKS);
    }
    return cddpi_nccl_load(&library);
}

static cddp_status open_transport(const struct cddpi_device_open_params *params,
                                  struct cddpi_device_transport **out)
{
    struct nccl_transport *nccl = cddpi_zalloc(sizeof *nccl);
    cddp_status status = CDDP_OK;

    if (nccl == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "transport: no memory");
    } else {
        nccl->base.ops = &ops;
        nccl->params = *params;
        nccl->device = params->device;
        nccl->rank = params->rank;
        nccl->size = params->world_size;
        nccl->timeout_ms = params->timeout_ms;
        nccl->deterministic = params->deterministic;
        nccl->stream = cuda_device_stream(params->device, CDDPI_STREAM_COMM);
        status = cddpi_nccl_load(&nccl->library);
        tell_hosts(params, nccl->library.version);
    }
    status = cddpi_transport_agree(params, status);
    if (status == CDDP_OK) {
        status = open_ranks(nccl);
    }
    if (status == CDDP_OK) {
        /* The group's watchdog has the same deadline, and can name the missing rank, so let it
         * report first. */
        nccl->timeout_ms += NCCL_LATER_MS;
    }
    return cddpi_transport_opened(status, nccl, out);
}

/* Let NCCL close the connections to the peers. Returns whether all peers did so in time. */
static bool finalize(struct nccl_transport *nccl)
{
    bool done;

    if (cddpi_nccl_enter(nccl) != CDDP_OK) {
        return false;
    }
    nccl->timeout_ms = GRACE_MS;
    done = NCCL_CALL(nccl, finalize, nccl->comm) == CDDP_OK;
    if (done) {
        cddpi_nccl_release_comm(nccl, nccl->library.destroy, nccl->comm);
        nccl->comm = NULL;
    }
    cddpi_nccl_leave(nccl);
    return done;
}

static void close_transport(struct cddpi_device_transport *base)
{
    struct nccl_transport *nccl = nccl_of(base);
    bool dry = true;

    if (nccl == NULL) {
        return;
    }
    cddpi_transport_enter(nccl->device);
    keep_no_longer(nccl);
    if (nccl->has_mutex) {
        /* let the work in progress end, if the peers do their part soon; else abort it */
        if (nccl->comm != NULL && !cddpi_transport_drain(nccl->device, nccl->stream, GRACE_MS)) {
            cddpi_nccl_abort(nccl, "left the group while work was under way");
        }
        dry = cddpi_nccl_drain(nccl);
        while (nccl->blocks != NULL) {
            cddpi_nccl_free(&nccl->base, nccl->blocks->memory);
        }
        if (!finalize(nccl)) {
            cddpi_nccl_abort(nccl, "left the group");
        }
        pthread_mutex_destroy(&nccl->mutex);
    }
    (void)cddpi_p2p_close(nccl->p2p);
    if (dry) {
        (void)cudaFree(nccl->scratch);
        (void)cudaFree(nccl->weights);
        (void)cudaGetLastError(); /* if the device is lost, all of these calls fail */
    }
    cddpi_free(nccl->transfers);
    cddpi_free((void *)nccl->inputs);
    cddpi_free(nccl);
}

/* Enqueue during a capture. A failure does not end the transport: the caller may continue without a
 * capture. Meanwhile the peers wait for the result of this rank's capture, so this rank waits only
 * half their timeout. */
static cddp_status record(struct nccl_transport *nccl, const struct cddpi_group_op *op)
{
    uint32_t whole = nccl->timeout_ms;
    cddp_status status;

    nccl->timeout_ms = whole / 2;
    status = cddpi_nccl_collective(nccl, op);
    nccl->timeout_ms = whole;
    if (status != CDDP_OK && status != CDDP_ERR_UNAVAILABLE) {
        atomic_store(&nccl->suspect, true);
        status = cddpi_fail_again(CDDP_ERR_UNAVAILABLE, cddpi_last_failure());
    }
    return status;
}

static cddp_status enqueue(struct cddpi_device_transport *base, const struct cddpi_group_op *op)
{
    struct nccl_transport *nccl = nccl_of(base);
    cddp_status status = CDDP_OK;

    CDDPI_TRY(cddpi_nccl_enter(nccl));
    if (op->count > 0) {
        make_room(nccl);
        status = cuda_is_captured(nccl->stream) ? record(nccl, op)
                                                : cddpi_nccl_collective(nccl, op);
    }
    cddpi_nccl_leave(nccl);
    if (status != CDDP_OK && status != CDDP_ERR_UNAVAILABLE) {
        cddpi_nccl_abort(nccl, cddpi_transport_reason(nccl->device));
    }
    return status;
}

static cddp_status message(struct cddpi_device_transport *base,
                           const struct cddpi_p2p_message *message)
{
    return cddpi_p2p_start(nccl_of(base)->p2p, message);
}

static cddp_status poll_transport(struct cddpi_device_transport *base)
{
    struct nccl_transport *nccl = nccl_of(base);

    CDDPI_TRY(cddpi_nccl_poll(nccl));
    return cddpi_p2p_advance(nccl->p2p);
}

static void abort_transport(struct cddpi_device_transport *base, const char *reason)
{
    struct nccl_transport *nccl = nccl_of(base);

    cddpi_p2p_release(nccl->p2p);
    cddpi_nccl_abort(nccl, reason);
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
