/* traces.c - reads the traces of ranks and puts them on one clock.
 *
 * Ranks of one machine share the monotonic clock. Between machines, each operation of all ranks
 * bounds the difference of two clocks: no rank leaves the operation before all have entered it, so
 * in common time every rank ends it after every rank has begun it. A trace begins with a few
 * barriers for this. The intersection of all bounds is as narrow as the quickest exchange. */
#include "report/traces.h"

#include "base/alloc.h"
#include "base/error.h"
#include "base/file.h"
#include "base/utf8.h"
#include "device/parallel.h"

#include <glob.h>
#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_RANKS = 1 << 16 };

static int64_t number_of(const json_t *object, const char *name, int64_t otherwise)
{
    const json_t *value = json_object_get(object, name);

    return json_is_integer(value) ? json_integer_value(value) : otherwise;
}

/* Read a time. A number that no clock can show counts as missing, so that sums of two times cannot
 * overflow. */
static int64_t time_of(const json_t *object, const char *name, int64_t otherwise)
{
    const int64_t most = (int64_t)1 << 60;
    int64_t ns = number_of(object, name, otherwise);

    return ns >= -most && ns <= most ? ns : otherwise;
}

/* Copy a text that anyone may have written, so that it is safe in terminals and pictures. */
static void copy_text(char *to, size_t bytes, const json_t *object, const char *name)
{
    const char *text = json_string_value(json_object_get(object, name));

    snprintf(to, bytes, "%s", text != NULL ? text : "");
    cddpi_text_clean(to, bytes, true);
}

static void read_span(const json_t *json, struct cddpi_traced_span *out)
{
    int64_t device;

    copy_text(out->name, sizeof out->name, json, "name");
    out->begin_ns = time_of(json, "begin_ns", 0);
    out->end_ns = time_of(json, "end_ns", 0);
    out->step = (uint64_t)number_of(json, "step", 0);
    out->number = number_of(json, "number", -1);
    device = number_of(json, "device", -1);
    out->device = device >= 0 && device < CDDP_MAX_PARALLEL_DEVICES ? (int)device : -1;
    out->bytes = (uint64_t)number_of(json, "bytes", 0);
}

static void read_call(const json_t *json, struct cddpi_traced_call *out)
{
    copy_text(out->operation, sizeof out->operation, json, "operation");
    copy_text(out->state, sizeof out->state, json, "state");
    copy_text(out->type, sizeof out->type, json, "type");
    out->number = (uint64_t)number_of(json, "number", 0);
    out->bytes = (uint64_t)number_of(json, "bytes", 0);
    out->call = (uint64_t)number_of(json, "call", 0);
    out->bucket = number_of(json, "bucket", -1);
    out->on_device = json_is_true(json_object_get(json, "on_device"));
    out->is_message = json_object_get(json, "peer") != NULL;
    out->enqueued_ns = time_of(json, "enqueued_ns", INT64_MIN);
    out->started_ns = time_of(json, "started_ns", INT64_MIN);
    out->finished_ns = time_of(json, "finished_ns", INT64_MIN);
}

static cddp_status read_rank(const json_t *json, const char *path, struct cddpi_traced_rank *out,
                             int *out_world_size)
{
    json_t *spans = json_object_get(json, "spans");
    json_t *calls = json_object_get(json, "calls");
    int64_t rank = number_of(json, "rank", -1);
    int64_t world_size = number_of(json, "world_size", 0);

    if (rank < 0 || world_size < 1 || world_size > MOST_RANKS || rank >= world_size ||
        !json_is_array(calls)) {
        return cddpi_fail(CDDP_ERR_FORMAT, "%s is not what a rank of cddp has traced", path);
    }
    out->rank = (int)rank;
    *out_world_size = (int)world_size;
    copy_text(out->host, sizeof out->host, json, "host");
    copy_text(out->machine, sizeof out->machine, json, "machine");
    out->span_count = json_array_size(spans);
    out->call_count = json_array_size(calls);
    out->spans = cddpi_zalloc_array(out->span_count + 1, sizeof *out->spans);
    out->calls = cddpi_zalloc_array(out->call_count + 1, sizeof *out->calls);
    CDDPI_TRY_MEMORY(out->spans != NULL && out->calls != NULL, "%s: no memory", path);
    for (size_t i = 0; i < out->span_count; i++) {
        read_span(json_array_get(spans, i), &out->spans[i]);
    }
    for (size_t i = 0; i < out->call_count; i++) {
        read_call(json_array_get(calls, i), &out->calls[i]);
    }
    return cddpi_traces_sort_calls(out);
}

