/* ipc_memory.c - owns device memory that all ranks of a machine have opened. */
#include "base/alloc.h"
#include "group/cuda/ipc/ipc.h"

#include <string.h>

struct ipc_memory_offer {
    cudaIpcMemHandle_t handle;
    char unique[48]; /* the device, for error texts */
};

/* Allocate zeroed memory of this rank, and get the handle with which peers open it. */
static cddp_status make_own(struct ipc_transport *transport, size_t bytes,
                            struct ipc_memory_offer *out, char **at)
{
    struct cddpi_device *device = transport->device;
    cudaError_t error = cudaMalloc((void **)at, bytes);
    cddp_status status;

    if (error != cudaSuccess) {
        *at = NULL;
        return cuda_failed_call(device, error, "cudaMalloc", __FILE__, __LINE__);
    }
    memcpy(out->unique, device->unique, sizeof out->unique);
    status = CUDA_CHECK(device, cudaMemsetAsync(*at, 0, bytes, transport->side_stream));
    if (status == CDDP_OK) {
        status = CUDA_CHECK(device, cudaStreamSynchronize(transport->side_stream));
    }
    if (status == CDDP_OK) {
        error = cudaIpcGetMemHandle(&out->handle, *at);
        if (error != cudaSuccess) {
            (void)cudaGetLastError();
            return cddpi_transport_fail(
                transport->device, CDDP_ERR_UNAVAILABLE,
                "memory of device %s cannot be shared between processes: %s", device->unique,
                cudaGetErrorString(error));
        }
    }
    return status;
}

static cddp_status open_peers(struct ipc_transport *transport,
                              const struct ipc_memory_offer *offers, char **at)
{
    for (int r = 0; r < transport->size; r++) {
        cudaError_t error;

        if (r == transport->rank) {
            continue;
        }
        error = cudaIpcOpenMemHandle((void **)&at[r], offers[r].handle,
                                     cudaIpcMemLazyEnablePeerAccess);
        if (error != cudaSuccess) {
            at[r] = NULL;
            (void)cudaGetLastError();
            return cddpi_transport_fail(
                transport->device, CDDP_ERR_UNAVAILABLE,
                "device %s cannot reach the memory of rank %d on device %s: %s",
                transport->device->unique, r, offers[r].unique, cudaGetErrorString(error));
        }
    }
    return CDDP_OK;
}

cddp_status cddpi_ipc_share(struct ipc_transport *transport, size_t bytes, char **out_at)
{
    struct ipc_memory_offer own;
    struct ipc_memory_offer offers[IPC_RANKS];
    char *at[IPC_RANKS] = {NULL};
    cddp_status status;

    memset(&own, 0, sizeof own);
    status = make_own(transport, bytes, &own, &at[transport->rank]);
    status = cddpi_transport_agree(&transport->params, status);
    if (status == CDDP_OK) {
        status = transport->params.exchange(transport->params.context, &own, sizeof own, offers);
    }
    if (status == CDDP_OK) {
        status = cddpi_transport_agree(&transport->params, open_peers(transport, offers, at));
    }
    if (status != CDDP_OK) {
        cddpi_ipc_unshare(transport, at);
        if (at[transport->rank] != NULL) {
            (void)cudaFree(at[transport->rank]);
        }
        return status;
    }
    memcpy(out_at, at, (size_t)transport->size * sizeof *at);
    return CDDP_OK;
}

void cddpi_ipc_unshare(struct ipc_transport *transport, char **at)
{
    for (int r = 0; r < transport->size; r++) {
        if (r != transport->rank && at[r] != NULL) {
            (void)cudaIpcCloseMemHandle(at[r]);
            at[r] = NULL;
        }
    }
    (void)cudaGetLastError(); /* otherwise the next check of a launch would report the error */
}

/* Allocate zeroed memory that is not shared with peers. */
static cddp_status alloc_plain(struct ipc_transport *transport, size_t bytes, void **out)
{
    struct cddpi_device *device = transport->device;
    cddp_status status = device->ops->alloc(device, bytes > 0 ? bytes : 1, "group memory", out);

    if (status != CDDP_OK || bytes == 0) {
        return status;
    }
    status = device->ops->clear(device, CDDPI_STREAM_COMPUTE, *out, bytes);
    if (status != CDDP_OK) {
        device->ops->release(device, *out);
    }
    return status;
}

