/* bucket.c - owns one bucket's reduction: it calls the hook, stage after stage, and answers the
 * hook's questions about the bucket. */
#include "base/clock.h"
#include "base/error.h"
#include "ddp/ddp_observe.h"
#include "ddp/ddp_shard.h"
#include "ddp/ddp_step.h"
#include "group/device/group_device.h"

#include <stdio.h>

const char *cddpi_bucket_member(const struct cddp_bucket *bucket, size_t member)
{
    const cddp_ddp *ddp = bucket->ddp;
    const struct cddpi_bucket_plan *plan = ddp->layout.plan;
    uint32_t slot = plan->members[plan->buckets[bucket->index].first + member];

    return ddp->params[ddp->slots[slot].param].name;
}

cddp_status cddpi_bucket_failed(const struct cddp_bucket *bucket, cddp_status status)
{
    const struct cddpi_bucket_plan *plan = bucket->ddp->layout.plan;
    size_t members = plan->buckets[bucket->index].count;
    /* a timeout may mean that a rank is late, or that it waits in a collective of another step */
    bool may_disagree = status == CDDP_ERR_TIMEOUT && !cddpi_last_failure()->is_stopped;

    return cddpi_fail_prefix(status, "ddp: backward %llu, bucket %zu of %zu (%.60s%s%.60s)%s",
                             (unsigned long long)bucket->ddp->backward.number, bucket->index,
                             plan->bucket_count, cddpi_bucket_member(bucket, 0),
                             members > 1 ? " ... " : "",
                             members > 1 ? cddpi_bucket_member(bucket, members - 1) : "",
                             may_disagree ? " (do all ranks agree on no_sync?)" : "");
}

/* Call the hook's next stage. On a device its operations, and a range for profilers, are labelled
 * with the bucket. */
static cddp_status call_hook(struct cddp_bucket *bucket, cddp_work **out_work)
{
    cddp_ddp *ddp = bucket->ddp;
    const struct cddpi_device_ops *ops = ddp->device->ops;
    char label[CDDPI_LABEL_BYTES];
    cddp_status status;

    if (!cddpi_device_is_async(ddp->device)) {
        return ddp->hook(ddp->hook_state, bucket, bucket->stage, out_work);
    }
    snprintf(label, sizeof label, "bucket %zu of %zu", bucket->index,
             ddp->layout.plan->bucket_count);
    cddpi_group_label(ddp->group, label);
    ops->range_push(ddp->device, label);
    status = ddp->hook(ddp->hook_state, bucket, bucket->stage, out_work);
    ops->range_pop(ddp->device);
    cddpi_group_label(ddp->group, NULL);
    /* mark the end of communication; what the hook does after it is compute */
    return status == CDDP_OK && (bucket->stage == 0 || *out_work != NULL)
               ? cddpi_timing_bucket_end(bucket)
               : status;
}

/* A single rank's gradients already are the mean, so nothing is reduced; with weight 0 the mean is
 * zero. */
static cddp_status finish_in_place(struct cddp_bucket *bucket)
{
    const cddp_ddp *ddp = bucket->ddp;
    const struct cddpi_bucket_plan_bucket *planned = &ddp->layout.plan->buckets[bucket->index];
    bool clears = ddp->backward.step.weight == 0 && ddp->backward.step.sum == 0;

    for (size_t i = 0; i < planned->count && clears; i++) {
        const struct cddpi_ddp_slot *slot =
            &ddp->slots[ddp->layout.plan->members[planned->first + i]];

        CDDPI_TRY(cddpi_ddp_clear(ddp, slot->slice, slot->bytes));
    }
    bucket->finished = true;
    bucket->end_ns = clears ? cddpi_now_ns() : bucket->start_ns;
    return cddpi_timing_bucket_end(bucket);
}

cddp_status cddpi_bucket_advance(struct cddp_bucket *bucket)
{
    cddp_ddp *ddp = bucket->ddp;
    struct cddpi_failure failure;
    cddp_work *work = NULL;
    cddp_status status;

    if (ddp->shards != NULL && ddp->shards->deferred) {
        bucket->finished = true; /* cddp_ddp_mean() does the rest */
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
        (void)cddpi_fail_callback(status, what);
        status = cddpi_bucket_failed(bucket, status);
        failure = *cddpi_last_failure();
        if (!cddpi_group_is_capturing(ddp->group)) {
            /* always abort: the other ranks would wait for the collective that this rank skips */
            cddp_group_abort(ddp->group, cddp_last_error());
        }
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

size_t cddpi_bucket_part_of(const struct cddp_bucket *bucket, const struct cddpi_ddp_slot *slot,
                            size_t *out_first)
{
    const struct cddpi_bucket_plan_bucket *planned =
        &bucket->ddp->layout.plan->buckets[bucket->index];

    *out_first = planned->is_part ? (size_t)((unsigned char *)bucket->data - slot->slice) : 0;
    return planned->is_part ? planned->payload : slot->bytes;
}

size_t cddpi_shard_elements(const struct cddp_bucket *bucket)
{
    return bucket->count / (size_t)bucket->ddp->world_size;
}

cddp_status cddpi_bucket_check(const cddp_bucket *bucket, const char *call)
{
    return bucket != NULL ? CDDP_OK : cddpi_fail(CDDP_ERR_ARGUMENT, "%s: the bucket is NULL", call);
}

/* A bucket is not a handle: it is valid only during the call of a hook. */
static bool may_ask(const cddp_bucket *bucket, const char *call)
{
    return cddpi_bucket_check(bucket, call) == CDDP_OK;
}

cddp_group *cddp_bucket_group(cddp_bucket *bucket)
{
    return may_ask(bucket, "bucket_group") ? bucket->ddp->group : NULL;
}

size_t cddp_bucket_index(const cddp_bucket *bucket)
{
    return may_ask(bucket, "bucket_index") ? bucket->index : 0;
}

bool cddp_bucket_is_last(const cddp_bucket *bucket)
{
    return may_ask(bucket, "bucket_is_last") &&
           bucket->index + 1 == bucket->ddp->layout.plan->bucket_count;
}

void *cddp_bucket_data(cddp_bucket *bucket)
{
    return may_ask(bucket, "bucket_data") ? bucket->data : NULL;
}

size_t cddp_bucket_count(const cddp_bucket *bucket)
{
    return may_ask(bucket, "bucket_count") ? bucket->count : 0;
}

cddp_type cddp_bucket_type(const cddp_bucket *bucket)
{
    return may_ask(bucket, "bucket_type") ? bucket->type : (cddp_type)-1;
}

double cddp_bucket_weight(const cddp_bucket *bucket)
{
    return may_ask(bucket, "bucket_weight") ? bucket->ddp->backward.step.weight : -1;
}

bool cddp_bucket_is_sum(const cddp_bucket *bucket)
{
    return may_ask(bucket, "bucket_is_sum") && bucket->ddp->backward.step.sum != 0;
}

cddp_status cddp_bucket_scratch(cddp_bucket *bucket, size_t bytes, void **out)
{
    void *memory;

    CDDPI_TRY(cddpi_bucket_check(bucket, "bucket_scratch"));
    if (out == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "bucket_scratch: out is NULL");
    }
    if (bucket->scratch == NULL) {
        cddp_status status = cddp_group_alloc(bucket->ddp->group, bytes > 0 ? bytes : 1, &memory);

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
