/* arrivals.c - keeps the times of the last steps and writes their medians. */
#include "report/arrivals.h"

#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/replace.h"
#include "base/shape.h"

#include <jansson.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STEPS = 64 };

/* Of one step, in seconds; NaN: not there. */
struct arrivals_times {
    double forward_end, backward_end, step, exposed;
    double *ready;                      /* by parameter */
    double *bucket_start, *bucket_done; /* by bucket */
};

struct cddpi_arrivals {
    char *path;
    const cddp_param *params;
    size_t param_count;
    struct arrivals_times steps[STEPS];
    uint64_t step_count;  /* kept so far: the last STEPS of them are there */
    size_t bucket_count;  /* in all steps that are there */
    size_t bucket_room;   /* of them there is memory for so many */
    double *bucket_times; /* of all steps */
    double *ready_times;  /* the same */
    size_t *bucket_bytes; /* likewise */
    int64_t begin_ns;     /* of the forward at hand */
    int64_t end_ns;       /* of the last step; 0: there was none */
};

static struct arrivals_times *present(struct cddpi_arrivals *arrivals)
{
    return &arrivals->steps[arrivals->step_count % STEPS];
}

cddp_status cddpi_arrivals_open(const char *path, const cddp_param *params, size_t count,
                                struct cddpi_arrivals **out)
{
    struct cddpi_arrivals *arrivals = cddpi_zalloc(sizeof *arrivals);
    double *all = cddpi_zalloc_array(STEPS, count * sizeof *all);
    char *copy = cddpi_strdup(path);

    if (arrivals == NULL || all == NULL || copy == NULL) {
        cddpi_free(arrivals);
        cddpi_free(all);
        cddpi_free(copy);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for the arrivals of %zu gradients", count);
    }
    *arrivals = (struct cddpi_arrivals){
        .path = copy, .params = params, .param_count = count, .ready_times = all};
    for (size_t i = 0; i < STEPS; i++) {
        arrivals->steps[i].ready = all + i * count;
    }
    *out = arrivals;
    return CDDP_OK;
}

void cddpi_arrivals_close(struct cddpi_arrivals *arrivals)
{
    if (arrivals != NULL) {
        cddpi_free(arrivals->path);
        cddpi_free(arrivals->ready_times);
        cddpi_free(arrivals->bucket_bytes);
        cddpi_free(arrivals->bucket_times);
        cddpi_free(arrivals);
    }
}

void cddpi_arrivals_begin(struct cddpi_arrivals *arrivals)
{
    if (arrivals == NULL) {
        return;
    }
    for (size_t i = 0; i < arrivals->param_count; i++) {
        present(arrivals)->ready[i] = NAN;
    }
    arrivals->begin_ns = cddpi_now_ns();
}

static double since_begin(const struct cddpi_arrivals *arrivals)
{
    return (double)(cddpi_now_ns() - arrivals->begin_ns) / 1e9;
}

void cddpi_arrivals_forward_end(struct cddpi_arrivals *arrivals)
{
    if (arrivals != NULL) {
        present(arrivals)->forward_end = since_begin(arrivals);
    }
}

void cddpi_arrivals_note(struct cddpi_arrivals *arrivals, size_t index)
{
    if (arrivals != NULL) {
        present(arrivals)->ready[index] = since_begin(arrivals);
    }
}

void cddpi_arrivals_backward_end(struct cddpi_arrivals *arrivals)
{
    if (arrivals != NULL) {
        present(arrivals)->backward_end = since_begin(arrivals);
    }
}

/* The first gradient, from which the times of buckets count. */
static double first_ready(const struct arrivals_times *times, size_t count)
{
    double first = INFINITY;

    for (size_t i = 0; i < count; i++) {
        first = fmin(first, times->ready[i]); /* a NaN is not taken */
    }
    return first;
}

/* Make room for the times of @p count buckets. */
static cddp_status reserve_buckets(struct cddpi_arrivals *arrivals, size_t count)
{
    size_t *bytes;
    double *all;

    if (count <= arrivals->bucket_room) {
        return CDDP_OK;
    }
    bytes = cddpi_zalloc_array(count, sizeof *bytes);
    all = cddpi_zalloc_array((size_t)2 * STEPS, count * sizeof *all);
    if (bytes == NULL || all == NULL) {
        cddpi_free(bytes);
        cddpi_free(all);
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for the arrivals of %zu buckets", count);
    }
    cddpi_free(arrivals->bucket_bytes);
    cddpi_free(arrivals->bucket_times);
    arrivals->bucket_bytes = bytes;
    arrivals->bucket_times = all;
    arrivals->bucket_room = count;
    for (size_t i = 0; i < STEPS; i++) {
        arrivals->steps[i].bucket_start = all + 2 * i * count;
        arrivals->steps[i].bucket_done = all + (2 * i + 1) * count;
    }
    return CDDP_OK;
}

/* Buckets are others than before: what was kept is of no use beside them. */
static void forget_steps(struct cddpi_arrivals *arrivals, size_t bucket_count)
{
    struct arrivals_times latest = *present(arrivals);

    *present(arrivals) = arrivals->steps[0];
    arrivals->steps[0] = latest;
    arrivals->step_count = 0;
    arrivals->bucket_count = bucket_count;
}

