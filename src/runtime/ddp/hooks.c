/* hooks.c - owns the built-in communication hooks: the plain mean, and 16-bit wire formats. */
#include "ddp/ddp_bucket.h"
#include "group/group.h"
#include "kernels/cpu/reduce.h"
#include "kernels/cuda/cuda_kernels.h"

static cddp_op unweighted(const struct cddp_bucket *bucket)
{
    return cddp_bucket_is_sum(bucket) ? CDDP_OP_SUM : CDDP_OP_MEAN;
}

/* Start the reduction of @p data, the bucket as @p type, of which each rank gets only its shard. */
static cddp_status start_sharded(struct cddp_bucket *bucket, void *data, cddp_type type,
                                 cddp_work **out_work)
{
    cddp_group *group = bucket->ddp->group;
    size_t count = cddpi_shard_elements(bucket);
    char *own = (char *)data + (size_t)bucket->ddp->rank * count * cddp_type_bytes(type);
    double weight = cddp_bucket_weight(bucket);

    if (weight < 0 || cddp_bucket_is_sum(bucket)) {
        return cddp_reduce_scatter(group, data, own, count, type, unweighted(bucket), out_work);
    }
    return cddp_reduce_scatter_weighted(group, data, own, count, type, weight, out_work);
}

static cddp_status start_part(struct cddp_bucket *bucket, void *data, size_t count, cddp_type type,
                              cddp_work **out_work)
{
    cddp_group *group = bucket->ddp->group;
    double weight = cddp_bucket_weight(bucket);

    if (weight < 0 || cddp_bucket_is_sum(bucket)) {
        return cddp_all_reduce(group, data, data, count, type, unweighted(bucket), out_work);
    }
    return cddp_all_reduce_weighted(group, data, data, count, type, weight, out_work);
}

/* Start the mean of elements [from, to) of the bucket; the handle takes @p out_work with it. */
static cddp_status add_part(struct cddp_bucket *bucket, size_t from, size_t to,
                            cddp_work **out_work)
{
    cddp_work *work = NULL;
    cddp_status status;

    if (from >= to && (to < bucket->count || *out_work != NULL)) {
        return CDDP_OK; /* but a bucket without elements has a handle, too */
    }
    status = start_part(bucket, (char *)bucket->data + from * cddp_type_bytes(bucket->type),
                        to - from, bucket->type, &work);
    if (status != CDDP_OK) {
        return status;
    }
    work->before = *out_work;
    *out_work = work;
    return CDDP_OK;
}

static size_t between(size_t low, size_t at, size_t high)
{
    return at < low ? low : at > high ? high : at;
}

/* A lent block of which ranks share the whole pages: those are reduced where they lie, the rest of
 * a bucket besides. Elements are summed in the same order however they are cut. */
static cddp_status start_parts(struct cddp_bucket *bucket, cddp_work **out_work)
{
    const struct cddpi_adopted *adopted = &bucket->ddp->adopted;
    size_t element = cddp_type_bytes(bucket->type);
    size_t start = (size_t)((unsigned char *)bucket->data - bucket->ddp->flat);
    size_t end = start + bucket->count * element;
    size_t low = (between(start, adopted->low, end) - start) / element;
    size_t high = (between(start, adopted->high, end) - start) / element;
    cddp_status status = CDDP_OK;

    if (low > 0) {
        status = add_part(bucket, 0, low, out_work);
    }
    if (status == CDDP_OK && low < high) {
        status = add_part(bucket, low, high, out_work);
    }
    return status == CDDP_OK ? add_part(bucket, high, bucket->count, out_work) : status;
}

/* Start the mean over ranks, or over samples when the step has a weight; or the sum. */
static cddp_status start_mean(struct cddp_bucket *bucket, void *data, cddp_type type,
                              cddp_work **out_work)
{
    return bucket->ddp->adopted.pages != NULL && data == bucket->data
               ? start_parts(bucket, out_work)
               : start_part(bucket, data, bucket->count, type, out_work);
}

static cddp_status start(struct cddp_bucket *bucket, void *data, cddp_type type,
                         cddp_work **out_work)
{
    return bucket->ddp->shards != NULL ? start_sharded(bucket, data, type, out_work)
                                       : start_mean(bucket, data, type, out_work);
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
    return start(bucket, bucket->data, bucket->type, out_work);
}

static cddp_status cast(const cddp_bucket *bucket, void *to, cddp_type to_type, const void *from,
                        cddp_type from_type, size_t count)
{
    struct cddpi_device *device = bucket->ddp->device;

    if (cddpi_device_is_async(device)) {
        return device->kernels->cast(device, from_type, from, to_type, to, count);
    }
    cddpi_cast(to, to_type, from, from_type, count);
    return CDDP_OK;
}

/* Of a sharded optimizer's bucket nobody reads more than this rank's shard. */
static cddp_status widen(const cddp_bucket *bucket, const void *narrow, cddp_type wire)
{
    size_t count = bucket->ddp->shards != NULL ? cddpi_shard_elements(bucket) : bucket->count;
    size_t first = bucket->ddp->shards != NULL ? (size_t)bucket->ddp->rank * count : 0;

    return cast(bucket, (float *)bucket->data + first, CDDP_F32,
                (const char *)narrow + first * cddp_type_bytes(wire), wire, count);
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
        return widen(bucket, narrow, wire);
    }
    status = cast(bucket, narrow, wire, bucket->data, CDDP_F32, bucket->count);
    return status == CDDP_OK ? start(bucket, narrow, wire, out_work) : status;
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
