/* cuda_open.c - counts the CUDA devices, or says why there is none, and opens one. */
#include "device/cuda/card_health.h"
#include "device/cuda/cuda_internal.h"

#include "base/log.h"

#include <stdio.h>
#include <stdlib.h>

/* How long closing a device waits for its work, which may never end because a peer is gone. */
enum { CLOSE_MS = 10000 };

/* Fail with a text that says what to do: there is no driver, the driver is too old, or no device
 * exists or is visible. */
static cddp_status no_device(cudaError_t error)
{
    const char *visible = getenv("CUDA_VISIBLE_DEVICES");
    int driver = 0;

    (void)cudaGetLastError();
    (void)cudaDriverGetVersion(&driver);
    if (driver == 0) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE,
                          "there is no CUDA driver (libcuda.so.1): install NVIDIA's driver, or "
                          "give the container access to it");
    }
    if (error == cudaErrorInsufficientDriver) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE,
                          "the driver supports CUDA %d.%d, but cddp was built with %d.%d: "
                          "update the driver, or build with an older toolkit",
                          driver / 1000, driver % 1000 / 10, CUDART_VERSION / 1000,
                          CUDART_VERSION % 1000 / 10);
    }
    if (error == cudaErrorNoDevice && visible != NULL) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE,
                          "no CUDA device is visible: CUDA_VISIBLE_DEVICES=\"%s\"", visible);
    }
    if (error == cudaErrorNoDevice) {
        return cddpi_fail(CDDP_ERR_UNAVAILABLE, "this machine has no CUDA device");
    }
    if (error == cudaErrorInitializationError) {
        return cddpi_fail(CDDP_ERR_DEVICE,
                          "CUDA cannot be initialised: the driver is broken, or the process "
                          "used CUDA before it was forked");
    }
    return cddpi_fail(CDDP_ERR_DEVICE, "cudaGetDeviceCount: %s (%s)", cudaGetErrorString(error),
                      cudaGetErrorName(error));
}

cddp_status cuda_count(const struct cddpi_module_host *host, bool has_peers, int *out)
{
    int count = 0;
    cudaError_t error;

    cddpi_module_host_use(host);
    cuda_connections_prepare(has_peers);
    error = cudaGetDeviceCount(&count);
    if (error == cudaSuccess && count == 0) {
        error = cudaErrorNoDevice;
    }
    if (error != cudaSuccess) {
        return no_device(error);
    }
    *out = count;
    return CDDP_OK;
}

static void cuda_close(struct cddpi_device *device)
{
    struct cuda_device *self = cuda_device_of(device);
    bool dry = true;

    (void)cuda_enter(device);
    if (self->capture != 0) {
        cudaGraph_t graph = NULL;

        (void)cudaStreamEndCapture(self->streams[CDDPI_STREAM_COMPUTE], &graph);
        if (graph != NULL) {
            (void)cudaGraphDestroy(graph);
        }
    }
    if (self->streams[CDDPI_STREAM_COUNT - 1] != NULL) {
        cddp_status status = cuda_finish(device, CLOSE_MS);

        if (status != CDDP_OK) {
            cddpi_log(CDDPI_LOG_WARN, "%s", cddp_last_error());
        }
        /* If work is still running, do not free memory: that would wait for the device without a
         * limit. */
        dry = status != CDDP_ERR_TIMEOUT;
    }
    for (int i = 0; i < CDDPI_CUDA_CACHE_KINDS && dry; i++) {
        if (self->caches[i].state != NULL && self->caches[i].release != NULL) {
            self->caches[i].release(device, self->caches[i].state);
        }
    }
    cuda_profile_close(self);
    cuda_card_close(self->card);
    cuda_streams_close(self);
    if (self->pool != NULL) {
        (void)cudaMemPoolDestroy(self->pool);
    }
    cddpi_free(self);
}

static const struct cddpi_device_ops cuda_ops = {
    .name = "cuda",
    .kind = CDDPI_DEVICE_CUDA,
    .close = cuda_close,
    .alloc = cuda_alloc,
    .release = cuda_release,
    .pin = cuda_pin,
    .unpin = cuda_unpin,
    .owns = cuda_owns,
    .memory = cuda_memory,
    .copy = cuda_copy,
    .clear = cuda_clear,
    .event_create = cuda_event_create,
    .event_destroy = cuda_event_destroy,
    .record = cuda_event_record,
    .order = cuda_event_order,
    .query = cuda_event_query,
    .wait = cuda_event_wait,
    .elapsed = cuda_event_elapsed,
    .finish = cuda_finish,
    .faults = cuda_faults,
    .meters = cuda_meters,
    .capture_begin = cuda_capture_begin,
    .capture_end = cuda_capture_end,
    .replay = cuda_replay,
    .graph_destroy = cuda_graph_destroy,
    .range_push = cuda_range_push,
    .range_pop = cuda_range_pop,
    .adopt = cuda_adopt,
    .compute_stream = cuda_compute_stream,
};

