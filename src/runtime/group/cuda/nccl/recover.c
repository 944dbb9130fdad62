/* recover.c - creates the communicator, and replaces it after a failed call: a communicator then
 * accepts no other call, even if the failed one was only part of a capture or a registration. */
#include "group/cuda/nccl/nccl_transport.h"

#include <string.h>

static cddp_status share_id(struct nccl_transport *transport, ncclUniqueId *out)
{
    ncclUniqueId own;
    ncclUniqueId all[NCCL_MOST_RANKS];
    ncclResult_t result = ncclSuccess;
    cddp_status status = CDDP_OK;

    memset(&own, 0, sizeof own);
    if (transport->rank == 0) {
        result = transport->nccl.get_unique_id(&own);
        if (result != ncclSuccess) {
            status = cddpi_transport_fail(transport->device, CDDP_ERR_DEVICE,
                                          "NCCL: no unique id: %s",
                                          transport->nccl.error_string(result));
        }
    }
    status = cddpi_transport_agree(&transport->params, status);
    if (status == CDDP_OK) {
        status = transport->params.exchange(transport->params.context, &own, sizeof own, all);
        *out = all[0];
    }
    return status;
}

static cddp_status connect_ranks(struct nccl_transport *transport, ncclUniqueId id)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm = NULL;
    ncclResult_t result;

    config.blocking = 0;
    pthread_mutex_lock(&transport->mutex);
    result = transport->nccl.init(&comm, transport->size, id, transport->rank, &config);
    transport->comm = comm;
    if (comm == NULL && (result == ncclSuccess || result == ncclInProgress)) {
        result = ncclInternalError;
    }
    {
        /* at most half the timeout, so that a rank that failed at once can still notify the ranks
         * that wait here
         */
        uint32_t whole = transport->timeout_ms;
        cddp_status status;

        transport->timeout_ms = whole / 2;
        status = cddpi_nccl_await(transport, result, "making a communicator");
        transport->timeout_ms = whole;
        pthread_mutex_unlock(&transport->mutex);
        return status;
    }
}

cddp_status cddpi_nccl_connect(struct nccl_transport *transport)
{
    ncclUniqueId id;

    CDDPI_TRY(share_id(transport, &id));
    return cddpi_transport_agree(&transport->params, connect_ranks(transport, id));
}

/* Release the communicator, and everything that was registered with it. */
static cddp_status retire(struct nccl_transport *transport)
{
    ncclComm_t comm;
    cddp_status status = cddpi_nccl_enter(transport);

    if (status != CDDP_OK) {
        return status; /* the group has ended in the meantime */
    }
    comm = transport->comm;
    transport->comm = NULL;
    cddpi_nccl_leave(transport);
    for (struct nccl_block *block = transport->blocks; block != NULL; block = block->next) {
        block->registration = NULL;
        block->window = NULL;
    }
    if (!cddpi_transport_drain(transport->device, transport->stream, NCCL_DRAIN_MS)) {
        status = cddpi_transport_fail(transport->device, CDDP_ERR_TIMEOUT,
                                      "NCCL: work under way does not end");
    }
    cddpi_nccl_release_comm(transport, transport->nccl.abort, comm);
    return status;
}

cddp_status cddpi_nccl_recover(struct cddpi_device_transport *base)
{
    struct nccl_transport *transport = nccl_of(base);
    uint8_t suspect = atomic_load(&transport->suspect);
    uint8_t all[NCCL_MOST_RANKS];
    bool any = false;
    cddp_status status = transport->params.exchange(transport->params.context, &suspect,
                                                    sizeof suspect, all);

    for (int r = 0; r < transport->size && status == CDDP_OK; r++) {
        any = any || all[r] != 0;
    }
    if (status != CDDP_OK || !any) {
        return status;
    }
    atomic_store(&transport->suspect, true); /* poll no longer uses the communicator */
    cddpi_transport_enter(transport->device);
    CDDPI_TRY(cddpi_transport_agree(&transport->params, retire(transport)));
    CDDPI_TRY(cddpi_nccl_connect(transport));
    atomic_store(&transport->suspect, false);
    return CDDP_OK;
}
