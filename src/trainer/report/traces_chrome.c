/* traces_chrome.c - writes traces in the format of chrome://tracing and ui.perfetto.dev: a process
 * per rank, with threads for compute, the loader, buckets, collectives and devices. */
#include "report/traces.h"

#include "base/error.h"
#include "base/replace.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

enum { COMPUTE, LOADER, BUCKETS, COLLECTIVES, DEVICES, LINES };

/* Overlapping events go to different threads. */
enum { LINES_AT_ONCE = 16, THREADS = LINES * LINES_AT_ONCE };

struct events {
    struct cddpi_writer *writer;
    cddp_status status;
    bool any;
};

/* Releases @p json. */
static void put_event(struct events *events, json_t *json)
{
    char *text = json != NULL ? json_dumps(json, JSON_COMPACT | JSON_REAL_PRECISION(15)) : NULL;

    json_decref(json);
    if (text == NULL) {
        events->status = events->status == CDDP_OK
                             ? cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for a trace")
                             : events->status;
        return;
    }
    if (events->status == CDDP_OK && events->any) {
        events->status = cddpi_writer_put(events->writer, ",\n", 2);
    }
    if (events->status == CDDP_OK) {
        events->status = cddpi_writer_put(events->writer, text, strlen(text));
    }
    events->any = true;
    free(text);
}

static void put_name(struct events *events, int rank, int thread, const char *what,
                     const char *name)
{
    put_event(events, json_pack("{s:s, s:s, s:i, s:i, s:{s:s}}", "ph", "M", "name", what, "pid",
                                rank, "tid", thread, "args", "name", name));
}

/* A thread of @p line that is free at @p begin_ns; if all are busy, the line's last one. */
static int thread_at(int64_t ends[THREADS], int line, int64_t begin_ns, int64_t end_ns)
{
    int thread = line * LINES_AT_ONCE;

    while (thread < (line + 1) * LINES_AT_ONCE - 1 && ends[thread] > begin_ns) {
        thread++;
    }
    ends[thread] = end_ns > ends[thread] ? end_ns : ends[thread];
    return thread;
}

/* Each device has a thread, but all devices from LINES_AT_ONCE - 1 on share one. */
static int device_thread(int64_t ends[THREADS], const struct cddpi_traced_span *span)
{
    int below = span->device < LINES_AT_ONCE ? span->device : LINES_AT_ONCE - 1;

    ends[DEVICES * LINES_AT_ONCE + below] = span->end_ns;
    return DEVICES * LINES_AT_ONCE + below;
}

static int line_of(const char *name)
{
    return strcmp(name, "loader") == 0 ? LOADER : strcmp(name, "bucket") == 0 ? BUCKETS : COMPUTE;
}

static json_t *make_event(const struct cddpi_traces *traces, const char *name, int rank, int thread,
                          int64_t begin_ns, int64_t end_ns, json_t *arguments)
{
    return json_pack("{s:s, s:s, s:i, s:i, s:f, s:f, s:o}", "ph", "X", "name", name, "pid", rank,
                     "tid", thread, "ts", (double)(begin_ns - traces->begin_ns) * 1e-3, "dur",
                     (double)(end_ns - begin_ns) * 1e-3, "args", arguments);
}

static void put_spans(struct events *events, const struct cddpi_traces *traces,
                      const struct cddpi_traced_rank *rank, int64_t ends[THREADS])
{
    for (size_t i = 0; i < rank->span_count; i++) {
        const struct cddpi_traced_span *span = &rank->spans[i];
        int line = line_of(span->name);
        int thread = span->device >= 0 ? device_thread(ends, span)
                     : line == COMPUTE ? 0 /* nested in the step, one after the other */
                                       : thread_at(ends, line, span->begin_ns, span->end_ns);
        json_t *arguments = json_pack("{s:I}", "step", (json_int_t)span->step);
        char name[CDDPI_TRACE_NAME_BYTES + 32];

        snprintf(name, sizeof name, "%s", span->name);
        if (span->number >= 0) {
            snprintf(name, sizeof name, "%s %lld", span->name, (long long)span->number);
            (void)json_object_set_new(arguments, "bytes", json_integer((json_int_t)span->bytes));
        } else if (strcmp(span->name, "step") == 0) {
            snprintf(name, sizeof name, "step %llu", (unsigned long long)span->step);
        }
        put_event(events, make_event(traces, name, rank->rank, thread, span->begin_ns, span->end_ns,
                                     arguments));
    }
}

