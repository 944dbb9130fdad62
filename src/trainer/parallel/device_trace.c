/* device_trace.c - owns the devices' spans until they are put into the trace. */
#include "parallel/device_trace.h"

#include "base/alloc.h"
#include "base/clock.h"

struct device_trace_span {
    int64_t begin_ns, end_ns;
    enum cddpi_span kind;
    int32_t number;
};

struct cddpi_device_trace {
    cddp_group *traced;
    int devices;
    size_t most;
    size_t *counts;                  /* one per device, written only by its thread ... */
    struct device_trace_span *spans; /* ... and one row of `most` spans per device */
};

static void release(struct cddpi_device_trace *trace)
{
    cddpi_free(trace->counts);
    cddpi_free(trace->spans);
    cddpi_free(trace);
}

enum cddpi_span cddpi_span_of_pass(enum cddpi_pipeline_pass pass)
{
    static const enum cddpi_span kinds[] = {[CDDPI_PASS_FORWARD] = CDDPI_SPAN_FORWARD,
                                            [CDDPI_PASS_BACKWARD] = CDDPI_SPAN_BACKWARD,
                                            [CDDPI_PASS_WEIGHTS] = CDDPI_SPAN_WEIGHTS};

    return kinds[pass];
}

struct cddpi_device_trace *cddpi_device_trace_begin(cddp_group *traced, int devices, size_t most)
{
    struct cddpi_device_trace *trace = NULL;

    if (traced != NULL && cddpi_trace_is_on(traced)) {
        trace = cddpi_zalloc(sizeof *trace);
    }
    if (trace == NULL) {
        return NULL;
    }
    *trace = (struct cddpi_device_trace){.traced = traced, .devices = devices, .most = most};
    trace->counts = cddpi_zalloc_array((size_t)devices, sizeof *trace->counts);
    trace->spans = cddpi_zalloc_array((size_t)devices * most + 1, sizeof *trace->spans);
    if (trace->counts == NULL || trace->spans == NULL) {
        release(trace);
        return NULL;
    }
    return trace;
}

void cddpi_device_trace_add(struct cddpi_device_trace *trace, int device, enum cddpi_span kind,
                            int64_t begin_ns, int32_t number)
{
    if (trace != NULL && trace->counts[device] < trace->most) {
        size_t at = (size_t)device * trace->most + trace->counts[device]++;

        trace->spans[at] = (struct device_trace_span){begin_ns, cddpi_now_ns(), kind, number};
    }
}

void cddpi_device_trace_end(struct cddpi_device_trace *trace)
{
    for (int d = 0; trace != NULL && d < trace->devices; d++) {
        for (size_t i = 0; i < trace->counts[d]; i++) {
            const struct device_trace_span *span = &trace->spans[(size_t)d * trace->most + i];

            cddpi_trace_add_device(trace->traced, d, span->kind, span->begin_ns, span->end_ns,
                                   span->number);
        }
    }
    if (trace != NULL) {
        release(trace);
    }
}
