/* group_trace.c - owns the spans of the traced steps. */
#include "group/watch/group_trace.h"

#include "base/alloc.h"
#include "base/log.h"
#include "base/number.h"
#include "group/watch/dump.h"

#include <string.h>

enum { MOST_SPANS = 1 << 20, MOST_CALLS = 1 << 20 };

struct group_trace_span {
    int64_t begin_ns, end_ns;
    uint64_t step;
    uint64_t bytes;
    int32_t number;
    int32_t device; /* the device, if there are several; -1: a span of the rank itself */
    enum cddpi_span kind;
};

struct cddpi_trace {
    uint64_t first, last; /* steps */
    uint64_t step;        /* the current step */
    bool on;
    struct group_trace_span *spans;
    size_t span_count, span_room;
    struct cddpi_recorded_call *calls;
    size_t call_count, call_room;
    uint64_t taken;   /* serial of the last call that was copied or dropped */
    uint64_t dropped; /* number of calls and spans that were dropped */
};

static const char *const span_names[] = {CDDPI_SPAN_MAP(CDDPI_CHOICE_WORD)};

cddp_status cddpi_trace_parse(const char *text, uint64_t *out_first, uint64_t *out_last)
{
    const char *dash = strchr(text, '-');
    char first_text[32];
    int64_t first;
    int64_t last;
    size_t length = dash != NULL ? (size_t)(dash - text) : strlen(text);

    if (length < sizeof first_text) {
        memcpy(first_text, text, length);
        first_text[length] = '\0';
        if (cddpi_parse_integer(first_text, 1, INT64_MAX, &first) &&
            cddpi_parse_integer(dash != NULL ? dash + 1 : first_text, first, INT64_MAX, &last)) {
            *out_first = (uint64_t)first;
            *out_last = (uint64_t)last;
            return CDDP_OK;
        }
    }
    return cddpi_fail(CDDP_ERR_ARGUMENT, "\"%.40s\" are not steps: \"10-20\", counted from 1, is",
                      text);
}

cddp_status cddpi_trace_open(cddp_group *group, uint64_t first, uint64_t last)
{
    struct cddpi_trace *trace = cddpi_zalloc(sizeof *trace);

    CDDPI_TRY_MEMORY(trace != NULL, "trace: no memory");
    trace->first = first;
    trace->last = last;
    cddpi_trace_close(group);
    group->trace = trace;
    return CDDP_OK;
}

/* Make room for one more element of @p array; false: there is no room. */
static bool grow(void **array, size_t count, size_t *room, size_t bytes, size_t most)
{
    size_t wanted = *room > 0 ? *room * 2 : 1024;
    void *larger;

    if (count < *room) {
        return true;
    }
    larger = wanted <= most ? cddpi_realloc(*array, wanted * bytes) : NULL;
    if (larger == NULL) {
        return false;
    }
    *array = larger;
    *room = wanted;
    return true;
}

/* Copy the calls that have ended since the last time; @p all: also those that have not ended. */
static void take_calls(struct cddpi_trace *trace, const struct cddpi_recorder *recorder, bool all)
{
    uint64_t newest = atomic_load_explicit(&recorder->serial, memory_order_acquire);
    uint64_t oldest = newest > CDDPI_RECORDER_CALLS ? newest - CDDPI_RECORDER_CALLS : 0;
    struct cddpi_recorded_call call;

    if (trace->taken < oldest) { /* the step had more calls than the ring holds */
        trace->dropped += oldest - trace->taken;
        trace->taken = oldest;
    }
    for (; trace->taken < newest; trace->taken++) {
        void *calls = trace->calls;
        bool there = cddpi_recorder_read(recorder, trace->taken + 1, &call);

        if (there && !all && call.finished_ns == 0) {
            return;
        }
        if (there && grow(&calls, trace->call_count, &trace->call_room, sizeof call, MOST_CALLS)) {
            trace->calls = calls;
            trace->calls[trace->call_count++] = call;
        } else {
            trace->dropped++;
        }
    }
}

void cddpi_trace_lend(cddp_group *part, const cddp_group *whole)
{
    part->traced_in = whole;
}

/* Where the group's spans go; NULL: nowhere. */
static struct cddpi_trace *trace_of(const cddp_group *group)
{
    return group->traced_in != NULL ? group->traced_in->trace : group->trace;
}

bool cddpi_trace_is_open(const cddp_group *group)
{
    return trace_of(group) != NULL;
}

bool cddpi_trace_is_on(const cddp_group *group)
{
    return trace_of(group) != NULL && trace_of(group)->on;
}