cddp_status cddpi_arrivals_end(struct cddpi_arrivals *arrivals, const cddp_ddp *ddp)
{
    cddp_ddp_stats stats = CDDP_DDP_STATS_INIT;
    int64_t now_ns = cddpi_now_ns();
    cddp_status status;

    if (arrivals == NULL) {
        return CDDP_OK;
    }
    status = cddp_ddp_get_stats(ddp, &stats);
    if (status == CDDP_OK && stats.buckets != arrivals->bucket_count) {
        forget_steps(arrivals, stats.buckets);
        status = reserve_buckets(arrivals, stats.buckets);
    }
    present(arrivals)->exposed = (double)stats.exposed_ns / 1e9;
    present(arrivals)->step = arrivals->end_ns > 0 ? (double)(now_ns - arrivals->end_ns) / 1e9 -
                                                         present(arrivals)->exposed
                                                   : NAN;
    arrivals->end_ns = now_ns;
    for (size_t b = 0; b < stats.buckets && status == CDDP_OK; b++) {
        struct arrivals_times *times = present(arrivals);
        double first = first_ready(times, arrivals->param_count);
        cddp_bucket_stats bucket = {.struct_size = sizeof bucket};

        status = cddp_ddp_get_bucket_stats(ddp, b, &bucket);
        times->bucket_start[b] = first + (double)bucket.start_ns / 1e9;
        times->bucket_done[b] = first + (double)bucket.end_ns / 1e9;
        arrivals->bucket_bytes[b] = bucket.bytes;
    }
    arrivals->step_count += status == CDDP_OK;
    return status;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

static size_t kept(const struct cddpi_arrivals *arrivals)
{
    return arrivals->step_count < STEPS ? (size_t)arrivals->step_count : STEPS;
}

/* Of those that are not NaN; of none, NaN. Reorders @p values. */
static double median(double *values, size_t count)
{
    size_t there = 0;

    for (size_t i = 0; i < count; i++) {
        if (!isnan(values[i])) {
            values[there++] = values[i];
        }
    }
    qsort(values, there, sizeof *values, by_value);
    return there > 0 ? values[there / 2] : NAN;
}

enum what { FORWARD_END, BACKWARD_END, STEP, EXPOSED, READY, BUCKET_START, BUCKET_DONE };

static double median_of(const struct cddpi_arrivals *arrivals, enum what what, size_t index)
{
    double values[STEPS];

    for (size_t i = 0; i < kept(arrivals); i++) {
        const struct arrivals_times *times = &arrivals->steps[i];

        values[i] = what == FORWARD_END    ? times->forward_end
                    : what == BACKWARD_END ? times->backward_end
                    : what == STEP         ? times->step
                    : what == EXPOSED      ? times->exposed
                    : what == READY        ? times->ready[index]
                    : what == BUCKET_START ? times->bucket_start[index]
                                           : times->bucket_done[index];
    }
    return median(values, kept(arrivals));
}

/* Takes @p json over. */
static cddp_status put_json(struct cddpi_writer *writer, json_t *json)
{
    char *text = json != NULL ? json_dumps(json, JSON_REAL_PRECISION(9)) : NULL;
    cddp_status status;

    json_decref(json);
    if (text == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "no memory for the arrivals of gradients");
    }
    status = cddpi_writer_put_line(writer, text);
    free(text);
    return status;
}

static cddp_status put_all(void *context, struct cddpi_writer *writer)
{
    const struct cddpi_arrivals *arrivals = context;
    cddp_status status = CDDP_OK;

    for (size_t i = 0; i < arrivals->param_count && status == CDDP_OK; i++) {
        const cddp_param *param = &arrivals->params[i];
        double ready = median_of(arrivals, READY, i);
        size_t bytes = cddpi_elements(param->dims, param->shape) * cddp_type_bytes(param->type);

        if (!isnan(ready)) {
            status = put_json(writer, json_pack("{s:s, s:I, s:f}", "gradient", param->name, "bytes",
                                                (json_int_t)bytes, "ready_s", ready));
        }
    }
    for (size_t b = 0; b < arrivals->bucket_count && status == CDDP_OK; b++) {
        status = put_json(writer, json_pack("{s:I, s:I, s:f, s:f}", "bucket", (json_int_t)b,
                                            "bytes", (json_int_t)arrivals->bucket_bytes[b],
                                            "ready_s", median_of(arrivals, BUCKET_START, b),
                                            "done_s", median_of(arrivals, BUCKET_DONE, b)));
    }
    if (status == CDDP_OK) {
        double backward_end = median_of(arrivals, BACKWARD_END, 0);
        double step = fmax(median_of(arrivals, STEP, 0), backward_end); /* of other steps */

        status = put_json(writer, json_pack("{s:f, s:f, s:f, s:f, s:I}", "forward_end_s",
                                            median_of(arrivals, FORWARD_END, 0), "backward_end_s",
                                            backward_end, "step_s", step, "exposed_s",
                                            median_of(arrivals, EXPOSED, 0), "steps",
                                            (json_int_t)kept(arrivals)));
    }
    return status;
}

cddp_status cddpi_arrivals_write(const struct cddpi_arrivals *arrivals)
{
    if (arrivals == NULL || arrivals->step_count < 2) { /* a step lasts until the next one */
        return CDDP_OK;
    }
    return cddpi_file_replace(arrivals->path, put_all, (void *)arrivals);
}
