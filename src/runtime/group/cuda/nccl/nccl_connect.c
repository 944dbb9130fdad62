/* nccl_connect.c - looks up NCCL's functions, creates the communicator, and replaces it after a
 * failed call: a communicator then accepts no other call, even if the failed one was only part of a
 * capture or a registration. */
#include "group/cuda/nccl/nccl_transport.h"
#include "kernels/cuda/library.h"

#include <stdio.h>
#include <string.h>

void cddpi_nccl_version_text(int version, char *out, size_t bytes)
{
    snprintf(out, bytes, "%d.%d.%d", version / 10000, version / 100 % 100, version % 100);
}

static cddp_status look_up(struct nccl_library *nccl)
{
    char text[32];

#define LOOK_UP(member, symbol)                                                                    \
    *(void **)&nccl->member = cuda_library_symbol(nccl->handle, #symbol);                          \
    if (nccl->member == NULL) {                                                                    \
        return cddpi_fail(CDDP_ERR_UNAVAILABLE,                                                    \
                          "libnccl.so.2 has no " #symbol ": it is too old, or damaged");           \
    }
    NCCL_FUNCTIONS(LOOK_UP)
#undef LOOK_UP
    if (nccl->get_version(&nccl->version) != ncclSuccess || nccl->version < NCCL_OLDEST) {
        cddpi_nccl_version_text(nccl->version, text, sizeof text);
        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "NCCL %s is too old: 2.18 or later is needed",
                          text);
    }
#define LOOK_UP(member, symbol, since)                                                             \
    *(void **)&nccl->member = nccl->version >= (since)                                             \
                                  ? cuda_library_symbol(nccl->handle, #symbol)                     \
                                  : NULL;
    NCCL_NEWER_FUNCTIONS(LOOK_UP)
#undef LOOK_UP
    return CDDP_OK;
}

cddp_status cddpi_nccl_load(struct nccl_library *out)
{
    CDDPI_TRY(cuda_library_open(CUDA_LIBRARY_NCCL, &out->handle));
    return look_up(out);
}

static cddp_status share_id(struct nccl_transport *nccl, ncclUniqueId *out)
{
    ncclUniqueId own;
    ncclUniqueId *all = cddpi_zalloc_array((size_t)nccl->size, sizeof *all);
    ncclResult_t result = ncclSuccess;
    cddp_status status = CDDP_OK;

    memset(&own, 0, sizeof own);
    if (nccl->rank == 0) {
        result = nccl->library.get_unique_id(&own);
    }
    if (all == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "transport: no memory");
    } else if (result != ncclSuccess) {
        status = cddpi_fail(CDDP_ERR_DEVICE, "NCCL: no unique id: %s",
                            nccl->library.error_string(result));
    }
    status = cddpi_transport_agree(&nccl->params, status);
    if (status == CDDP_OK) {
        status = nccl->params.exchange(nccl->params.context, &own, sizeof own, all);
    }
    if (status == CDDP_OK) {
        *out = all[0];
    }
    cddpi_free(all);
    return status;
}

static cddp_status connect_ranks(struct nccl_transport *nccl, ncclUniqueId id)
{
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    ncclComm_t comm = NULL;
    ncclResult_t result;
    uint32_t whole = nccl->timeout_ms;
    cddp_status status;

    config.blocking = 0;
    pthread_mutex_lock(&nccl->mutex);
    result = nccl->library.init(&comm, nccl->size, id, nccl->rank, &config);
    nccl->comm = comm;
    if (comm == NULL && (result == ncclSuccess || result == ncclInProgress)) {
        result = ncclInternalError;
    }
    /* at most half the timeout, so that a rank that failed at once can still notify the ranks that
     * wait here */
    nccl->timeout_ms = whole / 2;
    status = cddpi_nccl_await(nccl, result, "making a communicator");
    nccl->timeout_ms = whole;
    pthread_mutex_unlock(&nccl->mutex);
    return status;
}

cddp_status cddpi_nccl_connect(struct nccl_transport *nccl)
{
    ncclUniqueId id;

    CDDPI_TRY(share_id(nccl, &id));
    return cddpi_transport_agree(&nccl->params, connect_ranks(nccl, id));
}

/* Release the communicator, and everything that was registered with it. */
static cddp_status retire(struct nccl_transport *nccl)
{
    ncclComm_t comm;
    cddp_status status = CDDP_OK;

    CDDPI_TRY(cddpi_nccl_enter(nccl)); /* fails if the group has ended in the meantime */
    comm = nccl->comm;
    nccl->comm = NULL;
    cddpi_nccl_leave(nccl);
    for (struct nccl_block *block = nccl->blocks; block != NULL; block = block->next) {
        block->registration = NULL;
        block->window = NULL;
    }
    if (!cddpi_nccl_drain(nccl)) {
        status = cddpi_fail(CDDP_ERR_TIMEOUT, "NCCL: work under way does not end");
    }
    cddpi_nccl_release_comm(nccl, nccl->library.abort, comm);
    return status;
}

cddp_status cddpi_nccl_any(struct nccl_transport *nccl, bool own, bool *out)
{
    uint8_t mine = own;
    uint8_t *all = cddpi_zalloc((size_t)nccl->size);
    cddp_status status = all != NULL ? CDDP_OK
                                     : cddpi_fail(CDDP_ERR_NO_MEMORY, "transport: no memory");

    status = cddpi_transport_agree(&nccl->params, status);
    if (status == CDDP_OK) {
        status = nccl->params.exchange(nccl->params.context, &mine, sizeof mine, all);
    }
    *out = own;
    for (int r = 0; r < nccl->size && status == CDDP_OK; r++) {
        *out = *out || all[r] != 0;
    }
    cddpi_free(all);
    return status;
}

cddp_status cddpi_nccl_recover(struct cddpi_device_transport *base)
{
    struct nccl_transport *nccl = nccl_of(base);
    bool any;

    CDDPI_TRY(cddpi_nccl_any(nccl, atomic_load(&nccl->suspect), &any));
    if (!any) {
        return CDDP_OK;
    }
    atomic_store(&nccl->suspect, true); /* poll no longer uses the communicator */
    cddpi_transport_enter(nccl->device);
    CDDPI_TRY(cddpi_transport_agree(&nccl->params, retire(nccl)));
    CDDPI_TRY(cddpi_nccl_connect(nccl));
    atomic_store(&nccl->suspect, false);
    return CDDP_OK;
}
