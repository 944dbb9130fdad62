/* ddp_shard.c - owns the sharded optimizer (ZeRO stage 1: Rajbhandari et al., "ZeRO: Memory
 * Optimizations Toward Training Trillion Parameter Models", section 5.1): parameters in memory laid
 * out as the buckets, which part of them each rank updates, and the mean of gradients there.
 *
 * A bucket is cut into world_size shards of equal size. Rank r gets shard r of the reduced
 * gradients and updates shard r of the parameters. Then ranks all-gather the updated shards, or the
 * shards of the copies that forward reads instead (copies.h). Gradients and shards begin at
 * multiples of CDDPI_ALIGNMENT bytes. So a float32 parameter is cut at multiples of 16 elements,
 * between the blocks of a sum of squares (kernels/cpu/cpu_optim.h). */
#include "ddp/ddp_shard.h"
#include "base/alloc.h"
#include "base/error.h"
#include "ddp/copies.h"
#include "ddp/ddp_layout.h"
#include "ddp/ddp_step.h"
#include "ddp/micro_sums.h"
#include "group/device/group_device.h"
#include "kernels/cpu/reduce.h"

/* The elements of slot @p s that rank @p rank updates. */
static cddp_span span_of(const cddp_ddp *ddp, uint32_t s, int rank)
{
    const struct cddpi_bucket *bucket = &ddp->layout.buckets[ddp->layout.plan->bucket_of[s]];
    const struct cddpi_param *param = &ddp->params[ddp->slots[s].param];
    size_t element = cddp_type_bytes(bucket->type);
    size_t shard = cddpi_shard_elements(bucket);
    size_t slice = (size_t)(ddp->slots[s].slice - (unsigned char *)bucket->data) / element;
    size_t start = (size_t)rank * shard;
    size_t end = start + shard;

    start = start > slice ? start : slice;
    end = end < slice + param->count ? end : slice + param->count;
    return (cddp_span){ddp->slots[s].param, start - slice, end > start ? end - start : 0};
}

/* Make every rank's spans, in the order of parameters; spans without elements are left out. */
static cddp_status make_spans(cddp_ddp *ddp)
{
    struct cddpi_ddp_shards *shards = ddp->shards;
    size_t world_size = (size_t)ddp->world_size;
    /* each cut between two shards of a bucket makes one more span */
    size_t capacity = ddp->slot_count + world_size * ddp->layout.plan->bucket_count;
    size_t count = 0;

    shards->spans = cddpi_zalloc_array(capacity, sizeof *shards->spans);
    shards->first = cddpi_zalloc_array(world_size + 1, sizeof *shards->first);
    CDDPI_TRY_MEMORY(shards->spans != NULL && shards->first != NULL, "ddp: no memory for %zu spans",
                     capacity);
    for (int rank = 0; rank < ddp->world_size; rank++) {
        for (uint32_t s = 0; s < ddp->slot_count; s++) {
            cddp_span span = span_of(ddp, s, rank);

            if (span.count > 0) {
                shards->spans[count++] = span;
            }
        }
        shards->first[rank + 1] = count;
    }
    return CDDP_OK;
}

