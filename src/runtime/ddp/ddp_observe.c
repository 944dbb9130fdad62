/* ddp_observe.c - owns the times of steps on a device, and what log and trace say about steps.
 *
 * Times come from events in the streams, which are read once they have passed, at least one step
 * later; nothing here waits. The log has each bucket's plan, the trace has the wait and the buckets
 * of each step. If only CDDP_TRACE opens the trace (in a trainer that is not cddp's), this file
 * also marks the steps. */
#include "ddp/ddp_observe.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/env.h"
#include "base/log.h"
#include "ddp/ddp_step.h"
#include "group/device/group_device.h"
#include "group/watch/group_trace.h"

/* The most measured steps that may be unread. At that limit, no further step is measured. */
enum { STEPS = 4 };

struct timing_times {
    struct cddpi_event *begin;           /* backward begins: its first gradient is ready */
    struct cddpi_event *at_wait;         /* compute begins to wait */
    struct cddpi_event *after_wait;      /* compute goes on */
    struct cddpi_event **starts, **ends; /* by bucket: its reduction */
    struct cddpi_event *last; /* the last of `ends` that was recorded: all others pass before it */
    struct cddpi_bucket_plan_bucket *planned;
    size_t capacity; /* buckets that the arrays have room for */
    size_t count;    /* buckets of the step that was measured */
};

struct cddpi_timing {
    struct timing_times steps[STEPS];
    unsigned first;   /* the oldest unread step */
    unsigned waiting; /* how many are unread */
    bool measuring;   /* the current step is measured, in the entry after the unread ones */
};

static struct timing_times *times_of_step(const cddp_ddp *ddp)
{
    struct cddpi_timing *timing = ddp->timing;

    if (timing == NULL || !timing->measuring) {
        return NULL;
    }
    return &timing->steps[(timing->first + timing->waiting) % STEPS];
}

static void release_times(const cddp_ddp *ddp, struct timing_times *times)
{
    const struct cddpi_device_ops *ops = ddp->device->ops;

    ops->event_destroy(ddp->device, times->begin);
    ops->event_destroy(ddp->device, times->at_wait);
    ops->event_destroy(ddp->device, times->after_wait);
    for (size_t b = 0; b < times->capacity; b++) {
        ops->event_destroy(ddp->device, times->starts[b]);
        ops->event_destroy(ddp->device, times->ends[b]);
    }
    cddpi_free(times->starts);
    cddpi_free(times->ends);
    cddpi_free(times->planned);
    *times = (struct timing_times){0};
}

static cddp_status make_times(const cddp_ddp *ddp, struct timing_times *times, size_t buckets)
{
    struct cddpi_device *device = ddp->device;

    release_times(ddp, times);
    times->starts = cddpi_zalloc_array(buckets, sizeof(struct cddpi_event *));
    times->ends = cddpi_zalloc_array(buckets, sizeof(struct cddpi_event *));
    times->planned = cddpi_zalloc_array(buckets, sizeof *times->planned);
    if (times->starts == NULL || times->ends == NULL || times->planned == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "ddp: no memory to measure %zu buckets", buckets);
    }
    times->capacity = buckets;
    CDDPI_TRY(device->ops->event_create(device, true, &times->begin));
    CDDPI_TRY(device->ops->event_create(device, true, &times->at_wait));
    CDDPI_TRY(device->ops->event_create(device, true, &times->after_wait));
    for (size_t b = 0; b < buckets; b++) {
        CDDPI_TRY(device->ops->event_create(device, true, &times->starts[b]));
        CDDPI_TRY(device->ops->event_create(device, true, &times->ends[b]));
    }
    return CDDP_OK;
}

static cddp_status record_event(const cddp_ddp *ddp, struct cddpi_event *event,
                                enum cddpi_stream stream)
{
    return ddp->device->ops->record(ddp->device, event, stream);
}