static void add(cddp_group *group, const struct group_trace_span *span)
{
    struct cddpi_trace *trace = trace_of(group);
    void *spans;

    if (trace == NULL || !trace->on) {
        return;
    }
    spans = trace->spans;
    if (!grow(&spans, trace->span_count, &trace->span_room, sizeof *trace->spans, MOST_SPANS)) {
        trace->dropped++;
        return;
    }
    trace->spans = spans;
    trace->spans[trace->span_count] = *span;
    trace->spans[trace->span_count++].step = trace->step;
}

void cddpi_trace_add(cddp_group *group, enum cddpi_span kind, int64_t begin_ns, int64_t end_ns,
                     int32_t number, uint64_t bytes)
{
    add(group, &(struct group_trace_span){.begin_ns = begin_ns,
                                          .end_ns = end_ns,
                                          .bytes = bytes,
                                          .number = number,
                                          .device = -1,
                                          .kind = kind});
}

void cddpi_trace_add_work(cddp_group *group, enum cddpi_span kind, int64_t begin_ns, int64_t end_ns,
                          int32_t number)
{
    const struct cddpi_trace *trace = trace_of(group);
    size_t end = cddpi_trace_is_on(group) ? trace->span_count : 0;
    size_t first = end;

    while (first > 0 && trace->spans[first - 1].step == trace->step) {
        first--;
    }
    for (size_t i = first; i < end; i++) { /* waits are in the order of their times */
        struct group_trace_span span = trace->spans[i];

        if (span.kind != CDDPI_SPAN_WAIT || span.begin_ns < begin_ns || span.end_ns > end_ns) {
            continue;
        }
        if (span.begin_ns > begin_ns) {
            cddpi_trace_add(group, kind, begin_ns, span.begin_ns, number, 0);
        }
        begin_ns = span.end_ns;
    }
    cddpi_trace_add(group, kind, begin_ns, end_ns, number, 0);
}

void cddpi_trace_add_device(cddp_group *group, int device, enum cddpi_span kind, int64_t begin_ns,
                            int64_t end_ns, int32_t number)
{
    add(group, &(struct group_trace_span){.begin_ns = begin_ns,
                                          .end_ns = end_ns,
                                          .number = number,
                                          .device = device,
                                          .kind = kind});
}

static json_t *spans_of(const struct cddpi_trace *trace)
{
    json_t *all = json_array();

    for (size_t i = 0; i < trace->span_count; i++) {
        const struct group_trace_span *span = &trace->spans[i];
        json_t *json = json_pack("{s:s, s:I, s:I, s:I}", "name", span_names[span->kind], "step",
                                 (json_int_t)span->step, "begin_ns", (json_int_t)span->begin_ns,
                                 "end_ns", (json_int_t)span->end_ns);

        if (span->number >= 0) {
            (void)json_object_set_new(json, "number", json_integer(span->number));
        }
        if (span->device >= 0) {
            (void)json_object_set_new(json, "device", json_integer(span->device));
        }
        if (span->bytes > 0) {
            (void)json_object_set_new(json, "bytes", json_integer((json_int_t)span->bytes));
        }
        (void)json_array_append_new(all, json);
    }
    return all;
}

static json_t *calls_of(const struct cddpi_trace *trace)
{
    json_t *all = json_array();

    for (size_t i = 0; i < trace->call_count; i++) {
        (void)json_array_append_new(all, cddpi_dump_call(&trace->calls[i]));
    }
    return all;
}

void cddpi_trace_close(cddp_group *group)
{
    struct cddpi_trace *trace = group->trace;
    json_t *json;

    if (trace == NULL) {
        return;
    }
    if (trace->on) {
        take_calls(trace, &group->recorder, true);
        json = cddpi_dump_head(group, "trace");
        (void)json_object_set_new(json, "dropped", json_integer((json_int_t)trace->dropped));
        (void)json_object_set_new(json, "spans", spans_of(trace));
        (void)json_object_set_new(json, "calls", calls_of(trace));
        if (cddpi_dump_put(group, json, "trace") != CDDP_OK) {
            cddpi_log(CDDPI_LOG_WARN, "the trace is not written: %s", cddp_last_error());
        }
    }
    group->trace = NULL;
    cddpi_free(trace->spans);
    cddpi_free(trace->calls);
    cddpi_free(trace);
}

void cddpi_trace_step(cddp_group *group, uint64_t step, bool *out_begins)
{
    struct cddpi_trace *trace = group->trace;

    if (trace == NULL || (!trace->on && (step < trace->first || step > trace->last))) {
        return;
    }
    if (!trace->on) {
        trace->on = true;
        trace->taken = atomic_load_explicit(&group->recorder.serial, memory_order_acquire);
        if (out_begins != NULL) {
            *out_begins = true;
        }
    } else {
        take_calls(trace, &group->recorder, false);
        if (step > trace->last) {
            cddpi_trace_close(group);
            return;
        }
    }
    trace->step = step;
}
