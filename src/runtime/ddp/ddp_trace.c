/* ddp_trace.c - owns what log and trace say about steps: the log has each bucket's plan, the trace
 * has the wait and the buckets of each step. If only CDDP_TRACE opens the trace (in a trainer that
 * is not cddp's), this file also marks the steps. */
#include "base/clock.h"
#include "base/env.h"
#include "base/log.h"
#include "ddp/ddp_observe.h"
#include "group/watch/group_trace.h"

static const char *name_of(const cddp_ddp *ddp, const struct cddpi_bucket_plan_bucket *bucket,
                           size_t member)
{
    uint32_t slot = ddp->layout.plan->members[bucket->first + member];

    return ddp->params[ddp->slots[slot].param].name;
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
            bucket->count > 0 ? name_of(ddp, bucket, 0) : "none",
            bucket->count > 0 ? name_of(ddp, bucket, bucket->count - 1) : "none");
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
        ddp->group->trace != NULL) { /* the trainer opened the trace, so it marks the steps */
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

    if (ddp->group->trace == NULL) {
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
