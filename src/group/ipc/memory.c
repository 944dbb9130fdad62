/* memory.c - device memory that all ranks of a machine have open. */
#include "group/ipc/ipc.h"

#include <string.h>

struct offer {
    cudaIpcMemHandle_t handle;
    char unique[48]; /* the device, for texts */
};

/* Zeroed memory of this rank, and the handle that opens it elsewhere. */
static cddp_status make_own(struct cddpi_plane *plane, size_t bytes, struct offer *out, char **at)
{
    struct cddpi_device *device = plane->device;
    cudaError_t error = cudaMalloc((void **)at, bytes);
    cddp_status status;

    if (error != cudaSuccess) {
        *at = NULL;
        return cuda_failed_call(device, error, "cudaMalloc", __FILE__, __LINE__);
    }
    memcpy(out->unique, device->unique, sizeof out->unique);
    status = CUDA_CHECK(device, cudaMemsetAsync(*at, 0, bytes, plane->side));
    if (status == CDDP_OK) {
        status = CUDA_CHECK(device, cudaStreamSynchronize(plane->side));
    }
    if (status == CDDP_OK) {
        error = cudaIpcGetMemHandle(&out->handle, *at);
        if (error != cudaSuccess) {
            (void)cudaGetLastError();
            return cddpi_plane_fail(plane->device, CDDP_ERR_UNAVAILABLE,
                                    "memory of device %s cannot be shared between processes: %s",
                                    device->unique, cudaGetErrorString(error));
        }
    }
    return status;
}

static cddp_status open_peers(struct cddpi_plane *plane, const struct offer *offers, char **at)
{
    for (int r = 0; r < plane->size; r++) {
        cudaError_t error;

        if (r == plane->rank) {
            continue;
        }
        error = cudaIpcOpenMemHandle((void **)&at[r], offers[r].handle,
                                     cudaIpcMemLazyEnablePeerAccess);
        if (error != cudaSuccess) {
            at[r] = NULL;
            (void)cudaGetLastError();
            return cddpi_plane_fail(plane->device, CDDP_ERR_UNAVAILABLE,
                                    "device %s cannot reach the memory of rank %d on device %s: %s",
                                    plane->device->unique, r, offers[r].unique,
                                    cudaGetErrorString(error));
        }
    }
    return CDDP_OK;
}

cddp_status cddpi_ipc_share(struct cddpi_plane *plane, size_t bytes, char **out_at)
{
    struct offer own;
    struct offer offers[IPC_RANKS];
    char *at[IPC_RANKS] = {NULL};
    cddp_status status;

    memset(&own, 0, sizeof own);
    status = make_own(plane, bytes, &own, &at[plane->rank]);
    status = cddpi_plane_agree(&plane->seat, status);
    if (status == CDDP_OK) {
        status = plane->seat.exchange(plane->seat.context, &own, sizeof own, offers);
    }
    if (status == CDDP_OK) {
        status = cddpi_plane_agree(&plane->seat, open_peers(plane, offers, at));
    }
    if (status != CDDP_OK) {
        cddpi_ipc_unshare(plane, at);
        if (at[plane->rank] != NULL) {
            (void)cudaFree(at[plane->rank]);
        }
        return status;
    }
    memcpy(out_at, at, (size_t)plane->size * sizeof *at);
    return CDDP_OK;
}

void cddpi_ipc_unshare(struct cddpi_plane *plane, char **at)
{
    for (int r = 0; r < plane->size; r++) {
        if (r != plane->rank && at[r] != NULL) {
            (void)cudaIpcCloseMemHandle(at[r]);
            at[r] = NULL;
        }
    }
    (void)cudaGetLastError(); /* or the next launch would be blamed for it */
}

