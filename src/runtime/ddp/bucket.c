/* bucket.c - owns one bucket's reduction: it calls the hook, stage after stage, and answers the
 * hook's questions about the bucket. */
#include "base/clock.h"
#include "base/error.h"
#include "ddp/ddp_observe.h"
#include "ddp/ddp_shard.h"
#include "ddp/ddp_step.h"
#include "ddp/micro_sums.h"
#include "group/device/group_device.h"

#include <stdio.h>

const char *cddpi_bucket_member(const struct cddpi_bucket *bucket, size_t member)
{
    const cddp_ddp *ddp = bucket->ddp;
    const struct cddpi_bucket_plan *plan = ddp->layout.plan;
    uint32_t slot = plan->members[plan->buckets[bucket->index].first + member];

    return ddp->params[ddp->slots[slot].param].name;
}

cddp_status cddpi_bucket_failed(const struct cddpi_bucket *bucket, cddp_status status)
{
    const struct cddpi_bucket_plan *plan = bucket->ddp->layout.plan;
    size_t members = plan->buckets[bucket->index].count;
    /* a timeout may mean that a rank is late, or that it waits in a collective of another step */
    bool may_disagree = (status == CDDP_ERR_TIMEOUT && !cddpi_last_failure()->is_stopped) ||
                        status == CDDP_ERR_MISMATCH;

    return cddpi_fail_prefix(
        status, "ddp: step %llu, bucket %zu of %zu (%.60s%s%.60s)%s",
        (unsigned long long)bucket->ddp->backward.step.number, bucket->index, plan->bucket_count,
        cddpi_bucket_member(bucket, 0), members > 1 ? " ... " : "",
        members > 1 ? cddpi_bucket_member(bucket, members - 1) : "",
        may_disagree ? " (have all ranks begun the same step, of the same kind?)" : "");
}

/* The bucket as a hook sees it. */
static cddp_bucket seen_of(struct cddpi_bucket *bucket)
{
    const cddp_ddp *ddp = bucket->ddp;
    const cddp_step *step = &ddp->backward.step;

    return (cddp_bucket){.struct_size = sizeof(cddp_bucket),
                         .inside = bucket,
                         .group = ddp->group,
                         .index = bucket->index,
                         .is_last = bucket->index + 1 == ddp->layout.plan->bucket_count,
                         .data = bucket->data,
                         .count = bucket->count,
                         .type = bucket->type,
                         .kind = step->kind,
                         .samples = step->kind == CDDP_STEP_BY_SAMPLES ? step->samples : 0,
                         .step = step->number};
}

/* Call the hook's next stage. On a device its operations, and a range for profilers, are labelled
 * with the bucket. */
static cddp_status call_hook(struct cddpi_bucket *bucket, cddp_work **out_work)
{
    cddp_ddp *ddp = bucket->ddp;
    cddp_bucket seen = seen_of(bucket);
    const struct cddpi_device_ops *ops = ddp->device->ops;
    char label[CDDPI_LABEL_BYTES];
    cddp_status status;

    if (!cddpi_device_is_async(ddp->device)) {
        return ddp->hook(ddp->hook_state, &seen, bucket->stage, out_work);
    }
    snprintf(label, sizeof label, "bucket %zu of %zu", bucket->index,
             ddp->layout.plan->bucket_count);
    cddpi_group_label(ddp->group, label);
    ops->range_push(ddp->device, label);
    status = ddp->hook(ddp->hook_state, &seen, bucket->stage, out_work);
    ops->range_pop(ddp->device);
    cddpi_group_label(ddp->group, NULL);
    /* mark the end of communication; what the hook does after it is compute */
    return status == CDDP_OK && (bucket->stage == 0 || *out_work != NULL)
               ? cddpi_timing_bucket_end(bucket)
               : status;
}

/* A single rank's gradients already are the mean, so nothing is reduced; without samples the mean
 * is zero. */
