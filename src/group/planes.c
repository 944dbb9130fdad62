/* planes.c - the CUDA module's list of planes, best first, and what they share. */
#include "group/planes.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

extern const struct cddpi_plane_ops *const cddpi_cuda_planes[];
const struct cddpi_plane_ops *const cddpi_cuda_planes[] = {
#if CDDP_HAVE_NCCL
    &cddpi_nccl_plane,
#endif
    &cddpi_ipc_plane,
    &cddpi_staged_plane,
    NULL,
};

struct verdict {
    int32_t status;
    char text[CDDPI_PLANE_TEXT];
};

static const struct cddpi_module_host *host_of(const struct cddpi_device *device)
{
    return ((const struct cuda_device *)(const void *)device)->host;
}

cddp_status cddpi_plane_fail(const struct cddpi_device *device, cddp_status status,
                             const char *format, ...)
{
    va_list arguments;

    va_start(arguments, format);
    status = host_of(device)->fail(status, format, arguments);
    va_end(arguments);
    return status;
}

const char *cddpi_plane_last_error(const struct cddpi_device *device)
{
    return host_of(device)->last_error();
}

cddp_status cddpi_plane_refuse(const struct cddpi_device *device, const struct cddpi_group_op *op)
{
    const char *name = op->kind == CDDPI_BARRIER ? "barrier"
                       : op->kind == CDDPI_SEND  ? "send"
                       : op->kind == CDDPI_RECV  ? "recv"
                                                 : "alloc";

    return cddpi_plane_fail(device, CDDP_ERR_UNAVAILABLE, "%s of device memory", name);
}

void cddpi_plane_enter(struct cddpi_device *device)
{
    (void)cuda_device_stream(device, CDDPI_STREAM_COMM);
}

bool cddpi_plane_drain(struct cddpi_device *device, cudaStream_t stream, uint32_t timeout_ms)
{
    struct timespec pause = {0, 1000000};

    cddpi_plane_enter(device);
    for (uint32_t ms = 0; cuda_asked(cudaStreamQuery(stream)) == cudaErrorNotReady; ms++) {
        if (ms >= timeout_ms) {
            return false;
        }
        nanosleep(&pause, NULL);
    }
    return true;
}

void cddpi_plane_warn(const struct cddpi_device *device, const char *text)
{
    char line[CDDPI_PLANE_TEXT];

    snprintf(line, sizeof line, "rank %d: %s", device->rank, text);
    host_of(device)->warn(line);
}

void *cddpi_plane_zalloc(const struct cddpi_device *device, size_t bytes)
{
    return host_of(device)->alloc(bytes);
}

void cddpi_plane_free(const struct cddpi_device *device, void *memory)
{
    host_of(device)->free(memory);
}

/* Texts of calls begin with the rank already. */
static cddp_status told(const struct cddpi_device *device, const struct verdict *verdict, int rank)
{
    char prefix[32];
    bool has = false;

    snprintf(prefix, sizeof prefix, "rank %d: ", rank);
    has = strncmp(verdict->text, prefix, strlen(prefix)) == 0;
    return cddpi_plane_fail(device, (cddp_status)verdict->status, "%s%.*s", has ? "" : prefix,
                            (int)sizeof verdict->text - 1, verdict->text);
}

cddp_status cddpi_plane_agree(const struct cddpi_plane_seat *seat, cddp_status own)
{
    struct verdict mine = {.status = own};
    struct verdict *all = cddpi_plane_zalloc(seat->device, (size_t)seat->world_size * sizeof *all);
    cddp_status status;

    if (all == NULL) {
        return cddpi_plane_fail(seat->device, CDDP_ERR_NO_MEMORY, "plane: no memory");
    }
    if (own != CDDP_OK) {
        snprintf(mine.text, sizeof mine.text, "%s", cddpi_plane_last_error(seat->device));
    }
    status = seat->exchange(seat->context, &mine, sizeof mine, all);
    for (int r = 0; r < seat->world_size && status == CDDP_OK; r++) {
        if (all[r].status != CDDP_OK) {
            status = told(seat->device, &all[r], r);
        }
    }
    cddpi_plane_free(seat->device, all);
    return status;
}

cddp_status cddpi_plane_give_up(const struct cddpi_device *device, cddp_status status,
                                void (*close)(struct cddpi_plane *plane), struct cddpi_plane *plane)
{
    char text[2 * CDDPI_PLANE_TEXT];

    snprintf(text, sizeof text, "%s", cddpi_plane_last_error(device));
    close(plane);
    return cddpi_plane_fail(device, status, "%s", text);
}