void cddpi_shard_plan_copies(cddp_ddp *ddp, cddp_type type, const size_t *counts)
{
    enum {
        ALIGNMENT = 256
    }; /* bytes, of copies: matmuls are faster; each slice is a multiple of ALIGNMENT */
    size_t element = cddp_type_bytes(type);

    for (size_t s = 0; s < ddp->slot_count; s++) {
        struct cddpi_bucket_plan_tensor *tensor = &ddp->planning.tensors[s];
        size_t count = counts[ddp->slots[s].param];

        if (count > 0 && tensor->type == CDDP_F32) {
            size_t bytes = (count * element + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;

            tensor->separate = true;
            tensor->bytes = bytes / element * sizeof(float);
            ddp->shards->has_copies = true;
        }
    }
    ddp->shards->copy_type = type;
    if (ddp->shards->has_copies) { /* so each bucket and shard begins at a multiple of it, too */
        ddp->planning.rule.grain = (size_t)ddp->world_size * ALIGNMENT / element * sizeof(float);
    }
}

unsigned char *cddpi_shard_copy_at(const cddp_ddp *ddp, size_t offset)
{
    return ddp->shards->copies + offset / sizeof(float) * cddp_type_bytes(ddp->shards->copy_type);
}

void *cddpi_ddp_param_copy(const cddp_ddp *ddp, size_t index)
{
    uint32_t slot = ddp->params[index].slot;

    return slot != UINT32_MAX && ddp->planning.tensors[slot].separate
               ? cddpi_shard_copy_at(ddp, ddp->layout.plan->offsets[slot])
               : NULL;
}

/* Copy the parameters from the caller's memory. */
static cddp_status move_params(cddp_ddp *ddp)
{
    for (size_t s = 0; s < ddp->slot_count; s++) {
        struct cddpi_param *param = &ddp->params[ddp->slots[s].param];
        unsigned char *place = ddp->shards->block + ddp->layout.plan->offsets[s];

        CDDPI_TRY(cddpi_ddp_copy(ddp, place, param->data, ddp->slots[s].bytes));
        param->data = place;
    }
    return CDDP_OK;
}

/* Make what depends on the current plan, except the parameters. */
static cddp_status make_tables(cddp_ddp *ddp)
{
    struct cddpi_ddp_shards *shards = ddp->shards;
    size_t buckets = ddp->layout.plan->bucket_count;
    size_t world_size = (size_t)ddp->world_size;

    shards->buckets = cddpi_zalloc_array(buckets, sizeof *shards->buckets);
    shards->peers = cddpi_zalloc_array(world_size, sizeof *shards->peers);
    shards->src = cddpi_zalloc_array(world_size, sizeof *shards->src);
    shards->weights = cddpi_zalloc_array(2 * world_size, sizeof *shards->weights);
    CDDPI_TRY_MEMORY(shards->buckets != NULL && shards->peers != NULL && shards->src != NULL &&
                         shards->weights != NULL,
                     "ddp: no memory for %zu buckets", buckets);
    CDDPI_TRY(make_spans(ddp));
    for (size_t b = 0; b < buckets; b++) {
        CDDPI_TRY(ddp->device->ops->event_create(ddp->device, false, &shards->buckets[b].gathered));
    }
    return CDDP_OK;
}

/* Deferred reduction is faster if compute and communication share a core and this process can read
 * the gradients of all ranks: each piece is reduced when the optimizer needs it, and is in the
 * cache then. */
static bool may_be_deferred(const cddp_ddp *ddp)
{
    bool may = !cddpi_device_is_async(ddp->device) && ddp->shards->deferred &&
               ddp->world_size > 1 && !ddp->allow_unused && ddp->hook == cddp_hook_identity &&
               !cddpi_group_has_thread(ddp->group);

    for (size_t s = 0; s < ddp->slot_count; s++) {
        may = may && ddp->slots[s].owned;
    }
    return may && cddpi_group_peers(ddp->group, ddp->layout.block, ddp->layout.plan->bytes,
                                    ddp->shards->peers);
}

cddp_status cddpi_shard_install(cddp_ddp *ddp)
{
    struct cddpi_ddp_shards *shards = ddp->shards;
    size_t bytes = ddp->layout.plan->bytes > 0 ? ddp->layout.plan->bytes : CDDPI_ALIGNMENT;
    void *block = NULL;
    uint8_t deferred;
    cddp_status status = make_tables(ddp);

    if (status != CDDP_OK) {
        return cddpi_ddp_abort(ddp->group, status);
    }
    status = cddp_group_alloc(ddp->group, bytes, 0, &block);
    if (status != CDDP_OK) {
        return cddpi_fail_prefix(status, "ddp: %zu bytes for parameters", bytes);
    }
    shards->block = block;
    if (shards->has_copies) {
        bytes = bytes / sizeof(float) * cddp_type_bytes(shards->copy_type);
        status = cddp_group_alloc(ddp->group, bytes, 0, &block);
        if (status != CDDP_OK) {
            return cddpi_fail_prefix(status, "ddp: %zu bytes for copies of parameters", bytes);
        }
        shards->copies = block;
    }
    status = move_params(ddp);
    if (status != CDDP_OK) {
        return cddpi_ddp_abort(ddp->group, status);
    }
    deferred = may_be_deferred(ddp); /* defer reductions only if all ranks can */
    status = cddp_all_reduce(ddp->group, &deferred, &deferred, 1, CDDP_U8, CDDP_OP_MIN, NULL);
    shards->deferred = deferred != 0;
    return status == CDDP_OK ? CDDP_OK : cddpi_fail_prefix(status, "ddp: shards");
}

/* Release what depends on the current plan, except the parameters. */
static void release_tables(cddp_ddp *ddp)
{
    struct cddpi_ddp_shards *shards = ddp->shards;

    for (size_t b = 0; shards->buckets != NULL && b < ddp->layout.plan->bucket_count; b++) {
        ddp->device->ops->event_destroy(ddp->device, shards->buckets[b].gathered);
    }
    cddpi_free(shards->buckets);
    cddpi_free(shards->spans);
    cddpi_free(shards->first);
    cddpi_free(shards->peers);
    cddpi_free(shards->src);
    cddpi_free(shards->weights);
    shards->buckets = NULL;
    shards->spans = NULL;
    shards->first = NULL;
    shards->peers = shards->src = NULL;
    shards->weights = NULL;
}

void cddpi_shard_release(cddp_ddp *ddp)
{
    struct cddpi_ddp_shards *shards = ddp->shards;

    if (shards == NULL) {
        return;
    }
    if (shards->block != NULL) {
        cddp_group_free(ddp->group, shards->block);
    }
    if (shards->copies != NULL) {
        cddp_group_free(ddp->group, shards->copies);
    }
    release_tables(ddp);
    cddpi_free(shards);
    ddp->shards = NULL;
}

/* All-gather the reduced gradients: each rank has only its shard of the mean. */
static cddp_status gather_grads(cddp_ddp *ddp)
{
    for (size_t b = 0; b < ddp->layout.plan->bucket_count; b++) {
        const struct cddpi_bucket *bucket = &ddp->layout.buckets[b];
        size_t shard = cddpi_shard_elements(bucket);
        unsigned char *all = bucket->data;
        unsigned char *own = all + (size_t)ddp->rank * shard * cddp_type_bytes(bucket->type);

        CDDPI_TRY(cddp_all_gather(ddp->group, own, all, shard, bucket->type, NULL));
    }
    for (size_t s = 0; s < ddp->slot_count; s++) {
        const struct cddpi_ddp_slot *slot = &ddp->slots[s];

        if (slot->copied) {
            CDDPI_TRY(cddpi_ddp_copy(ddp, slot->grad, slot->slice, slot->bytes));
        }
    }
    return CDDP_OK;
}

cddp_status cddpi_shard_move(cddp_ddp *ddp, struct cddpi_layout *layout)
{
    void *block = ddp->shards->block;
    cddp_status status = gather_grads(ddp);

    if (status != CDDP_OK) {
        return cddpi_fail_prefix(status, "ddp: gradients for a new plan");
    }
    release_tables(ddp);
    CDDPI_TRY(cddpi_layout_install(ddp, layout));
    CDDPI_TRY(cddpi_shard_install(ddp));
    /* free the old block only now: after a failure some parameters would still be in it */
    cddp_group_free(ddp->group, block);
    ddp->shards->has_moved = true;
    return CDDP_OK;
}

bool cddpi_ddp_has_moved(const cddp_ddp *ddp)
{
    return ddp->shards != NULL && ddp->shards->has_moved;
}

void cddpi_ddp_keep_plan(cddp_ddp *ddp)
{
    ddp->planning.rebuild_due = ddp->planning.rebuild_due && ddp->shards == NULL;
}

size_t cddp_ddp_param_count(const cddp_ddp *ddp)
{
    return cddpi_ddp_may_ask(ddp, "ddp_param_count") ? ddp->param_count : 0;
}

const char *cddp_ddp_param_name(const cddp_ddp *ddp, size_t index)
{
    if (!cddpi_ddp_may_ask(ddp, "ddp_param_name") || index >= ddp->param_count) {
        return NULL;
    }
    return ddp->params[index].name;
}

void *cddp_ddp_param(cddp_ddp *ddp, size_t index)
{
    if (!cddpi_ddp_may_ask(ddp, "ddp_param") || index >= ddp->param_count) {
        return NULL;
    }
    return ddp->params[index].data;
}

const cddp_span *cddp_ddp_spans(const cddp_ddp *ddp, int rank, size_t *out_count)
{
    if (out_count == NULL) {
        (void)cddpi_fail(CDDP_ERR_ARGUMENT, "ddp_spans: out_count is NULL");
        return NULL;
    }
    *out_count = 0;
    if (!cddpi_ddp_may_ask(ddp, "ddp_spans") || ddp->shards == NULL || rank < 0 ||
        rank >= ddp->world_size) {
        return NULL;
    }
    *out_count = ddp->shards->first[rank + 1] - ddp->shards->first[rank];
    return ddp->shards->spans + ddp->shards->first[rank];
}

/* Whether this rank updates elements [first, first + count) of parameter @p index, that is, whether
 * one of its spans holds them all. Spans are in the order of parameters. */
static bool is_in_own_span(const cddp_ddp *ddp, size_t index, size_t first, size_t count)
{
    const struct cddpi_ddp_shards *shards = ddp->shards;
    size_t low = shards->first[ddp->rank];
    size_t high = shards->first[ddp->rank + 1];

    while (low < high) {
        size_t middle = low + (high - low) / 2;
        const cddp_span *span = &shards->spans[middle];

        if (span->param < index || (span->param == index && span->first + span->count <= first)) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low < shards->first[ddp->rank + 1] && shards->spans[low].param == index &&
           shards->spans[low].first <= first &&
           count <= shards->spans[low].count - (first - shards->spans[low].first);
}

static cddp_status check_mean(const cddp_ddp *ddp, size_t index, size_t first, size_t count,
                              const void *scratch)
{
    size_t all = ddp->params[index].count;

    if (first > all || count > all - first ||
        (ddp->shards != NULL && count > 0 && !is_in_own_span(ddp, index, first, count))) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "ddp_mean: %zu elements from %zu on of parameter %s lie in no span of "
                          "this rank's (see cddp_ddp_spans())",
                          count, first, ddp->params[index].name);
    }
    if (ddp->shards != NULL && count > 0 && /* checked even where scratch is not used */
        (scratch == NULL || (uintptr_t)scratch % cddp_type_bytes(ddp->params[index].type) != 0)) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "ddp_mean: scratch is %s",
                          scratch == NULL ? "NULL" : "not aligned");
    }
    return CDDP_OK;
}