static cddp_status finish_in_place(struct cddpi_bucket *bucket)
{
    const cddp_ddp *ddp = bucket->ddp;
    const struct cddpi_bucket_plan_bucket *planned = &ddp->layout.plan->buckets[bucket->index];
    bool clears = cddpi_step_weight(ddp) == 0;

    for (size_t i = 0; i < planned->count && clears; i++) {
        const struct cddpi_ddp_slot *slot =
            &ddp->slots[ddp->layout.plan->members[planned->first + i]];

        CDDPI_TRY(cddpi_ddp_clear(ddp, slot->slice, slot->bytes));
    }
    bucket->finished = true;
    bucket->end_ns = clears ? cddpi_now_ns() : bucket->start_ns;
    return cddpi_timing_bucket_end(bucket);
}

cddp_status cddpi_bucket_advance(struct cddpi_bucket *bucket)
{
    cddp_ddp *ddp = bucket->ddp;
    struct cddpi_failure failure;
    cddp_work *work = NULL;
    cddp_status status;

    if (cddpi_is_by_micro_batches(ddp) && bucket->stage == 0) {
        CDDPI_TRY(cddpi_micro_merge_bucket(bucket));
    }
    if (ddp->shards != NULL && ddp->shards->deferred && !cddpi_micro_exchanges(ddp)) {
        bucket->finished = true; /* cddpi_ddp_mean() does the rest */
        bucket->end_ns = cddpi_now_ns();
        return CDDP_OK;
    }
    if (ddp->in_place) {
        return finish_in_place(bucket);
    }
    cddpi_error_clear(); /* the caller's hook may fail without an error text: no old one must stay
                          */
    cddpi_group_name_bucket(ddp->group, (int32_t)bucket->index);
    status = call_hook(bucket, &work);
    cddpi_group_name_bucket(ddp->group, -1);
    if (status != CDDP_OK) {
        char what[32];

        snprintf(what, sizeof what, "hook, stage %d", bucket->stage);
        status = cddpi_bucket_failed(bucket, cddpi_fail_callback(status, what));
        if (!cddpi_group_is_capturing(ddp->group)) {
            /* always abort: the other ranks would wait for the collective that this rank skips */
            (void)cddpi_ddp_abort(ddp->group, status);
        }
        failure = *cddpi_last_failure();
        cddp_work_destroy(work);
        return cddpi_fail_again(status, &failure);
    }
    bucket->work = work;
    bucket->finished = work == NULL;
    if (bucket->stage > 0 && work != NULL) {
        bucket->end_ns = 0; /* discard the end of an earlier stage */
    }
    if (bucket->finished && bucket->end_ns == 0) {
        bucket->end_ns = cddpi_now_ns();
    }
    bucket->stage++;
    return CDDP_OK;
}

size_t cddpi_shard_elements(const struct cddpi_bucket *bucket)
{
    return bucket->count / (size_t)bucket->ddp->world_size;
}

cddp_status cddpi_bucket_of(const cddp_bucket *seen, const char *call, struct cddpi_bucket **out)
{
    if (seen == NULL || seen->inside == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "%s: the bucket is %s", call,
                          seen == NULL ? "NULL" : "not the one that cddp gave to the hook");
    }
    *out = seen->inside;
    return CDDP_OK;
}

cddp_status cddp_bucket_scratch(const cddp_bucket *bucket, size_t bytes, void **out)
{
    struct cddpi_bucket *inner = NULL;

    CDDPI_TRY(cddpi_bucket_of(bucket, "bucket_scratch", &inner));
    return out != NULL ? cddpi_bucket_scratch(inner, bytes, out)
                       : cddpi_fail(CDDP_ERR_ARGUMENT, "bucket_scratch: out is NULL");
}

cddp_status cddpi_bucket_scratch(struct cddpi_bucket *bucket, size_t bytes, void **out)
{
    void *memory;

    if (bucket->scratch == NULL) {
        cddp_status status = cddp_group_alloc(bucket->ddp->group, bytes > 0 ? bytes : 1, 0,
                                              &memory);

        if (status != CDDP_OK) {
            return cddpi_fail_prefix(status, "scratch memory of %zu bytes", bytes);
        }
        bucket->scratch = memory;
        bucket->scratch_bytes = bytes;
    } else if (bytes != bucket->scratch_bytes) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "scratch memory of %zu bytes, at first it was %zu",
                          bytes, bucket->scratch_bytes);
    }
    *out = bucket->scratch;
    return CDDP_OK;
}