/* Write the device's id in the form that nvidia-smi -L prints. */
void cuda_unique_name(const struct cudaDeviceProp *properties, char *out, size_t bytes)
{
    const unsigned char *id = (const unsigned char *)properties->uuid.bytes;
    size_t at = (size_t)snprintf(out, bytes, "GPU-");

    for (int i = 0; i < 16 && at < bytes; i++) {
        bool dash = i == 4 || i == 6 || i == 8 || i == 10;

        at += (size_t)snprintf(out + at, bytes - at, "%s%02x", dash ? "-" : "", id[i]);
    }
}

void cuda_list(char *out, size_t bytes)
{
    struct cudaDeviceProp properties;
    char unique[sizeof((struct cddpi_device *)NULL)->unique];
    int count = 0;
    size_t used = 0;

    out[0] = '\0';
    (void)cudaGetDeviceCount(&count);
    for (int i = 0; i < count && used + sizeof unique + 1 < bytes; i++) {
        if (cudaGetDeviceProperties(&properties, i) == cudaSuccess) {
            cuda_unique_name(&properties, unique, sizeof unique);
            used += (size_t)snprintf(out + used, bytes - used, "%s\n", unique);
        }
    }
    (void)cudaGetLastError();
}

/* Fill in what is known about the card. Creates its context. */
static cddp_status describe_self(struct cuda_device *device)
{
    struct cddpi_device *base = &device->base;
    struct cudaDeviceProp properties;

    CDDPI_TRY(CUDA_CHECK(base, cudaGetDeviceProperties(&properties, base->index)));
    snprintf(base->title, sizeof base->title, "%.95s", properties.name);
    cuda_unique_name(&properties, base->unique, sizeof base->unique);
    (void)cudaGetDeviceCount(&device->seen);
    device->multiprocessors = properties.multiProcessorCount;
    device->capability = 10 * properties.major + properties.minor;
    if (properties.unifiedAddressing == 0) {
        return cuda_fail(base, CDDP_ERR_UNAVAILABLE, "%s has no unified addressing", base->title);
    }
    return CUDA_CHECK(base, cudaSetDevice(base->index));
}

/* From now on NVML tells what fails. */
static void watch_card(struct cuda_device *device)
{
    const struct cddpi_device *base = &device->base;
    char pci[32];
    char worn[CUDA_CARD_TEXT_BYTES];

    if (cudaDeviceGetPCIBusId(pci, sizeof pci, base->index) != cudaSuccess) {
        (void)cudaGetLastError();
        return;
    }
    device->card = cuda_card_watch(pci, false, worn);
    if (worn[0] != '\0') {
        cddpi_log(CDDPI_LOG_WARN, "rank %d: cuda:%d (%s): %s", base->rank, base->index,
                  base->unique, worn);
    }
}

cddp_status cuda_open(const struct cddpi_module_host *host, int index, int rank,
                      struct cddpi_device **out)
{
    struct cuda_device *device;
    cddp_status status;

    cddpi_module_host_use(host);
    cuda_kernels_serve();
    device = cddpi_zalloc(sizeof *device);
    if (device == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "device: no memory for %zu bytes", sizeof *device);
    }
    device->base.ops = &cuda_ops;
    cddpi_cuda_kernels_fill(&device->kernels);
    device->base.kernels = &device->kernels;
    device->base.index = index;
    device->base.rank = rank;
    CDDPI_TRY_GOTO(failed, status, describe_self(device));
    CDDPI_TRY_GOTO(failed, status, cuda_streams_open(device));
    CDDPI_TRY_GOTO(failed, status, cuda_pool_open(device));
    CDDPI_TRY_GOTO(failed, status, cuda_profile_open(device));
    CDDPI_TRY_GOTO(failed, status, cddpi_cuda_load_kernels(&device->base));
    watch_card(device);
    *out = &device->base;
    return CDDP_OK;

failed:
    cuda_close(&device->base);
    return status;
}
