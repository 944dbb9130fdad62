/* cuda_alloc.c - owns device memory and pinned host memory.
 *
 * Device memory is allocated in stream order from a memory pool of our own, which keeps released
 * memory: after the first step the driver is not asked for memory any more. We do not use the
 * device's default pool, so other code in the process cannot change our pool's settings. */
#include "device/cuda/cuda_internal.h"

#include <stdio.h>
#include <string.h>

/* RECLAIM_MS: how long an allocation waits for released memory that is still in use on the device.
 * LARGE_BYTES: what counts as large where memory is kept for others. */
enum { RECLAIM_MS = 60000, LARGE_BYTES = 32 << 20 };

cddp_status cuda_pool_open(struct cuda_device *device)
{
    struct cddpi_device *base = &device->base;
    struct cudaMemPoolProps properties;
    uint64_t all = UINT64_MAX;
    int supported = 0;
    cddp_status status = CUDA_CHECK(
        base, cudaDeviceGetAttribute(&supported, cudaDevAttrMemoryPoolsSupported, base->index));

    if (status != CDDP_OK || supported == 0) {
        return status;
    }
    memset(&properties, 0, sizeof properties);
    properties.allocType = cudaMemAllocationTypePinned;
    properties.location.type = cudaMemLocationTypeDevice;
    properties.location.id = base->index;
    CDDPI_TRY(CUDA_CHECK(base, cudaMemPoolCreate(&device->pool, &properties)));
    return CUDA_CHECK(base,
                      cudaMemPoolSetAttribute(device->pool, cudaMemPoolAttrReleaseThreshold, &all));
}

cddp_status cuda_memory(struct cddpi_device *device, struct cddpi_device_memory *out)
{
    struct cuda_device *self = cuda_device_of(device);
    uint64_t reserved = 0;
    uint64_t used = 0;
    size_t free_bytes;
    size_t total_bytes;

    CDDPI_TRY(cuda_enter(device));
    CDDPI_TRY(CUDA_CHECK(device, cudaMemGetInfo(&free_bytes, &total_bytes)));
    if (self->pool != NULL) {
        CDDPI_TRY(CUDA_CHECK(
            device,
            cudaMemPoolGetAttribute(self->pool, cudaMemPoolAttrReservedMemCurrent, &reserved)));
        CDDPI_TRY(CUDA_CHECK(
            device, cudaMemPoolGetAttribute(self->pool, cudaMemPoolAttrUsedMemCurrent, &used)));
    }
    free_bytes += reserved > used ? reserved - used : 0;
    out->free_bytes = free_bytes > self->kept_bytes ? free_bytes - self->kept_bytes : 0;
    out->total_bytes = total_bytes;
    return CDDP_OK;
}

static cudaError_t try_alloc(struct cuda_device *device, size_t bytes, void **out)
{
    if (device->pool == NULL) {
        return cudaMalloc(out, bytes);
    }
    return cudaMallocFromPoolAsync(out, bytes, device->pool, device->streams[CDDPI_STREAM_COMPUTE]);
}

/* Give memory that the pool holds but does not use back to the driver. */
static bool trim(struct cuda_device *device)
{
    return cuda_poll(cuda_stream_ready, device->streams[CDDPI_STREAM_COMPUTE], RECLAIM_MS) ==
               cudaSuccess &&
           cudaMemPoolTrimTo(device->pool, 0) == cudaSuccess;
}

static bool leaves_room(const struct cuda_device *device)
{
    size_t free_bytes;
    size_t total_bytes;

    return cudaMemGetInfo(&free_bytes, &total_bytes) != cudaSuccess ||
           free_bytes >= device->kept_bytes;
}

/* As try_alloc(), but leave the memory that is kept for others to the driver. */
static cudaError_t try_large(struct cuda_device *device, size_t bytes, void **out)
{
    cudaError_t error = try_alloc(device, bytes, out);

    if (error != cudaSuccess || device->kept_bytes == 0 || device->pool == NULL ||
        bytes < LARGE_BYTES || leaves_room(device) || (trim(device) && leaves_room(device))) {
        return error;
    }
    (void)cudaFreeAsync(*out, device->streams[CDDPI_STREAM_COMPUTE]);
    return trim(device) ? cudaErrorMemoryAllocation : cudaErrorUnknown;
}

