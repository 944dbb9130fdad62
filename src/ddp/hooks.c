/* hooks.c - owns the built-in communication hooks: the plain mean, and 16-bit wire formats. */
#include "ddp/ddp.h"
#include "kernels/cpu/reduce.h"
#include "kernels/cuda/cuda_kernels.h"

static cddp_op unweighted(const struct cddp_bucket *bucket)
{
    return cddp_bucket_is_sum(bucket) ? CDDP_OP_SUM : CDDP_OP_MEAN;
}

/* Start the reduction of which each rank gets only its shard of the bucket. */
static cddp_status start_sharded(struct cddp_bucket *bucket, cddp_work **out_work)
{
    size_t count = cddpi_shard_elements(bucket);
    char *own = (char *)bucket->data +
                (size_t)bucket->ddp->rank * count * cddp_type_bytes(bucket->type);
    double weight = cddp_bucket_weight(bucket);

    if (weight < 0 || cddp_bucket_is_sum(bucket)) {
        return cddp_reduce_scatter(bucket->ddp->group, bucket->data, own, count, bucket->type,
                                   unweighted(bucket), out_work);
    }
    return cddp_reduce_scatter_weighted(bucket->ddp->group, bucket->data, own, count, bucket->type,
                                        weight, out_work);
}

/* Start the mean over ranks, or over samples when the step has a weight; or the sum. */
static cddp_status start_mean(struct cddp_bucket *bucket, void *data, cddp_type type,
                              cddp_work **out_work)
{
    cddp_group *group = bucket->ddp->group;
    double weight = cddp_bucket_weight(bucket);

    if (weight < 0 || cddp_bucket_is_sum(bucket)) {
        return cddp_all_reduce(group, data, data, bucket->count, type, unweighted(bucket),
                               out_work);
    }
    return cddp_all_reduce_weighted(group, data, data, bucket->count, type, weight, out_work);
}

cddp_status cddp_hook_identity(void *state, cddp_bucket *bucket, int stage, cddp_work **out_work)
{
    cddp_status status = cddpi_bucket_check(bucket, "hook_identity");

    (void)state;
    if (status != CDDP_OK) {
        return status;
    }
    *out_work = NULL;
    if (stage > 0) {
        return CDDP_OK;
    }
    return bucket->ddp->shards != NULL ? start_sharded(bucket, out_work)
                                       : start_mean(bucket, bucket->data, bucket->type, out_work);
}

static cddp_status cast(const cddp_bucket *bucket, void *to, cddp_type to_type, const void *from,
                        cddp_type from_type)
{
    struct cddpi_device *device = bucket->ddp->device;

    if (cddpi_device_is_async(device)) {
        return device->kernels->cast(device, from_type, from, to_type, to, bucket->count);
    }
    cddpi_cast(to, to_type, from, from_type, bucket->count);
    return CDDP_OK;
}

static cddp_status send_narrow(cddp_bucket *bucket, int stage, cddp_type wire, cddp_work **out_work)
{
    void *narrow;
    cddp_status status = cddpi_bucket_check(bucket, "hook");

    if (status != CDDP_OK) {
        return status;
    }
    *out_work = NULL;
    if (bucket->type != CDDP_F32) {
        return cddp_hook_identity(NULL, bucket, stage, out_work);
    }
    status = cddp_bucket_scratch(bucket, bucket->count * cddp_type_bytes(wire), &narrow);
    if (status != CDDP_OK) {
        return status;
    }
    if (stage > 0) {
        return cast(bucket, bucket->data, CDDP_F32, narrow, wire);
    }
    status = cast(bucket, narrow, wire, bucket->data, CDDP_F32);
    return status == CDDP_OK ? start_mean(bucket, narrow, wire, out_work) : status;
}

cddp_status cddp_hook_bf16(void *state, cddp_bucket *bucket, int stage, cddp_work **out_work)
{
    (void)state;
    return send_narrow(bucket, stage, CDDP_BF16, out_work);
}

cddp_status cddp_hook_fp16(void *state, cddp_bucket *bucket, int stage, cddp_work **out_work)
{
    (void)state;
    return send_narrow(bucket, stage, CDDP_F16, out_work);
}

cddp_status cddpi_bucket_prepare(struct cddp_bucket *bucket)
{
    cddp_hook_fn hook = bucket->ddp->hook;
    void *narrow;

    if (bucket->type != CDDP_F32 || (hook != cddp_hook_bf16 && hook != cddp_hook_fp16)) {
        return CDDP_OK;
    }
    return cddp_bucket_scratch(bucket, bucket->count * 2, &narrow);
}