static cddp_status alloc_shared(struct ipc_transport *transport, size_t bytes, void **out)
{
    struct ipc_segment *segment = cddpi_transport_zalloc(transport->device, sizeof *segment);
    cddp_status status = CDDP_OK;

    if (segment == NULL) {
        status = cddpi_transport_fail(transport->device, CDDP_ERR_NO_MEMORY,
                                      "group_alloc: no memory");
    } else {
        status = CUDA_CHECK(transport->device,
                            cudaEventCreateWithFlags(&segment->last_use, cudaEventDisableTiming));
    }
    status = cddpi_transport_agree(&transport->params, status);
    if (status == CDDP_OK) {
        segment->bytes = bytes > 0 ? bytes : 1;
        status = cddpi_ipc_share(transport, cddpi_align_to(segment->bytes, IPC_ALLOC_BYTES),
                                 segment->at);
    }
    if (status != CDDP_OK) {
        if (segment != NULL && segment->last_use != NULL) {
            (void)cudaEventDestroy(segment->last_use);
        }
        cddpi_transport_free(transport->device, segment);
        return status;
    }
    segment->id = ++transport->last_segment;
    segment->next = transport->segments;
    transport->segments = segment;
    *out = segment->at[transport->rank];
    return CDDP_OK;
}

cddp_status cddpi_ipc_alloc(struct cddpi_device_transport *base, size_t bytes, void **out)
{
    struct ipc_transport *transport = ipc_of(base);
    cddp_status status;

    cddpi_transport_enter(transport->device);
    if (transport->block != NULL && !transport->staged) {
        cddpi_ipc_close_retired(transport, false);
        cddpi_ipc_free_retired(transport, false);
        return alloc_shared(transport, bytes, out);
    }
    status = alloc_plain(transport, bytes, out);
    if (transport->block != NULL) {
        cddp_status all = cddpi_transport_agree(&transport->params, status);

        if (all != CDDP_OK && status == CDDP_OK) {
            transport->device->ops->release(transport->device, *out);
        }
        status = all;
    }
    return status;
}

const struct ipc_segment *cddpi_ipc_find(const struct ipc_transport *transport, const void *data,
                                         size_t bytes)
{
    for (const struct ipc_segment *s = transport->segments; s != NULL; s = s->next) {
        uintptr_t offset = (uintptr_t)data - (uintptr_t)s->at[transport->rank];

        if (offset < s->bytes && bytes <= s->bytes - offset) {
            return s;
        }
    }
    return NULL;
}

void cddpi_ipc_free(struct cddpi_device_transport *base, void *memory)
{
    struct ipc_transport *transport = ipc_of(base);
    struct ipc_segment **link = &transport->segments;
    struct ipc_segment **end = &transport->retired;
    struct ipc_segment *segment;

    cddpi_transport_enter(transport->device);
    if (transport->block == NULL || transport->staged) {
        transport->device->ops->release(transport->device, memory);
        return;
    }
    while (*link != NULL && (*link)->at[transport->rank] != memory) {
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
    (void)cudaEventRecord(segment->last_use, transport->comm);
    cddpi_ipc_close_retired(transport, false);
    cddpi_ipc_free_retired(transport, false);
}

/* Whether all peers have closed block @p number, which CUDA requires before the block is freed. */
static bool closed_by_all(const struct ipc_transport *transport, uint32_t number)
{
    for (int r = 0; r < transport->size; r++) {
        if (r != transport->rank && !cddpi_ipc_gone(transport, r) &&
            atomic_load_explicit(&transport->block->ranks[r].closed, memory_order_acquire) <
                number) {
            return false;
        }
    }
    return true;
}

void cddpi_ipc_close_retired(struct ipc_transport *transport, bool all)
{
    for (struct ipc_segment *s = transport->retired; s != NULL; s = s->next) {
        if (s->closed) {
            continue;
        }
        if (!all && cuda_asked(cudaEventQuery(s->last_use)) != cudaSuccess) {
            return;
        }
        cddpi_ipc_unshare(transport, s->at);
        s->closed = true;
        atomic_fetch_add_explicit(&transport->block->ranks[transport->rank].closed, 1,
                                  memory_order_release);
    }
}

void cddpi_ipc_free_retired(struct ipc_transport *transport, bool all)
{
    while (transport->retired != NULL && transport->retired->closed &&
           (all || closed_by_all(transport, transport->freed + 1))) {
        struct ipc_segment *segment = transport->retired;

        transport->retired = segment->next;
        transport->freed++;
        (void)cudaFree(segment->at[transport->rank]);
        (void)cudaEventDestroy(segment->last_use);
        (void)cudaGetLastError();
        cddpi_transport_free(transport->device, segment);
    }
}
