/* nccl_call.c - owns calls of NCCL: which thread may make them, when they are done, and how they
 * are aborted. */
#include "base/clock.h"
#include "group/cuda/nccl/nccl_transport.h"

#include <stdio.h>
#include <time.h>

/* How long an abort waits for a thread that is inside NCCL, and how long to wait for the
 * destruction of a communicator. */
enum { ABORT_PATIENCE_MS = 2000, RELEASE_MS = 5000 };

static void backoff(long us)
{
    struct timespec pause = {0, us * 1000};

    nanosleep(&pause, NULL);
}

static cddp_status closed(const struct nccl_transport *nccl)
{
    return cddpi_fail_rank(CDDP_ERR_BROKEN, nccl->rank, "%s",
                           atomic_load(&nccl->aborted) == 2 ? nccl->reason
                                                            : "the group was aborted");
}

cddp_status cddpi_nccl_enter(struct nccl_transport *nccl)
{
    pthread_mutex_lock(&nccl->mutex);
    if (atomic_load(&nccl->aborted) != 0 || nccl->comm == NULL) {
        pthread_mutex_unlock(&nccl->mutex);
        return closed(nccl);
    }
    return CDDP_OK;
}

void cddpi_nccl_leave(struct nccl_transport *nccl)
{
    pthread_mutex_unlock(&nccl->mutex);
}

/* Fail with NCCL's own text. */
static cddp_status failed(struct nccl_transport *nccl, ncclResult_t result, const char *call)
{
    const char *why = nccl->comm != NULL ? nccl->library.last_error(nccl->comm) : NULL;
    cddp_status status = result == ncclRemoteError ? CDDP_ERR_PEER : CDDP_ERR_DEVICE;
    char version[32];

    cddpi_nccl_version_text(nccl->library.version, version, sizeof version);
    return cuda_fail(nccl->device, status, "NCCL %s: %s: %s%s%s%s", version, call,
                     nccl->library.error_string(result), why != NULL && why[0] != '\0' ? " (" : "",
                     why != NULL ? why : "", why != NULL && why[0] != '\0' ? ")" : "");
}

/* The state of the communicator: ncclInProgress while a call is at work in another thread. */
static ncclResult_t ask(struct nccl_transport *nccl)
{
    ncclResult_t result = ncclSuccess;
    ncclResult_t asked = nccl->library.async_error(nccl->comm, &result);

    return asked != ncclSuccess ? asked : result;
}

/* Wait for a call that must wait for other ranks; mostly the first call of its kind, which connects
 * them. Before its end, no other call may be made and no work enqueued. A call's own success is not
 * enough: from 2.28 on ncclCommWindowRegister() returns it while another thread still works. */
cddp_status cddpi_nccl_await(struct nccl_transport *nccl, ncclResult_t result, const char *call)
{
    int64_t deadline_ns = cddpi_deadline_ns(nccl->timeout_ms);
    long us = 10;

    if (result == ncclSuccess && atomic_load(&nccl->aborted) == 0 && nccl->comm != NULL) {
        result = ask(nccl);
    }
    while (result == ncclInProgress) {
        pthread_mutex_unlock(&nccl->mutex);
        backoff(us);
        us = us < 1000 ? us * 2 : us;
        pthread_mutex_lock(&nccl->mutex);
        if (atomic_load(&nccl->aborted) != 0 || nccl->comm == NULL) {
            return closed(nccl);
        }
        if (cddpi_now_ns() > deadline_ns) {
            return cuda_fail(nccl->device, CDDP_ERR_TIMEOUT,
                             "NCCL: %s: still not begun after %u ms", call, nccl->timeout_ms);
        }
        result = ask(nccl);
    }
    return result == ncclSuccess ? CDDP_OK : failed(nccl, result, call);
}

cddp_status cddpi_nccl_poll(struct nccl_transport *nccl)
{
    ncclResult_t result;
    cddp_status status = CDDP_OK;

    if (atomic_load(&nccl->aborted) != 0) {
        return closed(nccl);
    }
    if (pthread_mutex_trylock(&nccl->mutex) != 0) {
        return CDDP_OK; /* the thread that is inside NCCL will see an error itself */
    }
    if (nccl->comm != NULL && !atomic_load(&nccl->suspect)) {
        result = ask(nccl);
        if (result != ncclSuccess && result != ncclInProgress) {
            status = failed(nccl, result, "a collective under way");
        }
    }
    pthread_mutex_unlock(&nccl->mutex);
    return status;
}

/* The destruction or abort of a communicator, which runs in its own thread: it waits for NCCL's
 * threads, and for the end of all captured graphs with the communicator's work, which may never
 * end. */
struct release {
    __typeof__(ncclCommAbort) *call;
    ncclComm_t comm;
    int device;
    _Atomic bool done;
    _Atomic int users;
};

static void drop_farewell(struct release *release)
{
    if (atomic_fetch_sub(&release->users, 1) == 1) {
        cddpi_free(release);
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

void cddpi_nccl_release_comm(struct nccl_transport *nccl, __typeof__(ncclCommAbort) *call,
                             ncclComm_t comm)
{
    struct release *release = cddpi_zalloc(sizeof *release);
    int64_t deadline_ns = cddpi_deadline_ns(RELEASE_MS);
    pthread_t thread;

    if (release != NULL) {
        release->call = call;
        release->comm = comm;
        release->device = nccl->device->index;
        atomic_store(&release->users, 2);
    }
    if (release == NULL || pthread_create(&thread, NULL, say_farewell, release) != 0) {
        cddpi_free(release);
        cddpi_transport_enter(nccl->device);
        (void)call(comm);
        return;
    }
    (void)pthread_detach(thread);
    while (!atomic_load(&release->done) && cddpi_now_ns() < deadline_ns) {
        backoff(1000);
    }
    if (!atomic_load(&release->done)) {
        cddpi_transport_warn(nccl->device,
                             "NCCL does not release a communicator (is there a captured graph with "
                             "its operations?): what it holds stays until this process ends");
    }
    drop_farewell(release);
}

bool cddpi_nccl_drain(struct nccl_transport *nccl)
{
    bool was_stuck = nccl->stuck;

    nccl->stuck = !cddpi_transport_drain(nccl->device, nccl->stream, was_stuck ? 0 : NCCL_DRAIN_MS);
    if (nccl->stuck && !was_stuck) {
        cuda_doubt(nccl->device);
        cddpi_transport_warn(nccl->device, "work on the device does not end: memory of the group "
                                           "stays until this process ends");
    }
    return !nccl->stuck;
}

void cddpi_nccl_abort(struct nccl_transport *nccl, const char *reason)
{
    int64_t deadline_ns = cddpi_deadline_ns(ABORT_PATIENCE_MS);
    uint32_t none = 0;
    ncclComm_t comm;
    bool locked;

    if (!atomic_compare_exchange_strong(&nccl->aborted, &none, 1)) {
        return;
    }
    cuda_doubt(nccl->device); /* NCCL from 2.28 on has kernels that no abort ends */
    snprintf(nccl->reason, sizeof nccl->reason, "%s", reason);
    atomic_store_explicit(&nccl->aborted, 2, memory_order_release);
    while (!(locked = pthread_mutex_trylock(&nccl->mutex) == 0) && cddpi_now_ns() < deadline_ns) {
        backoff(1000);
    }
    comm = nccl->comm;
    nccl->comm = NULL;
    if (locked) {
        pthread_mutex_unlock(&nccl->mutex);
    }
    if (comm != NULL) {
        cddpi_nccl_release_comm(nccl, nccl->library.abort, comm);
    }
}
