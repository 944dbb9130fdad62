/* ipc_memory.c - owns device memory that all ranks of a machine have opened. */
#include "group/cuda/ipc/ipc.h"

#include <string.h>

struct ipc_memory_offer {
    cudaIpcMemHandle_t handle;
    char unique[48]; /* the device, for error texts */
};

/* Allocate zeroed memory of this rank, and get the handle with which peers open it. */
static cddp_status make_own(struct ipc_transport *ipc, size_t bytes, struct ipc_memory_offer *out,
                            char **at)
{
    struct cddpi_device *device = ipc->device;
    cudaError_t error = cudaMalloc((void **)at, bytes);

    if (error != cudaSuccess) {
        *at = NULL;
        return cddpi_cuda_status(device, error, "cudaMalloc", __FILE__, __LINE__);
    }
    memcpy(out->unique, device->unique, sizeof out->unique);
    CDDPI_TRY(CUDA_CHECK(device, cudaMemsetAsync(*at, 0, bytes, ipc->side_stream)));
    CDDPI_TRY(CUDA_CHECK(device, cudaStreamSynchronize(ipc->side_stream)));
    error = cudaIpcGetMemHandle(&out->handle, *at);
    if (error != cudaSuccess) {
        (void)cudaGetLastError();
        return cddpi_fail(CDDP_ERR_UNAVAILABLE,
                          "memory of device %s cannot be shared between processes: %s",
                          device->unique, cudaGetErrorString(error));
    }
    return CDDP_OK;
}

static cddp_status open_peers(struct ipc_transport *ipc, const struct ipc_memory_offer *offers,
                              char **at)
{
    for (int r = 0; r < ipc->size; r++) {
        cudaError_t error;

        if (r == ipc->rank) {
            continue;
        }
        error = cudaIpcOpenMemHandle((void **)&at[r], offers[r].handle,
                                     cudaIpcMemLazyEnablePeerAccess);
        if (error != cudaSuccess) {
            at[r] = NULL;
            (void)cudaGetLastError();
            return cddpi_fail(CDDP_ERR_UNAVAILABLE,
                              "device %s cannot reach the memory of rank %d on device %s: %s",
                              ipc->device->unique, r, offers[r].unique, cudaGetErrorString(error));
        }
    }
    return CDDP_OK;
}

cddp_status cddpi_ipc_share(struct ipc_transport *ipc, size_t bytes, char **out_at)
{
    struct ipc_memory_offer own;
    struct ipc_memory_offer offers[IPC_RANKS];
    char *at[IPC_RANKS] = {NULL};
    cddp_status status;

    memset(&own, 0, sizeof own);
    CDDPI_TRY_GOTO(failed, status,
                   cddpi_transport_agree(&ipc->params, make_own(ipc, bytes, &own, &at[ipc->rank])));
    CDDPI_TRY_GOTO(failed, status,
                   ipc->params.exchange(ipc->params.context, &own, sizeof own, offers));
    CDDPI_TRY_GOTO(failed, status,
                   cddpi_transport_agree(&ipc->params, open_peers(ipc, offers, at)));
    memcpy(out_at, at, (size_t)ipc->size * sizeof *at);
    return CDDP_OK;

failed:
    cddpi_ipc_unshare(ipc, at);
    (void)cudaFree(at[ipc->rank]);
    return status;
}

void cddpi_ipc_unshare(struct ipc_transport *ipc, char **at)
{
    for (int r = 0; r < ipc->size; r++) {
        if (r != ipc->rank && at[r] != NULL) {
            (void)cudaIpcCloseMemHandle(at[r]);
            at[r] = NULL;
        }
    }
    (void)cudaGetLastError(); /* otherwise the next check of a launch would report the error */
}

/* Allocate zeroed memory that is not shared with peers. */
static cddp_status alloc_plain(struct ipc_transport *ipc, size_t bytes, void **out)
{
    struct cddpi_device *device = ipc->device;
    cddp_status status;

    CDDPI_TRY(device->ops->alloc(device, bytes > 0 ? bytes : 1, "group memory", out));
    if (bytes == 0) {
        return CDDP_OK;
    }
    status = device->ops->clear(device, CDDPI_STREAM_COMPUTE, *out, bytes);
    if (status != CDDP_OK) {
        device->ops->release(device, *out);
    }
    return status;
}