static void put_calls(struct events *events, const struct cddpi_traces *traces,
                      const struct cddpi_traced_rank *rank, int64_t ends[THREADS])
{
    for (size_t i = 0; i < rank->call_count; i++) {
        const struct cddpi_traced_call *call = &rank->calls[i];
        int64_t begin = call->started_ns != INT64_MIN ? call->started_ns : call->enqueued_ns;
        int64_t end = call->finished_ns != INT64_MIN ? call->finished_ns : traces->end_ns;
        json_t *arguments;

        if (begin == INT64_MIN) {
            continue;
        }
        arguments = json_pack(
            "{s:I, s:I, s:s, s:s, s:f}", "number", (json_int_t)call->number, "bytes",
            (json_int_t)call->bytes, "type", call->type, "state", call->state, "queued_us",
            call->enqueued_ns != INT64_MIN ? (double)(begin - call->enqueued_ns) * 1e-3 : 0.0);
        if (call->call > 0) {
            (void)json_object_set_new(arguments, "call", json_integer((json_int_t)call->call));
        }
        if (call->bucket >= 0) {
            (void)json_object_set_new(arguments, "bucket", json_integer(call->bucket));
        }
        put_event(events,
                  make_event(traces, call->operation, rank->rank,
                             thread_at(ends, COLLECTIVES, begin, end), begin, end, arguments));
    }
}

static void put_rank(struct events *events, const struct cddpi_traces *traces,
                     const struct cddpi_traced_rank *rank)
{
    static const char *const names[LINES] = {[COMPUTE] = "compute",
                                             [LOADER] = "loader",
                                             [BUCKETS] = "buckets",
                                             [COLLECTIVES] = "collectives",
                                             [DEVICES] = "device"};
    int64_t ends[THREADS];
    char name[128];

    for (int i = 0; i < THREADS; i++) {
        ends[i] = INT64_MIN;
    }
    snprintf(name, sizeof name, "rank %d (%s)", rank->rank, rank->host);
    put_name(events, rank->rank, 0, "process_name", name);
    put_event(events, json_pack("{s:s, s:s, s:i, s:{s:i}}", "ph", "M", "name", "process_sort_index",
                                "pid", rank->rank, "args", "sort_index", rank->rank));
    put_spans(events, traces, rank, ends);
    put_calls(events, traces, rank, ends);
    ends[0] = 0;
    for (int i = 0; i < THREADS; i++) {
        if (ends[i] != INT64_MIN) {
            put_name(events, rank->rank, i, "thread_name", names[i / LINES_AT_ONCE]);
        }
    }
}

static cddp_status put_all(void *context, struct cddpi_writer *writer)
{
    static const char head[] = "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[\n";
    static const char tail[] = "\n]}\n";
    const struct cddpi_traces *traces = context;
    struct events events = {.writer = writer};

    events.status = cddpi_writer_put(writer, head, sizeof head - 1);
    for (int r = 0; r < traces->count; r++) {
        put_rank(&events, traces, &traces->ranks[r]);
    }
    return events.status == CDDP_OK ? cddpi_writer_put(writer, tail, sizeof tail - 1)
                                    : events.status;
}

cddp_status cddpi_traces_write_chrome(const struct cddpi_traces *traces, const char *path)
{
    struct cddpi_traces copy = *traces;

    return cddpi_file_replace(path, put_all, &copy);
}
