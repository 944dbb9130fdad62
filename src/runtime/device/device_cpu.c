/* device_cpu.c - the CPU as a device. The work of every call is done when the call returns, so
 * streams, events and profiler ranges have nothing to do, and nothing can be captured. */
#include "device/device.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"

#include <string.h>
#include <unistd.h>

struct cpu_event {
    struct cddpi_event base; /* first: see cpu_event_of() */
    int64_t at_ns;
};

static struct cpu_event *cpu_event_of(struct cddpi_event *base)
{
    return (struct cpu_event *)(void *)base;
}

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
    CDDPI_TRY_MEMORY(memory != NULL, "no memory for %zu bytes of %s", bytes, what);
    *out = memory;
    return CDDP_OK;
}

static cddp_status cpu_pin(struct cddpi_device *device, size_t bytes, void **out)
{
    void *memory = cddpi_alloc_aligned(bytes);

    (void)device;
    CDDPI_TRY_MEMORY(memory != NULL, "a host buffer: no memory for %zu bytes", bytes);
    *out = memory;
    return CDDP_OK;
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
    return false; /* the CPU may touch all of its memory */
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
    struct cpu_event *event = cddpi_zalloc(sizeof *event);

    (void)device;
    CDDPI_TRY_MEMORY(event != NULL, "event: no memory for %zu bytes", sizeof *event);
    event->base.timed = timed;
    *out = &event->base;
    return CDDP_OK;
}

static void cpu_event_destroy(struct cddpi_device *device, struct cddpi_event *base)
{
    struct cpu_event *event = cpu_event_of(base);

    (void)device;
    cddpi_free(event);
}

static cddp_status cpu_record(struct cddpi_device *device, struct cddpi_event *base,
                              enum cddpi_stream stream)
{
    struct cpu_event *event = cpu_event_of(base);

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

static cddp_status cpu_elapsed(struct cddpi_device *device, struct cddpi_event *from_base,
                               struct cddpi_event *to_base, float *out_ms)
{
    struct cpu_event *from = cpu_event_of(from_base);
    struct cpu_event *to = cpu_event_of(to_base);

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

static cddp_status refuse_capture(void)
{
    return cddpi_fail(CDDP_ERR_UNAVAILABLE,
                      "the CPU cannot record work, because it does it at once; only CUDA "
                      "devices can");
}

static cddp_status cpu_capture_begin(struct cddpi_device *device)
{
    (void)device;
    return refuse_capture();
}

static cddp_status cpu_capture_end(struct cddpi_device *device, struct cddpi_captured_graph **out)
{
    (void)device;
    (void)out;
    return refuse_capture();
}

static cddp_status cpu_replay(struct cddpi_device *device, struct cddpi_captured_graph *captured)
{
    (void)device;
    (void)captured;
    return refuse_capture();
}

static void cpu_graph_destroy(struct cddpi_device *device, struct cddpi_captured_graph *captured)
{
    (void)device;
    (void)captured; /* always NULL: the CPU has no captured graphs */
}

static void cpu_range_push(struct cddpi_device *device, const char *name)
{
    (void)device;
    (void)name;
}

static void cpu_range_pop(struct cddpi_device *device)
{
    (void)device;
}

static cddp_status cpu_adopt(struct cddpi_device *device, void *stream)
{
    (void)device;
    (void)stream;
    return cddpi_fail(CDDP_ERR_ARGUMENT, "the processor has no streams that could be another's");
}

static void *cpu_compute_stream(struct cddpi_device *device)
{
    (void)device;
    return NULL;
}

static void cpu_faults(const struct cddpi_device *device, char *out, size_t bytes)
{
    (void)device, (void)bytes;
    out[0] = '\0';
}

static bool cpu_meters(struct cddpi_device *device, struct cddpi_device_meters *out)
{
    (void)device, (void)out;
    return false;
}

static const struct cddpi_device_ops cpu_ops = {
    .name = "cpu",
    .kind = CDDPI_DEVICE_CPU,
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
    .faults = cpu_faults,
    .meters = cpu_meters,
    .capture_begin = cpu_capture_begin,
    .capture_end = cpu_capture_end,
    .replay = cpu_replay,
    .graph_destroy = cpu_graph_destroy,
    .range_push = cpu_range_push,
    .range_pop = cpu_range_pop,
    .adopt = cpu_adopt,
    .compute_stream = cpu_compute_stream,
};

struct cddpi_device *cddpi_device_cpu(void)
{
    /* never modified, so all threads can share it */
    static struct cddpi_device cpu = {.ops = &cpu_ops, .title = "processor", .rank = -1};

    return &cpu;
}