static cddp_status alloc_shared(struct ipc_transport *ipc, size_t bytes, void **out)
{
    struct ipc_segment *segment = cddpi_zalloc(sizeof *segment);
    cddp_status status = CDDP_OK;

    if (segment == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "group_alloc: no memory");
    } else {
        status = CUDA_CHECK(ipc->device,
                            cudaEventCreateWithFlags(&segment->last_use, cudaEventDisableTiming));
    }
    status = cddpi_transport_agree(&ipc->params, status);
    if (status == CDDP_OK) {
        segment->bytes = bytes > 0 ? bytes : 1;
        status = cddpi_ipc_share(ipc, cddpi_align_to(segment->bytes, IPC_ALLOC_BYTES), segment->at);
    }
    if (status != CDDP_OK) {
        if (segment != NULL && segment->last_use != NULL) {
            (void)cudaEventDestroy(segment->last_use);
        }
        cddpi_free(segment);
        return status;
    }
    segment->id = ++ipc->last_segment;
    segment->next = ipc->segments;
    ipc->segments = segment;
    *out = segment->at[ipc->rank];
    return CDDP_OK;
}

cddp_status cddpi_ipc_alloc(struct cddpi_device_transport *base, size_t bytes, void **out)
{
    struct ipc_transport *ipc = ipc_of(base);
    cddp_status status;

    cddpi_transport_enter(ipc->device);
    if (ipc->block != NULL && !ipc->staged) {
        cddpi_ipc_close_retired(ipc, false);
        cddpi_ipc_free_retired(ipc, false);
        return alloc_shared(ipc, bytes, out);
    }
    status = alloc_plain(ipc, bytes, out);
    if (ipc->block != NULL) {
        cddp_status all = cddpi_transport_agree(&ipc->params, status);

        if (all != CDDP_OK && status == CDDP_OK) {
            ipc->device->ops->release(ipc->device, *out);
        }
        status = all;
    }
    return status;
}

const struct ipc_segment *cddpi_ipc_find(const struct ipc_transport *ipc, const void *data,
                                         size_t bytes)
{
    for (const struct ipc_segment *s = ipc->segments; s != NULL; s = s->next) {
        uintptr_t offset = (uintptr_t)data - (uintptr_t)s->at[ipc->rank];

        if (offset < s->bytes && bytes <= s->bytes - offset) {
            return s;
        }
    }
    return NULL;
}

void cddpi_ipc_free(struct cddpi_device_transport *base, void *memory)
{
    struct ipc_transport *ipc = ipc_of(base);
    struct ipc_segment **link = &ipc->segments;
    struct ipc_segment **end = &ipc->retired;
    struct ipc_segment *segment;

    cddpi_transport_enter(ipc->device);
    if (ipc->block == NULL || ipc->staged) {
        ipc->device->ops->release(ipc->device, memory);
        return;
    }
    while (*link != NULL && (*link)->at[ipc->rank] != memory) {
        link = &(*link)->next;
    }
    segment = *link;
    if (segment == NULL) {
        return;
    }
    *link = segment->next;
    while (*end != NULL) {
        end = &(*end)->next;
    }
    *end = segment;
    segment->next = NULL;
    (void)cudaEventRecord(segment->last_use, ipc->comm);
    cddpi_ipc_close_retired(ipc, false);
    cddpi_ipc_free_retired(ipc, false);
}

/* Whether all peers have closed block @p number, which CUDA requires before the block is freed. */
static bool closed_by_all(const struct ipc_transport *ipc, uint32_t number)
{
    for (int r = 0; r < ipc->size; r++) {
        if (r != ipc->rank && !cddpi_ipc_gone(ipc, r) &&
            atomic_load_explicit(&ipc->block->ranks[r].closed, memory_order_acquire) < number) {
            return false;
        }
    }
    return true;
}

void cddpi_ipc_close_retired(struct ipc_transport *ipc, bool all)
{
    for (struct ipc_segment *s = ipc->retired; s != NULL; s = s->next) {
        if (s->closed) {
            continue;
        }
        if (!all && cuda_asked(cudaEventQuery(s->last_use)) != cudaSuccess) {
            return;
        }
        cddpi_ipc_unshare(ipc, s->at);
        s->closed = true;
        atomic_fetch_add_explicit(&ipc->block->ranks[ipc->rank].closed, 1, memory_order_release);
    }
}

void cddpi_ipc_free_retired(struct ipc_transport *ipc, bool all)
{
    while (ipc->retired != NULL && ipc->retired->closed &&
           (all || closed_by_all(ipc, ipc->freed + 1))) {
        struct ipc_segment *segment = ipc->retired;

        ipc->retired = segment->next;
        ipc->freed++;
        (void)cudaFree(segment->at[ipc->rank]);
        (void)cudaEventDestroy(segment->last_use);
        (void)cudaGetLastError();
        cddpi_free(segment);
    }
}
