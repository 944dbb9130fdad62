/* mend.c - making the communicator, and making it anew: one in which a call has failed takes no
 * other, even where what failed was only to be recorded, or to make things faster. */
#include "group/nccl/nccl_plane.h"

#include <string.h>

static cddp_status share_id(struct cddpi_plane *plane, ncclUniqueId *out)
{
    ncclUniqueId own;
    ncclUniqueId all[NCCL_MOST_RANKS];
    ncclResult_t result = ncclSuccess;
    cddp_status status = CDDP_OK;

    memset(&own, 0, sizeof own);
    if (plane->rank == 0) {
        result = plane->nccl.get_unique_id(&own);
        if (result != ncclSuccess) {
            status = cddpi_plane_fail(plane->device, CDDP_ERR_DEVICE, "NCCL: no unique id: %s",
                                      plane->nccl.error_string(result));
        }
    }
    status = cddpi_plane_agree(&plane->seat, status);
    if (status == CDDP_OK) {
        status = plane->seat.exchange(plane->seat.context, &own, sizeof own, all);
        *out = all[0];
    }
    return status;
}

static cddp_status connect_ranks(struct cddpi_plane *plane, ncclUniqueId id)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm = NULL;
    ncclResult_t result;

    config.blocking = 0;
    pthread_mutex_lock(&plane->mutex);
    result = plane->nccl.init(&comm, plane->size, id, plane->rank, &config);
    plane->comm = comm;
    if (comm == NULL && (result == ncclSuccess || result == ncclInProgress)) {
        result = ncclInternalError;
    }
    {
        /* half the time, so that ranks that failed at once can still tell those that wait here */
        uint32_t whole = plane->timeout_ms;
        cddp_status status;

        plane->timeout_ms = whole / 2;
        status = cddpi_nccl_settle(plane, result, "making a communicator");
        plane->timeout_ms = whole;
        pthread_mutex_unlock(&plane->mutex);
        return status;
    }
}

cddp_status cddpi_nccl_connect(struct cddpi_plane *plane)
{
    ncclUniqueId id;
    cddp_status status = share_id(plane, &id);

    return status == CDDP_OK ? cddpi_plane_agree(&plane->seat, connect_ranks(plane, id)) : status;
}

/* Let go of the communicator, and of what was registered with it. */
static cddp_status retire(struct cddpi_plane *plane)
{
    ncclComm_t comm;
    cddp_status status = cddpi_nccl_enter(plane);

    if (status != CDDP_OK) {
        return status; /* the group has ended meanwhile */
    }
    comm = plane->comm;
    plane->comm = NULL;
    cddpi_nccl_leave(plane);
    for (struct nccl_block *block = plane->blocks; block != NULL; block = block->next) {
        block->registration = NULL;
        block->window = NULL;
    }
    if (!cddpi_plane_drain(plane->device, plane->stream, NCCL_DRAIN_MS)) {
        status = cddpi_plane_fail(plane->device, CDDP_ERR_TIMEOUT,
                                  "NCCL: work under way does not end");
    }
    cddpi_nccl_part(plane, plane->nccl.abort, comm);
    return status;
}

cddp_status cddpi_nccl_mend(struct cddpi_plane *plane)
{
    uint8_t spoilt = atomic_load(&plane->spoilt);
    uint8_t all[NCCL_MOST_RANKS];
    bool any = false;
    cddp_status status = plane->seat.exchange(plane->seat.context, &spoilt, sizeof spoilt, all);

    for (int r = 0; r < plane->size && status == CDDP_OK; r++) {
        any = any || all[r] != 0;
    }
    if (status != CDDP_OK || !any) {
        return status;
    }
    atomic_store(&plane->spoilt, true); /* nobody asks it any more */
    cddpi_plane_enter(plane->device);
    status = cddpi_plane_agree(&plane->seat, retire(plane));
    if (status == CDDP_OK) {
        status = cddpi_nccl_connect(plane);
    }
    if (status == CDDP_OK) {
        atomic_store(&plane->spoilt, false);
    }
    return status;
}