cddp_status cddpi_timing_begin(cddp_ddp *ddp)
{
    struct timing_times *times;
    size_t buckets = ddp->layout.plan->bucket_count;

    if (!cddpi_device_is_async(ddp->device)) {
        return CDDP_OK;
    }
    if (ddp->timing == NULL) {
        ddp->timing = cddpi_zalloc(sizeof *ddp->timing);
        if (ddp->timing == NULL) {
            return cddpi_fail(CDDP_ERR_NO_MEMORY, "ddp: no memory to measure steps");
        }
    }
    /* a captured step has no times of its own */
    ddp->timing->measuring = ddp->timing->waiting < STEPS && !ddp->backward.accumulates &&
                             !cddpi_group_is_capturing(ddp->group);
    times = times_of_step(ddp);
    if (times == NULL) {
        return CDDP_OK;
    }
    if (times->capacity < buckets) {
        CDDPI_TRY(make_times(ddp, times, buckets));
    }
    times->count = buckets;
    return record_event(ddp, times->begin, CDDPI_STREAM_COMPUTE);
}

cddp_status cddpi_timing_bucket_start(const struct cddpi_bucket *bucket)
{
    struct timing_times *times = times_of_step(bucket->ddp);

    if (times == NULL) {
        return CDDP_OK;
    }
    times->planned[bucket->index] = bucket->ddp->layout.plan->buckets[bucket->index];
    return record_event(bucket->ddp, times->starts[bucket->index], CDDPI_STREAM_COMPUTE);
}

cddp_status cddpi_timing_bucket_end(const struct cddpi_bucket *bucket)
{
    struct timing_times *times = times_of_step(bucket->ddp);

    if (times == NULL) {
        return CDDP_OK;
    }
    times->last = times->ends[bucket->index];
    /* a single rank's bucket is not reduced: it is complete in the compute stream */
    return record_event(bucket->ddp, times->last,
                        bucket->ddp->in_place ? CDDPI_STREAM_COMPUTE : CDDPI_STREAM_COMM);
}

cddp_status cddpi_timing_mark(cddp_ddp *ddp, enum cddpi_timing_point point)
{
    struct timing_times *times = times_of_step(ddp);
    cddp_status status;

    if (times == NULL) {
        return CDDP_OK;
    }
    status = record_event(ddp, point == CDDPI_AT_WAIT ? times->at_wait : times->after_wait,
                          CDDPI_STREAM_COMPUTE);
    if (point == CDDPI_AFTER_WAIT) {
        ddp->timing->measuring = false;
        ddp->timing->waiting++;
    }
    return status;
}

/* Nanoseconds from @p from to @p to, or 0 if @p to came first: the streams are not ordered. */
static cddp_status read_elapsed(const cddp_ddp *ddp, struct cddpi_event *from,
                                struct cddpi_event *to, uint64_t *out_ns)
{
    float ms = 0;
    cddp_status status = ddp->device->ops->elapsed(ddp->device, from, to, &ms);

    *out_ns = ms > 0 ? (uint64_t)((double)ms * 1e6) : 0;
    return status;
}

static cddp_status read_step(cddp_ddp *ddp, const struct timing_times *times)
{
    uint64_t first = UINT64_MAX;
    uint64_t last = 0;
    cddp_status status = read_elapsed(ddp, times->at_wait, times->after_wait,
                                      &ddp->stats.exposed_ns);

    ddp->stats.bytes = 0;
    for (size_t b = 0; b < times->count && status == CDDP_OK; b++) {
        cddp_bucket_stats *stats = &ddp->bucket_stats[b];

        stats->bytes = times->planned[b].payload;
        stats->params = times->planned[b].count;
        status = read_elapsed(ddp, times->begin, times->starts[b], &stats->start_ns);
        status = status == CDDP_OK ? read_elapsed(ddp, times->begin, times->ends[b], &stats->end_ns)
                                   : status;
        ddp->stats.bytes += stats->bytes;
        first = stats->start_ns < first ? stats->start_ns : first;
        last = stats->end_ns > last ? stats->end_ns : last;
    }
    ddp->stats.buckets = times->count;
    ddp->stats.comm_ns = last > first ? last - first : 0;
    ddp->stats.total_exposed_ns += ddp->stats.exposed_ns;
    ddp->end.times_known++;
    return status;
}