static cddp_status read_file(const char *path, struct cddpi_traced_rank *out, int *out_world_size)
{
    json_error_t error;
    json_t *json;
    FILE *file = NULL;
    cddp_status status;

    CDDPI_TRY(cddpi_file_stream(path, "r", &file));
    json = json_loadf(file, 0, &error);
    fclose(file);
    if (json == NULL) {
        return cddpi_fail(CDDP_ERR_FORMAT, "%s: %s", path, error.text);
    }
    status = read_rank(json, path, out, out_world_size);
    json_decref(json);
    return status;
}

static bool has_ended(const struct cddpi_traced_call *call)
{
    return strcmp(call->state, "done") == 0 && call->enqueued_ns != INT64_MIN &&
           call->finished_ns != INT64_MIN;
}

/* Whether no rank leaves the operation before all ranks have entered it. */
static bool is_mutual(const struct cddpi_traced_call *call)
{
    return strcmp(call->operation, "barrier") == 0 || strcmp(call->operation, "all_reduce") == 0 ||
           strcmp(call->operation, "all_gather") == 0;
}

/* How far the clock of @p rank is behind the clock of @p first. */
static void find_offset(const struct cddpi_traced_rank *first, struct cddpi_traced_rank *rank)
{
    double low = -INFINITY;
    double high = INFINITY;

    if (strcmp(first->machine, rank->machine) == 0 && rank->machine[0] != '\0') {
        return;
    }
    for (size_t i = 0; i < first->call_count; i++) {
        const struct cddpi_traced_call *ours = &first->calls[i];
        const struct cddpi_traced_call *theirs;

        if (!is_mutual(ours) || !has_ended(ours)) {
            continue;
        }
        theirs = cddpi_traces_find_call(rank, ours);
        if (theirs == NULL || !has_ended(theirs) ||
            strcmp(theirs->operation, ours->operation) != 0) {
            continue;
        }
        low = fmax(low, (double)(ours->enqueued_ns - theirs->finished_ns));
        high = fmin(high, (double)(ours->finished_ns - theirs->enqueued_ns));
    }
    if (isfinite(low) && isfinite(high)) {
        rank->offset_ns = (low + high) / 2;
        rank->uncertainty_ns = fabs(high - low) / 2; /* high < low if the clocks drift */
    } else {
        rank->uncertainty_ns = INFINITY;
    }
}

static void move_time(int64_t *ns, int64_t by)
{
    if (*ns != INT64_MIN) {
        *ns += by;
    }
}

static void widen_range(struct cddpi_traces *traces, int64_t begin_ns, int64_t end_ns)
{
    if (begin_ns != INT64_MIN && begin_ns < traces->begin_ns) {
        traces->begin_ns = begin_ns;
    }
    if (end_ns != INT64_MIN && end_ns > traces->end_ns) {
        traces->end_ns = end_ns;
    }
}

/* Convert all times to the first rank's clock. */
static void align_clocks(struct cddpi_traces *traces)
{
    traces->begin_ns = INT64_MAX;
    traces->end_ns = INT64_MIN;
    for (int r = 0; r < traces->count; r++) {
        struct cddpi_traced_rank *rank = &traces->ranks[r];
        int64_t by;

        find_offset(&traces->ranks[0], rank);
        by = (int64_t)rank->offset_ns;
        for (size_t i = 0; i < rank->span_count; i++) {
            move_time(&rank->spans[i].begin_ns, by);
            move_time(&rank->spans[i].end_ns, by);
            widen_range(traces, rank->spans[i].begin_ns, rank->spans[i].end_ns);
        }
        for (size_t i = 0; i < rank->call_count; i++) {
            move_time(&rank->calls[i].enqueued_ns, by);
            move_time(&rank->calls[i].started_ns, by);
            move_time(&rank->calls[i].finished_ns, by);
            widen_range(traces, rank->calls[i].enqueued_ns, rank->calls[i].finished_ns);
        }
    }
    if (traces->begin_ns > traces->end_ns) {
        traces->begin_ns = traces->end_ns = 0;
    }
}

