/* cpu.c - the processor as a device: every call is done when it returns. */
#include "device/device.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"

#include <string.h>
#include <unistd.h>

struct cddpi_event {
    int64_t at_ns;
};

static void cpu_close(struct cddpi_device *device)
{
    (void)device;
}

static cddp_status cpu_memory(struct cddpi_device *device, struct cddpi_device_memory *out)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);

    (void)device;
    out->free_bytes = (size_t)sysconf(_SC_AVPHYS_PAGES) * page;
    out->total_bytes = (size_t)sysconf(_SC_PHYS_PAGES) * page;
    return CDDP_OK;
}

static cddp_status cpu_alloc(struct cddpi_device *device, size_t bytes, const char *what,
                             void **out)
{
    void *memory = cddpi_alloc_aligned(bytes);

    (void)device;
    if (memory == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "%s: no memory for %zu bytes", what, bytes);
    }
    *out = memory;
    return CDDP_OK;
}

static cddp_status cpu_pin(struct cddpi_device *device, size_t bytes, void **out)
{
    return cpu_alloc(device, bytes, "a host buffer", out);
}

static void cpu_release(struct cddpi_device *device, void *memory)
{
    (void)device;
    cddpi_free(memory);
}

static bool cpu_owns(const struct cddpi_device *device, const void *memory)
{
    (void)device;
    (void)memory;
    return false; /* nothing that the processor must not touch */
}

static cddp_status cpu_copy(struct cddpi_device *device, enum cddpi_stream stream, void *to,
                            const void *from, size_t bytes)
{
    (void)device;
    (void)stream;
    if (bytes > 0) {
        memmove(to, from, bytes);
    }
    return CDDP_OK;
}

static cddp_status cpu_clear(struct cddpi_device *device, enum cddpi_stream stream, void *memory,
                             size_t bytes)
{
    (void)device;
    (void)stream;
    if (bytes > 0) {
        memset(memory, 0, bytes);
    }
    return CDDP_OK;
}

static cddp_status cpu_event_create(struct cddpi_device *device, bool timed,
                                    struct cddpi_event **out)
{
    struct cddpi_event *event = cddpi_zalloc(sizeof *event);

    (void)device;
    (void)timed;
    if (event == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "event: no memory for %zu bytes", sizeof *event);
    }
    *out = event;
    return CDDP_OK;
}

static void cpu_event_destroy(struct cddpi_device *device, struct cddpi_event *event)
{
    (void)device;
    cddpi_free(event);
}

static cddp_status cpu_record(struct cddpi_device *device, struct cddpi_event *event,
                              enum cddpi_stream stream)
{
    (void)device;
    (void)stream;
    event->at_ns = cddpi_now_ns();
    return CDDP_OK;
}

static cddp_status cpu_order(struct cddpi_device *device, enum cddpi_stream stream,
                             struct cddpi_event *event)
{
    (void)device;
    (void)stream;
    (void)event;
    return CDDP_OK;
}

static cddp_status cpu_query(struct cddpi_device *device, struct cddpi_event *event, bool *out_done)
{
    (void)device;
    (void)event;
    *out_done = true;
    return CDDP_OK;
}

static cddp_status cpu_wait(struct cddpi_device *device, struct cddpi_event *event,
                            uint32_t timeout_ms)
{
    (void)device;
    (void)event;
    (void)timeout_ms;
    return CDDP_OK;
}

static cddp_status cpu_elapsed(struct cddpi_device *device, struct cddpi_event *from,
                               struct cddpi_event *to, float *out_ms)
{
    (void)device;
    *out_ms = (float)((double)(to->at_ns - from->at_ns) / 1e6);
    return CDDP_OK;
}

static cddp_status cpu_finish(struct cddpi_device *device, uint32_t timeout_ms)
{
    (void)device;
    (void)timeout_ms;
    return CDDP_OK;
}

static const struct cddpi_device_ops cpu_ops = {
    .name = "cpu",
    .close = cpu_close,
    .alloc = cpu_alloc,
    .release = cpu_release,
    .pin = cpu_pin,
    .unpin = cpu_release,
    .owns = cpu_owns,
    .memory = cpu_memory,
    .copy = cpu_copy,
    .clear = cpu_clear,
    .event_create = cpu_event_create,
    .event_destroy = cpu_event_destroy,
    .record = cpu_record,
    .order = cpu_order,
    .query = cpu_query,
    .wait = cpu_wait,
    .elapsed = cpu_elapsed,
    .finish = cpu_finish,
};

struct cddpi_device *cddpi_device_cpu(void)
{
    /* never written to: there is nothing in it that could differ between its users */
    static struct cddpi_device cpu = {.ops = &cpu_ops, .title = "processor", .rank = -1};

    return &cpu;
}