cddp_status cddpi_timing_read(cddp_ddp *ddp)
{
    struct cddpi_timing *timing = ddp->timing;
    while (timing != NULL && timing->waiting > 0) {
        struct timing_times *times = &timing->steps[timing->first];
        bool done = false;
        cddp_status status;

        CDDPI_TRY(ddp->device->ops->query(ddp->device, times->after_wait, &done));
        if (done) {
            CDDPI_TRY(ddp->device->ops->query(ddp->device, times->last, &done));
        }
        if (!done) {
            return CDDP_OK;
        }
        status = read_step(ddp, times);
        timing->first = (timing->first + 1) % STEPS;
        timing->waiting--;
        CDDPI_TRY(status);
    }
    return CDDP_OK;
}

void cddpi_timing_release(cddp_ddp *ddp)
{
    for (int i = 0; ddp->timing != NULL && i < STEPS; i++) {
        release_times(ddp, &ddp->timing->steps[i]);
    }
    cddpi_free(ddp->timing);
    ddp->timing = NULL;
}

void cddpi_ddp_log_plan(const cddp_ddp *ddp)
{
    const struct cddpi_bucket_plan *plan = ddp->layout.plan;

    for (size_t b = 0; b < plan->bucket_count && cddpi_log_enabled(CDDPI_LOG_DEBUG); b++) {
        const struct cddpi_bucket_plan_bucket *bucket = &plan->buckets[b];

        cddpi_log(
            CDDPI_LOG_DEBUG,
            "ddp: bucket %zu of %zu: %zu bytes of %s at byte %zu of %zu, %zu of them padding; "
            "%zu gradients, from %.80s to %.80s",
            b, plan->bucket_count, bucket->bytes, cddp_type_name(bucket->type), bucket->offset,
            plan->bytes, bucket->bytes - bucket->payload, bucket->count,
            bucket->count > 0 ? cddpi_bucket_member(&ddp->layout.buckets[b], 0) : "none",
            bucket->count > 0 ? cddpi_bucket_member(&ddp->layout.buckets[b], bucket->count - 1)
                              : "none");
    }
}

void cddpi_ddp_trace_begin(cddp_ddp *ddp)
{
    const char *text;
    uint64_t first;
    uint64_t last;
    cddp_status status;

    if (ddp->trace.looked) {
        return;
    }
    ddp->trace.looked = true;
    text = cddpi_env(CDDPI_ENV_TRACE);
    if (text == NULL ||
        cddpi_trace_is_open(ddp->group)) { /* the trainer opened the trace, so it marks the steps */
        return;
    }
    status = cddpi_trace_parse(text, &first, &last);
    if (status == CDDP_OK) {
        status = cddpi_trace_open(ddp->group, first, last);
    }
    if (status != CDDP_OK) {
        cddpi_log(CDDPI_LOG_WARN, "CDDP_TRACE: %s: no step is traced", cddp_last_error());
        return;
    }
    ddp->trace.owns_steps = true;
    ddp->trace.step_ns = cddpi_now_ns();
    cddpi_trace_step(ddp->group, ddp->stats.steps + 1, NULL);
}

void cddpi_ddp_trace_end(cddp_ddp *ddp, int64_t entered_ns)
{
    const struct cddpi_layout *layout = &ddp->layout;
    int64_t now;

    if (!cddpi_trace_is_open(ddp->group)) {
        return;
    }
    now = cddpi_now_ns();
    cddpi_trace_add(ddp->group, CDDPI_SPAN_WAIT, entered_ns, now, -1, 0);
    for (size_t b = 0; b < layout->plan->bucket_count && !cddpi_device_is_async(ddp->device); b++) {
        cddpi_trace_add(ddp->group, CDDPI_SPAN_BUCKET, layout->buckets[b].start_ns,
                        layout->buckets[b].end_ns, (int32_t)b, layout->plan->buckets[b].payload);
    }
    if (ddp->trace.owns_steps) {
        cddpi_trace_add(ddp->group, CDDPI_SPAN_BACKWARD, ddp->backward.begin_ns, entered_ns, -1, 0);
        cddpi_trace_add(ddp->group, CDDPI_SPAN_STEP, ddp->trace.step_ns, now, -1, 0);
        ddp->trace.step_ns = now;
        cddpi_trace_step(ddp->group, ddp->stats.steps + 1, NULL);
    }
}