static int by_rank(const void *a, const void *b)
{
    return ((const struct cddpi_traced_rank *)a)->rank -
           ((const struct cddpi_traced_rank *)b)->rank;
}

cddp_status cddpi_traces_read(char *const *paths, int count, struct cddpi_traces *out)
{
    struct cddpi_traces traces = {0};
    cddp_status status;

    traces.ranks = cddpi_zalloc_array((size_t)count + 1, sizeof *traces.ranks);
    CDDPI_TRY_MEMORY(traces.ranks != NULL, "no memory for %d traces", count);
    for (int i = 0; i < count; i++) {
        int world_size = 0;

        traces.count++;
        CDDPI_TRY_GOTO(fail, status, read_file(paths[i], &traces.ranks[i], &world_size));
        traces.world_size = world_size > traces.world_size ? world_size : traces.world_size;
    }
    qsort(traces.ranks, (size_t)count, sizeof *traces.ranks, by_rank);
    for (int i = 1; i < count; i++) {
        if (traces.ranks[i].rank == traces.ranks[i - 1].rank) {
            status = cddpi_fail(CDDP_ERR_ARGUMENT,
                                "two of the files are of rank %d: give one of each rank",
                                traces.ranks[i].rank);
            goto fail;
        }
    }
    align_clocks(&traces);
    CDDPI_TRY_GOTO(fail, status, cddpi_traces_find_steps(&traces));
    *out = traces;
    return CDDP_OK;

fail:
    cddpi_traces_fini(&traces);
    return status;
}

/* The generation in a name like "rank-3.generation-2.json". Returns -1 if the file is from another
 * part of the job's ranks. */
static long generation_of(const char *path)
{
    const char *name = strrchr(path, '/');
    const char *text;

    name = name != NULL ? name + 1 : path;
    if (strstr(name, ".part-") != NULL) {
        return -1;
    }
    text = strstr(name, ".generation-");
    return text != NULL ? strtol(text + strlen(".generation-"), NULL, 10) : 0;
}

/* Sort the files of the newest generation first. Returns their number. */
static int sort_newest_first(char **paths, size_t count)
{
    long newest = -1;
    int newest_count = 0;

    for (size_t i = 0; i < count; i++) {
        long generation = generation_of(paths[i]);

        newest = generation > newest ? generation : newest;
    }
    for (size_t i = 0; i < count && newest >= 0; i++) {
        if (generation_of(paths[i]) == newest) {
            char *path = paths[i];

            paths[i] = paths[newest_count];
            paths[newest_count++] = path;
        }
    }
    return newest_count;
}

cddp_status cddpi_traces_read_folder(const char *dir, struct cddpi_traces *out)
{
    static const char *const folders[] = {"trace", "collectives"};

    for (size_t f = 0; f < sizeof folders / sizeof folders[0]; f++) {
        char *pattern = cddpi_format("%s/%s/rank-*.json", dir, folders[f]);
        glob_t found = {0};
        cddp_status status = CDDP_OK;
        int count = 0;

        if (pattern != NULL && glob(pattern, GLOB_NOSORT, NULL, &found) == 0) {
            count = sort_newest_first(found.gl_pathv, found.gl_pathc);
        }
        if (count > 0) {
            status = cddpi_traces_read(found.gl_pathv, count, out);
        }
        globfree(&found);
        cddpi_free(pattern);
        if (count > 0) {
            return status;
        }
    }
    return cddpi_fail(CDDP_ERR_NOT_FOUND,
                      "%s has no traces: train.trace=\"10-20\" or CDDP_TRACE=10-20 make them", dir);
}

void cddpi_traces_fini(struct cddpi_traces *traces)
{
    for (int r = 0; r < traces->count; r++) {
        cddpi_free(traces->ranks[r].spans);
        cddpi_free(traces->ranks[r].calls);
        cddpi_free(traces->ranks[r].by_number);
    }
    cddpi_free(traces->ranks);
    cddpi_free(traces->steps);
    *traces = (struct cddpi_traces){0};
}