static cddp_status no_memory(struct cddpi_device *device, size_t bytes, const char *what)
{
    char kept[64] = "";
    struct cuda_device *self = cuda_device_of(device);
    struct cddpi_device_memory memory = {0, 0};
    uint64_t used = 0;
    double mib = 1 << 20;

    (void)cudaGetLastError();
    (void)cuda_memory(device, &memory);
    if (self->pool != NULL) {
        (void)cudaMemPoolGetAttribute(self->pool, cudaMemPoolAttrUsedMemCurrent, &used);
    }
    if (self->kept_bytes > 0) {
        snprintf(kept, sizeof kept, "; %.1f MiB are kept for NCCL", (double)self->kept_bytes / mib);
    }
    return cuda_fail(device, CDDP_ERR_NO_MEMORY,
                     "no memory for %s: %zu bytes (%.1f MiB) were asked for, %.1f of %.1f MiB are "
                     "free, and this rank holds %.1f MiB%s",
                     what, bytes, (double)bytes / mib, (double)memory.free_bytes / mib,
                     (double)memory.total_bytes / mib, (double)used / mib, kept);
}

cddp_status cuda_alloc(struct cddpi_device *device, size_t bytes, const char *what, void **out)
{
    struct cuda_device *self = cuda_device_of(device);
    size_t asked = bytes > 0 ? bytes : 1;
    cudaError_t error;

    CDDPI_TRY(cuda_enter(device));
    if (self->capture != 0) {
        return cuda_fail(device, CDDP_ERR_UNAVAILABLE,
                         "%s: %zu bytes cannot be allocated while work is captured", what, bytes);
    }
    error = try_large(self, asked, out);
    if (error == cudaErrorMemoryAllocation && self->pool != NULL) {
        /* The pool may have enough free memory, but in pieces of the wrong sizes: give it all back
         * to the driver, then try again. */
        (void)cudaGetLastError();
        if (trim(self)) {
            error = try_large(self, asked, out);
        }
    }
    if (error == cudaErrorMemoryAllocation) {
        return no_memory(device, bytes, what);
    }
    return cddpi_cuda_status(device, error, "cudaMallocFromPoolAsync", __FILE__, __LINE__);
}

void cuda_release(struct cddpi_device *device, void *memory)
{
    struct cuda_device *self = cuda_device_of(device);

    if (memory == NULL || cuda_enter(device) != CDDP_OK) {
        return;
    }
    /* An error here comes from earlier work; the next check reports it. */
    if (self->pool == NULL) {
        if (cuda_may_free(device)) {
            (void)cudaFree(memory);
        }
    } else {
        (void)cudaFreeAsync(memory, self->streams[CDDPI_STREAM_COMPUTE]);
    }
}

cddp_status cuda_pin(struct cddpi_device *device, size_t bytes, void **out)
{
    cudaError_t error;

    CDDPI_TRY(cuda_enter(device));
    error = cudaHostAlloc(out, bytes > 0 ? bytes : 1, cudaHostAllocPortable);
    if (error == cudaErrorMemoryAllocation) {
        (void)cudaGetLastError();
        return cuda_fail(device, CDDP_ERR_NO_MEMORY,
                         "%zu bytes of host memory cannot be pinned: no memory, or more than this "
                         "process may lock",
                         bytes);
    }
    return cddpi_cuda_status(device, error, "cudaHostAlloc", __FILE__, __LINE__);
}

void cuda_unpin(struct cddpi_device *device, void *memory)
{
    if (memory != NULL && cuda_enter(device) == CDDP_OK && cuda_may_free(device)) {
        (void)cudaFreeHost(memory);
    }
}

bool cuda_owns(const struct cddpi_device *device, const void *memory)
{
    struct cudaPointerAttributes attributes;

    /* A new thread would use device 0 and create a context there. */
    if (memory == NULL || cudaSetDevice(device->index) != cudaSuccess) {
        return false;
    }
    if (cudaPointerGetAttributes(&attributes, memory) != cudaSuccess) {
        (void)cudaGetLastError();
        return false;
    }
    return (attributes.type == cudaMemoryTypeDevice || attributes.type == cudaMemoryTypeManaged) &&
           attributes.device == device->index;
}
