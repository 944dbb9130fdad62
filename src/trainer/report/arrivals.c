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

enum { STEPS = 64 };

/* Times in one step, in seconds; NaN: unknown. */
struct arrivals_times {
    double forward_end, backward_end, step, exposed;
    double *ready;                      /* one for each parameter */
    double *bucket_start, *bucket_done; /* one for each bucket */
};

struct cddpi_arrivals {
    char *path;
    const cddp_param *params;
    size_t param_count;
    struct arrivals_times steps[STEPS];
    uint64_t step_count;  /* steps so far; the last STEPS are kept */
    size_t bucket_count;  /* in each kept step */
    size_t bucket_room;   /* number of buckets that the memory can hold */
    double *bucket_times; /* memory of bucket_start and bucket_done, all steps */
    double *ready_times;  /* memory of ready, all steps */
    size_t *bucket_bytes;
    int64_t begin_ns; /* when this step's forward began */
    int64_t end_ns;   /* when the last step ended; 0: no step yet */
};

static struct arrivals_times *this_step(struct cddpi_arrivals *arrivals)
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
        this_step(arrivals)->ready[i] = NAN;
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
        this_step(arrivals)->forward_end = since_begin(arrivals);
    }
}

void cddpi_arrivals_note(struct cddpi_arrivals *arrivals, size_t index)
{
    if (arrivals != NULL) {
        this_step(arrivals)->ready[index] = since_begin(arrivals);
    }
}

void cddpi_arrivals_backward_end(struct cddpi_arrivals *arrivals)
{
    if (arrivals != NULL) {
        this_step(arrivals)->backward_end = since_begin(arrivals);
    }
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

/* Forget the kept steps: the buckets have changed, so older steps cannot be compared with newer
 * ones. */
static void forget_steps(struct cddpi_arrivals *arrivals, size_t bucket_count)
{
    struct arrivals_times latest = *this_step(arrivals);

    *this_step(arrivals) = arrivals->steps[0];
    arrivals->steps[0] = latest;
    arrivals->step_count = 0;
    arrivals->bucket_count = bucket_count;
}

cddp_status cddpi_arrivals_end(struct cddpi_arrivals *arrivals, const cddp_ddp *ddp)
{
    cddp_ddp_stats stats = CDDP_DDP_STATS_INIT;
    int64_t now_ns = cddpi_now_ns();
    struct arrivals_times *times;
    double first = INFINITY; /* when the first gradient became ready; buckets' times begin there */

    if (arrivals == NULL) {
        return CDDP_OK;
    }
    CDDPI_TRY(cddp_ddp_get_stats(ddp, &stats));
    if (stats.buckets != arrivals->bucket_count) {
        forget_steps(arrivals, stats.buckets);
        CDDPI_TRY(reserve_buckets(arrivals, stats.buckets));
    }
    times = this_step(arrivals);
    times->exposed = (double)stats.exposed_ns / 1e9;
    times->step = arrivals->end_ns > 0 ? (double)(now_ns - arrivals->end_ns) / 1e9 - times->exposed
                                       : NAN;
    arrivals->end_ns = now_ns;
    for (size_t i = 0; i < arrivals->param_count; i++) {
        first = fmin(first, times->ready[i]); /* fmin() ignores NaN */
    }
    for (size_t b = 0; b < stats.buckets; b++) {
        cddp_bucket_stats bucket = {.struct_size = sizeof bucket};

        CDDPI_TRY(cddp_ddp_get_bucket_stats(ddp, b, &bucket));
        times->bucket_start[b] = first + (double)bucket.start_ns / 1e9;
        times->bucket_done[b] = first + (double)bucket.end_ns / 1e9;
        arrivals->bucket_bytes[b] = bucket.bytes;
    }
    arrivals->step_count++;
    return CDDP_OK;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a;
    double y = *(const double *)b;

    return (x > y) - (x < y);
}

static size_t steps_kept(const struct cddpi_arrivals *arrivals)
{
    return arrivals->step_count < STEPS ? (size_t)arrivals->step_count : STEPS;
}

/* The median of the values that are not NaN, or NaN. Reorders @p values. */
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

    for (size_t i = 0; i < steps_kept(arrivals); i++) {
        const struct arrivals_times *times = &arrivals->steps[i];

        values[i] = what == FORWARD_END    ? times->forward_end
                    : what == BACKWARD_END ? times->backward_end
                    : what == STEP         ? times->step
                    : what == EXPOSED      ? times->exposed
                    : what == READY        ? times->ready[index]
                    : what == BUCKET_START ? times->bucket_start[index]
                                           : times->bucket_done[index];
    }
    return median(values, steps_kept(arrivals));
}

/* Releases @p json. */
static cddp_status put_json(struct cddpi_writer *writer, json_t *json)
{
    char *text = json != NULL ? json_dumps(json, JSON_REAL_PRECISION(9)) : NULL;
    cddp_status status;

    json_decref(json);
    CDDPI_TRY_MEMORY(text != NULL, "no memory for the arrivals of gradients");
    status = cddpi_writer_put_line(writer, text);
    free(text);
    return status;
}

static cddp_status put_all(void *context, struct cddpi_writer *writer)
{
    const struct cddpi_arrivals *arrivals = context;
    double backward_end = median_of(arrivals, BACKWARD_END, 0);

    for (size_t i = 0; i < arrivals->param_count; i++) {
        const cddp_param *param = &arrivals->params[i];
        double ready = median_of(arrivals, READY, i);
        size_t bytes = cddpi_elements(param->dims, param->shape) * cddp_type_bytes(param->type);

        if (!isnan(ready)) {
            CDDPI_TRY(put_json(writer, json_pack("{s:s, s:I, s:f}", "gradient", param->name,
                                                 "bytes", (json_int_t)bytes, "ready_s", ready)));
        }
    }
    for (size_t b = 0; b < arrivals->bucket_count; b++) {
        CDDPI_TRY(put_json(writer, json_pack("{s:I, s:I, s:f, s:f}", "bucket", (json_int_t)b,
                                             "bytes", (json_int_t)arrivals->bucket_bytes[b],
                                             "ready_s", median_of(arrivals, BUCKET_START, b),
                                             "done_s", median_of(arrivals, BUCKET_DONE, b))));
    }
    /* The step's median is independent of the other medians, and so could be less than these. */
    return put_json(writer,
                    json_pack("{s:f, s:f, s:f, s:f, s:I}", "forward_end_s",
                              median_of(arrivals, FORWARD_END, 0), "backward_end_s", backward_end,
                              "step_s", fmax(median_of(arrivals, STEP, 0), backward_end),
                              "exposed_s", median_of(arrivals, EXPOSED, 0), "steps",
                              (json_int_t)steps_kept(arrivals)));
}

cddp_status cddpi_arrivals_write(const struct cddpi_arrivals *arrivals)
{
    if (arrivals == NULL ||
        arrivals->step_count < 2) { /* a step's time is known when the next begins */
        return CDDP_OK;
    }
    return cddpi_file_replace(arrivals->path, put_all, (void *)arrivals);
}