/* Memory of this rank alone, zeroed. */
static cddp_status alloc_plain(struct cddpi_plane *plane, size_t bytes, void **out)
{
    struct cddpi_device *device = plane->device;
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

static cddp_status alloc_shared(struct cddpi_plane *plane, size_t bytes, void **out)
{
    struct ipc_segment *segment = cddpi_plane_zalloc(plane->device, sizeof *segment);
    cddp_status status = CDDP_OK;

    if (segment == NULL) {
        status = cddpi_plane_fail(plane->device, CDDP_ERR_NO_MEMORY, "group_alloc: no memory");
    } else {
        status = CUDA_CHECK(plane->device,
                            cudaEventCreateWithFlags(&segment->last_use, cudaEventDisableTiming));
    }
    status = cddpi_plane_agree(&plane->seat, status);
    if (status == CDDP_OK) {
        segment->bytes = bytes > 0 ? bytes : 1;
        status = cddpi_ipc_share(plane, ipc_round(segment->bytes, IPC_ALLOC_BYTES), segment->at);
    }
    if (status != CDDP_OK) {
        if (segment != NULL && segment->last_use != NULL) {
            (void)cudaEventDestroy(segment->last_use);
        }
        cddpi_plane_free(plane->device, segment);
        return status;
    }
    segment->id = ++plane->last_segment;
    segment->next = plane->segments;
    plane->segments = segment;
    *out = segment->at[plane->rank];
    return CDDP_OK;
}

cddp_status cddpi_ipc_alloc(struct cddpi_plane *plane, size_t bytes, void **out)
{
    cddp_status status;

    cddpi_plane_enter(plane->device);
    if (plane->block != NULL && !plane->staged) {
        cddpi_ipc_close_retired(plane, false);
        cddpi_ipc_free_retired(plane, false);
        return alloc_shared(plane, bytes, out);
    }
    status = alloc_plain(plane, bytes, out);
    if (plane->block != NULL) {
        cddp_status all = cddpi_plane_agree(&plane->seat, status);

        if (all != CDDP_OK && status == CDDP_OK) {
            plane->device->ops->release(plane->device, *out);
        }
        status = all;
    }
    return status;
}

const struct ipc_segment *cddpi_ipc_find(const struct cddpi_plane *plane, const void *data,
                                         size_t bytes)
{
    for (const struct ipc_segment *s = plane->segments; s != NULL; s = s->next) {
        uintptr_t offset = (uintptr_t)data - (uintptr_t)s->at[plane->rank];

        if (offset < s->bytes && bytes <= s->bytes - offset) {
            return s;
        }
    }
    return NULL;
}

void cddpi_ipc_free(struct cddpi_plane *plane, void *memory)
{
    struct ipc_segment **link = &plane->segments;
    struct ipc_segment **end = &plane->retired;
    struct ipc_segment *segment;

    cddpi_plane_enter(plane->device);
    if (plane->block == NULL || plane->staged) {
        plane->device->ops->release(plane->device, memory);
        return;
    }
    while (*link != NULL && (*link)->at[plane->rank] != memory) {
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
    (void)cudaEventRecord(segment->last_use, plane->comm);
    cddpi_ipc_close_retired(plane, false);
    cddpi_ipc_free_retired(plane, false);
}

/* CUDA wants memory to be closed by all who opened it before it is freed. */
static bool closed_by_all(const struct cddpi_plane *plane, uint32_t number)
{
    for (int r = 0; r < plane->size; r++) {
        if (r != plane->rank && !cddpi_ipc_gone(plane, r) &&
            atomic_load_explicit(&plane->block->ranks[r].closed, memory_order_acquire) < number) {
            return false;
        }
    }
    return true;
}

void cddpi_ipc_close_retired(struct cddpi_plane *plane, bool all)
{
    for (struct ipc_segment *s = plane->retired; s != NULL; s = s->next) {
        if (s->closed) {
            continue;
        }
        if (!all && cuda_asked(cudaEventQuery(s->last_use)) != cudaSuccess) {
            return;
        }
        cddpi_ipc_unshare(plane, s->at);
        s->closed = true;
        atomic_fetch_add_explicit(&plane->block->ranks[plane->rank].closed, 1,
                                  memory_order_release);
    }
}

void cddpi_ipc_free_retired(struct cddpi_plane *plane, bool all)
{
    while (plane->retired != NULL && plane->retired->closed &&
           (all || closed_by_all(plane, plane->freed + 1))) {
        struct ipc_segment *segment = plane->retired;

        plane->retired = segment->next;
        plane->freed++;
        (void)cudaFree(segment->at[plane->rank]);
        (void)cudaEventDestroy(segment->last_use);
        (void)cudaGetLastError();
        cddpi_plane_free(plane->device, segment);
    }
}
