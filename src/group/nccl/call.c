/* call.c - NCCL's calls: who may make them, when they are over, and how they end early. */
#include "group/nccl/nccl_plane.h"

#include <stdio.h>
#include <time.h>

/* How long an abort waits for a thread that is inside NCCL, and how long anyone waits for a
 * communicator to go. */
enum { ABORT_PATIENCE_MS = 2000, FAREWELL_MS = 5000 };

static int64_t now_ms(void)
{
    struct timespec now;

    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static void nap(long us)
{
    struct timespec pause = {0, us * 1000};

    nanosleep(&pause, NULL);
}

static cddp_status closed(const struct cddpi_plane *plane)
{
    return cddpi_plane_fail(plane->device, CDDP_ERR_CLOSED, "rank %d: %s", plane->rank,
                            atomic_load(&plane->aborted) == 2 ? plane->reason
                                                              : "the group was aborted");
}

cddp_status cddpi_nccl_enter(struct cddpi_plane *plane)
{
    pthread_mutex_lock(&plane->mutex);
    if (atomic_load(&plane->aborted) != 0 || plane->comm == NULL) {
        pthread_mutex_unlock(&plane->mutex);
        return closed(plane);
    }
    return CDDP_OK;
}

void cddpi_nccl_leave(struct cddpi_plane *plane)
{
    pthread_mutex_unlock(&plane->mutex);
}

/* NCCL's own words. */
static cddp_status failed(struct cddpi_plane *plane, ncclResult_t result, const char *call)
{
    const char *why = plane->comm != NULL ? plane->nccl.last_error(plane->comm) : NULL;
    cddp_status status = result == ncclRemoteError ? CDDP_ERR_PEER : CDDP_ERR_DEVICE;
    char version[32];

    cddpi_nccl_version_text(plane->nccl.version, version, sizeof version);
    return cuda_fail(plane->device, status, "NCCL %s: %s: %s%s%s%s", version, call,
                     plane->nccl.error_string(result), why != NULL && why[0] != '\0' ? " (" : "",
                     why != NULL ? why : "", why != NULL && why[0] != '\0' ? ")" : "");
}

/* A call that has to wait for others, most of all the first of its kind, which connects them. No
 * other call may come before its end, nor work into the stream. */
cddp_status cddpi_nccl_settle(struct cddpi_plane *plane, ncclResult_t result, const char *call)
{
    int64_t deadline = now_ms() + plane->timeout_ms;
    long us = 10;

    while (result == ncclInProgress) {
        ncclResult_t asked;

        pthread_mutex_unlock(&plane->mutex);
        nap(us);
        us = us < 1000 ? us * 2 : us;
        pthread_mutex_lock(&plane->mutex);
        if (atomic_load(&plane->aborted) != 0 || plane->comm == NULL) {
            return closed(plane);
        }
        if (now_ms() > deadline) {
            return cuda_fail(plane->device, CDDP_ERR_TIMEOUT,
                             "NCCL: %s: still not begun after %u ms", call, plane->timeout_ms);
        }
        asked = plane->nccl.async_error(plane->comm, &result);
        if (asked != ncclSuccess) {
            result = asked;
        }
    }
    return result == ncclSuccess ? CDDP_OK : failed(plane, result, call);
}

cddp_status cddpi_nccl_poll(struct cddpi_plane *plane)
{
    ncclResult_t result = ncclSuccess;
    ncclResult_t asked = ncclSuccess;
    cddp_status status = CDDP_OK;

    if (atomic_load(&plane->aborted) != 0) {
        return closed(plane);
    }
    if (pthread_mutex_trylock(&plane->mutex) != 0) {
        return CDDP_OK; /* who is inside will see it */
    }
    if (plane->comm != NULL && !atomic_load(&plane->spoilt)) {
        asked = plane->nccl.async_error(plane->comm, &result);
        result = asked != ncclSuccess ? asked : result;
        if (result != ncclSuccess && result != ncclInProgress) {
            status = failed(plane, result, "a collective under way");
        }
    }
    pthread_mutex_unlock(&plane->mutex);
    return status;
}

/* Destroying or aborting a communicator, in a thread of its own: both wait for NCCL's threads, and
 * for the end of all recordings that hold its work, which may never come. */
struct farewell {
    const struct cddpi_module_host *host;
    __typeof__(ncclCommAbort) *call;
    ncclComm_t comm;
    int device;
    _Atomic bool done;
    _Atomic int users;
};

static void drop_farewell(struct farewell *farewell)
{
    if (atomic_fetch_sub(&farewell->users, 1) == 1) {
        farewell->host->free(farewell);
    }
}

static void *say_farewell(void *argument)
{
    struct farewell *farewell = argument;

    (void)cudaSetDevice(farewell->device);
    (void)farewell->call(farewell->comm);
    atomic_store(&farewell->done, true);
    drop_farewell(farewell);
    return NULL;
}

void cddpi_nccl_part(struct cddpi_plane *plane, __typeof__(ncclCommAbort) *call, ncclComm_t comm)
{
    struct farewell *farewell = cddpi_plane_zalloc(plane->device, sizeof *farewell);
    int64_t deadline = now_ms() + FAREWELL_MS;
    pthread_t thread;

    if (farewell != NULL) {
        farewell->host = cuda_device_of(plane->device)->host;
        farewell->call = call;
        farewell->comm = comm;
        farewell->device = plane->device->index;
        atomic_store(&farewell->users, 2);
    }
    if (farewell == NULL || pthread_create(&thread, NULL, say_farewell, farewell) != 0) {
        cddpi_plane_free(plane->device, farewell);
        cddpi_plane_enter(plane->device);
        (void)call(comm);
        return;
    }
    (void)pthread_detach(thread);
    while (!atomic_load(&farewell->done) && now_ms() < deadline) {
        nap(1000);
    }
    if (!atomic_load(&farewell->done)) {
        cddpi_plane_warn(plane->device,
                         "NCCL does not let go of a communicator (is there a recording with its "
                         "operations?): what it holds stays until this process ends");
    }
    drop_farewell(farewell);
}

void cddpi_nccl_abort(struct cddpi_plane *plane, const char *reason)
{
    int64_t deadline = now_ms() + ABORT_PATIENCE_MS;
    uint32_t none = 0;
    ncclComm_t comm;
    bool locked;

    if (!atomic_compare_exchange_strong(&plane->aborted, &none, 1)) {
        return;
    }
    snprintf(plane->reason, sizeof plane->reason, "%s", reason);
    atomic_store_explicit(&plane->aborted, 2, memory_order_release);
    while (!(locked = pthread_mutex_trylock(&plane->mutex) == 0) && now_ms() < deadline) {
        nap(1000);
    }
    comm = plane->comm;
    plane->comm = NULL;
    if (locked) {
        pthread_mutex_unlock(&plane->mutex);
    }
    if (comm != NULL) {
        cddpi_nccl_part(plane, plane->nccl.abort, comm);
    }
}
