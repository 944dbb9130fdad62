/* nccl_call.c - owns calls of NCCL: which thread may make them, when they are done, and how they
 * are aborted. */
#include "group/cuda/nccl/nccl_transport.h"

#include <stdio.h>
#include <time.h>

/* How long an abort waits for a thread that is inside NCCL, and how long to wait for the
 * destruction of a communicator. */
enum { ABORT_PATIENCE_MS = 2000, RELEASE_MS = 5000 };

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void backoff(long us)
{
    struct timespec pause = {0, us * 1000};

    nanosleep(&pause, NULL);
}

static cddp_status closed(const struct nccl_transport *transport)
{
    return cddpi_transport_fail_rank(
        transport->device, CDDP_ERR_CLOSED, transport->rank, "%s",
        atomic_load(&transport->aborted) == 2 ? transport->reason : "the group was aborted");
}

cddp_status cddpi_nccl_enter(struct nccl_transport *transport)
{
    pthread_mutex_lock(&transport->mutex);
    if (atomic_load(&transport->aborted) != 0 || transport->comm == NULL) {
        pthread_mutex_unlock(&transport->mutex);
        return closed(transport);
    }
    return CDDP_OK;
}

void cddpi_nccl_leave(struct nccl_transport *transport)
{
    pthread_mutex_unlock(&transport->mutex);
}

/* Fail with NCCL's own text. */
static cddp_status failed(struct nccl_transport *transport, ncclResult_t result, const char *call)
{
    const char *why = transport->comm != NULL ? transport->nccl.last_error(transport->comm) : NULL;
    cddp_status status = result == ncclRemoteError ? CDDP_ERR_PEER : CDDP_ERR_DEVICE;
    char version[32];

    cddpi_nccl_version_text(transport->nccl.version, version, sizeof version);
    return cuda_fail(transport->device, status, "NCCL %s: %s: %s%s%s%s", version, call,
                     transport->nccl.error_string(result),
                     why != NULL && why[0] != '\0' ? " (" : "", why != NULL ? why : "",
                     why != NULL && why[0] != '\0' ? ")" : "");
}

/* Wait for a call that must wait for other ranks; mostly the first call of its kind, which connects
 * them. Before its end, no other call may be made and no work enqueued. */
cddp_status cddpi_nccl_await(struct nccl_transport *transport, ncclResult_t result,
                             const char *call)
{
    int64_t deadline = now_ms() + transport->timeout_ms;
    long us = 10;

    while (result == ncclInProgress) {
        ncclResult_t asked;

        pthread_mutex_unlock(&transport->mutex);
        backoff(us);
        us = us < 1000 ? us * 2 : us;
        pthread_mutex_lock(&transport->mutex);
        if (atomic_load(&transport->aborted) != 0 || transport->comm == NULL) {
            return closed(transport);
        }
        if (now_ms() > deadline) {
            return cuda_fail(transport->device, CDDP_ERR_TIMEOUT,
                             "NCCL: %s: still not begun after %u ms", call, transport->timeout_ms);
        }
        asked = transport->nccl.async_error(transport->comm, &result);
        if (asked != ncclSuccess) {
            result = asked;
        }
    }
    return result == ncclSuccess ? CDDP_OK : failed(transport, result, call);
}

cddp_status cddpi_nccl_poll(struct nccl_transport *transport)
{
    ncclResult_t result = ncclSuccess;
    ncclResult_t asked = ncclSuccess;
    cddp_status status = CDDP_OK;

    if (atomic_load(&transport->aborted) != 0) {
        return closed(transport);
    }
    if (pthread_mutex_trylock(&transport->mutex) != 0) {
        return CDDP_OK; /* the thread that is inside NCCL will see an error itself */
    }
    if (transport->comm != NULL && !atomic_load(&transport->suspect)) {
        asked = transport->nccl.async_error(transport->comm, &result);
        result = asked != ncclSuccess ? asked : result;
        if (result != ncclSuccess && result != ncclInProgress) {
            status = failed(transport, result, "a collective under way");
        }
    }
    pthread_mutex_unlock(&transport->mutex);
    return status;
}

/* The destruction or abort of a communicator, which runs in its own thread: it waits for NCCL's
 * threads, and for the end of all captured graphs with the communicator's work, which may never
 * end. */
struct release {
    const struct cddpi_module_host *host;
    __typeof__(ncclCommAbort) *call;
    ncclComm_t comm;
    int device;
    _Atomic bool done;
    _Atomic int users;
};

static void drop_farewell(struct release *release)
{
    if (atomic_fetch_sub(&release->users, 1) == 1) {
        release->host->free(release);
    }
}

static void *say_farewell(void *argument)
{
    struct release *release = argument;

    (void)cudaSetDevice(release->device);
    (void)release->call(release->comm);
    atomic_store(&release->done, true);
    drop_farewell(release);
    return NULL;
}

void cddpi_nccl_release_comm(struct nccl_transport *transport, __typeof__(ncclCommAbort) *call,
                             ncclComm_t comm)
{
    struct release *release = cddpi_transport_zalloc(transport->device, sizeof *release);
    int64_t deadline = now_ms() + RELEASE_MS;
    pthread_t thread;

    if (release != NULL) {
        release->host = cuda_device_of(transport->device)->host;
        release->call = call;
        release->comm = comm;
        release->device = transport->device->index;
        atomic_store(&release->users, 2);
    }
    if (release == NULL || pthread_create(&thread, NULL, say_farewell, release) != 0) {
        cddpi_transport_free(transport->device, release);
        cddpi_transport_enter(transport->device);
        (void)call(comm);
        return;
    }
    (void)pthread_detach(thread);
    while (!atomic_load(&release->done) && now_ms() < deadline) {
        backoff(1000);
    }
    if (!atomic_load(&release->done)) {
        cddpi_transport_warn(transport->device,
                             "NCCL does not release a communicator (is there a captured graph with "
                             "its operations?): what it holds stays until this process ends");
    }
    drop_farewell(release);
}

void cddpi_nccl_abort(struct nccl_transport *transport, const char *reason)
{
    int64_t deadline = now_ms() + ABORT_PATIENCE_MS;
    uint32_t none = 0;
    ncclComm_t comm;
    bool locked;

    if (!atomic_compare_exchange_strong(&transport->aborted, &none, 1)) {
        return;
    }
    snprintf(transport->reason, sizeof transport->reason, "%s", reason);
    atomic_store_explicit(&transport->aborted, 2, memory_order_release);
    while (!(locked = pthread_mutex_trylock(&transport->mutex) == 0) && now_ms() < deadline) {
        backoff(1000);
    }
    comm = transport->comm;
    transport->comm = NULL;
    if (locked) {
        pthread_mutex_unlock(&transport->mutex);
    }
    if (comm != NULL) {
        cddpi_nccl_release_comm(transport, transport->nccl.abort, comm);
    }
}
