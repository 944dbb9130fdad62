/* call.c - NCCL's calls: who may make them, when they are over, and how they end early. */
#include "group/nccl/nccl_plane.h"

#include <stdio.h>
#include <time.h>

/* How long an abort waits for a thread that is inside NCCL. */
enum { ABORT_PATIENCE_MS = 2000 };

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
    if (plane->comm != NULL) {
        asked = plane->nccl.async_error(plane->comm, &result);
        result = asked != ncclSuccess ? asked : result;
        if (result != ncclSuccess && result != ncclInProgress) {
            status = failed(plane, result, "a collective under way");
        }
    }
    pthread_mutex_unlock(&plane->mutex);
    return status;
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
    if (comm != NULL) {
        (void)cudaSetDevice(plane->device->index);
        (void)plane->nccl.abort(comm); /* may go on in the background: nobody asks after it */
    }
    if (locked) {
        pthread_mutex_unlock(&plane->mutex);
    }
}