const void *cddpi_ddp_mean(cddp_ddp *ddp, size_t index, size_t first, size_t count, void *scratch)
{
    unsigned char *own = cddp_ddp_grad(ddp, index);
    struct cddpi_ddp_shards *shards;
    struct cddpi_reduce how;
    cddp_step_kind kind;
    size_t offset;
    cddp_type type;
    bool is_sum;

    if (own == NULL || check_mean(ddp, index, first, count, scratch) != CDDP_OK) {
        return NULL;
    }
    kind = cddpi_step_kind_of(&ddp->end.statuses[ddp->rank]);
    is_sum = kind == CDDP_STEP_SUM || kind == CDDP_STEP_BY_MICRO_BATCHES;
    shards = ddp->shards;
    type = ddp->params[index].type;
    own += first * cddp_type_bytes(type);
    if (shards == NULL || !shards->deferred || cddpi_micro_exchanges(ddp)) {
        return own;
    }
    offset = (size_t)(own - ddp->layout.block);
    how = (struct cddpi_reduce){type, is_sum ? CDDP_OP_SUM : CDDP_OP_MEAN, ddp->world_size, 1,
                                NULL};
    for (int rank = 0; rank < ddp->world_size; rank++) {
        shards->weights[rank] = (double)ddp->end.statuses[rank].samples;
        shards->src[rank] = (const unsigned char *)shards->peers[rank] + offset;
    }
    if (kind == CDDP_STEP_BY_SAMPLES) {
        cddpi_reduce_weighted(&how, type, shards->weights, ddp->world_size,
                              shards->weights + ddp->world_size);
    }
    cddpi_reduce(&how, &scratch, shards->src, count);
    return scratch;
}
