/* hooks.c - owns the built-in communication hooks: the plain mean, and 16-bit wire formats. */
#include "base/error.h"
#include "ddp/ddp_step.h"
#include "ddp/micro_sums.h"
#include "group/engine/handles.h"
#include "group/group.h"
#include "kernels/cpu/reduce.h"
#include "kernels/cuda/cuda_kernels.h"

static cddp_op unweighted(const struct cddpi_bucket *bucket)
{
    cddp_step_kind kind = bucket->ddp->backward.step.kind;

    return kind == CDDP_STEP_SUM || kind == CDDP_STEP_BY_MICRO_BATCHES ? CDDP_OP_SUM : CDDP_OP_MEAN;
}

/* Start the reduction of @p data, which is the bucket converted to @p type. Each rank gets only its
 * shard of the result. */
static cddp_status start_sharded(struct cddpi_bucket *bucket, void *data, cddp_type type,
                                 cddp_work **out_work)
{
    cddp_group *group = bucket->ddp->group;
    size_t count = cddpi_shard_elements(bucket);
    char *own = (char *)data + (size_t)bucket->ddp->rank * count * cddp_type_bytes(type);
    double weight = cddpi_step_weight(bucket->ddp);

    if (weight < 0) {
        return cddp_reduce_scatter(group, data, own, count, type, unweighted(bucket), out_work);
    }
    return cddp_reduce_scatter_weighted(group, data, own, count, type, weight, out_work);
}

static cddp_status start_part(struct cddpi_bucket *bucket, void *data, size_t count, cddp_type type,
                              cddp_work **out_work)
{
    cddp_group *group = bucket->ddp->group;
    double weight = cddpi_step_weight(bucket->ddp);

    if (weight < 0) {
        return cddp_all_reduce(group, data, data, count, type, unweighted(bucket), out_work);
    }
    return cddp_all_reduce_weighted(group, data, data, count, type, weight, out_work);
}

/* Start the mean of elements [from, to) of the bucket. The new handle in @p out_work owns the
 * handle that was in @p out_work before. */
static cddp_status add_part(struct cddpi_bucket *bucket, size_t from, size_t to,
                            cddp_work **out_work)
{
    cddp_work *work = NULL;

    if (from >= to && (to < bucket->count || *out_work != NULL)) {
        return CDDP_OK; /* but even a bucket without elements needs a handle */
    }
    CDDPI_TRY(start_part(bucket, (char *)bucket->data + from * cddp_type_bytes(bucket->type),
                         to - from, bucket->type, &work));
    work->before = *out_work;
    *out_work = work;
    return CDDP_OK;
}

static size_t clamp(size_t low, size_t at, size_t high)
{
    return at < low ? low : at > high ? high : at;
}

/* For the caller's block. Ranks share its whole pages, so the part of the bucket on those is
 * reduced in place, and the rest in separate parts. These cuts do not change the order of any sum.
 */
static cddp_status start_parts(struct cddpi_bucket *bucket, cddp_work **out_work)
{
    const struct cddpi_adopted *adopted = &bucket->ddp->adopted;
    size_t element = cddp_type_bytes(bucket->type);
    size_t start = (size_t)((unsigned char *)bucket->data - bucket->ddp->flat);
    size_t end = start + bucket->count * element;
    size_t low = (clamp(start, adopted->low, end) - start) / element;
    size_t high = (clamp(start, adopted->high, end) - start) / element;

    if (low > 0) {
        CDDPI_TRY(add_part(bucket, 0, low, out_work));
    }
    if (low < high) {
        CDDPI_TRY(add_part(bucket, low, high, out_work));
    }
    return add_part(bucket, high, bucket->count, out_work);
}

/* Start the mean over ranks, or over samples when the step has a weight; or the sum. */
static cddp_status start_reduction(struct cddpi_bucket *bucket, void *data, cddp_type type,
                                   cddp_work **out_work)
{
    if (bucket->ddp->shards != NULL) {
        return start_sharded(bucket, data, type, out_work);
    }
    return bucket->ddp->adopted.pages != NULL && data == bucket->data
               ? start_parts(bucket, out_work)
               : start_part(bucket, data, bucket->count, type, out_work);
}

cddp_status cddp_hook_identity(void *state, const cddp_bucket *bucket, int stage,
                               cddp_work **out_work)
{
    struct cddpi_bucket *inner = NULL;

    (void)state;
    CDDPI_TRY(cddpi_bucket_of(bucket, "hook_identity", &inner));
    *out_work = NULL;
    if (cddpi_micro_exchanges(inner->ddp)) {
        return cddpi_micro_exchange(inner, stage, out_work);
    }
    return stage > 0 ? CDDP_OK : start_reduction(inner, inner->data, inner->type, out_work);
}

static cddp_status cast_elements(const struct cddpi_bucket *bucket, void *to, cddp_type to_type,
                                 const void *from, cddp_type from_type, size_t count)
{
    struct cddpi_device *device = bucket->ddp->device;

    if (cddpi_device_is_async(device)) {
        return device->kernels->cast(device, from_type, from, to_type, to, count);
    }
    cddpi_cast(to, to_type, from, from_type, count);
    return CDDP_OK;
}

static cddp_status send_narrow(const cddp_bucket *seen, int stage, cddp_type wire,
                               cddp_work **out_work)
{
    struct cddpi_bucket *bucket = NULL;
    void *narrow;

    CDDPI_TRY(cddpi_bucket_of(seen, "hook", &bucket));
    *out_work = NULL;
    if (bucket->type != CDDP_F32) {
        return cddp_hook_identity(NULL, seen, stage, out_work);
    }
    CDDPI_TRY(cddpi_bucket_scratch(bucket, bucket->count * cddp_type_bytes(wire), &narrow));
    if (stage > 0) {
        /* back to f32; with a sharded optimizer only this rank's shard, since nothing reads the
         * rest */
        size_t count = bucket->ddp->shards != NULL ? cddpi_shard_elements(bucket) : bucket->count;
        size_t first = bucket->ddp->shards != NULL ? (size_t)bucket->ddp->rank * count : 0;

        return cast_elements(bucket, (float *)bucket->data + first, CDDP_F32,
                             (const char *)narrow + first * cddp_type_bytes(wire), wire, count);
    }
    CDDPI_TRY(cast_elements(bucket, narrow, wire, bucket->data, CDDP_F32, bucket->count));
    return start_reduction(bucket, narrow, wire, out_work);
}

cddp_status cddp_hook_bf16(void *state, const cddp_bucket *bucket, int stage, cddp_work **out_work)
{
    (void)state;
    return send_narrow(bucket, stage, CDDP_BF16, out_work);
}

cddp_status cddp_hook_fp16(void *state, const cddp_bucket *bucket, int stage, cddp_work **out_work)
{
    (void)state;
    return send_narrow(bucket, stage, CDDP_F16, out_work);
}

cddp_status cddpi_bucket_prepare(struct cddpi_bucket *bucket)
{
    cddp_hook_fn hook = bucket->ddp->hook;
    void *narrow;

    if (bucket->type != CDDP_F32 || (hook != cddp_hook_bf16 && hook != cddp_hook_fp16)) {
        return CDDP_OK;
    }
    return cddpi_bucket_scratch(bucket, bucket->count * 2, &narrow);
}
