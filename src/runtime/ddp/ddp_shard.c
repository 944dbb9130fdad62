/* ddp_shard.c - owns the sharded optimizer (ZeRO stage 1: Rajbhandari et al., "ZeRO: Memory
 * Optimizations Toward Training Trillion Parameter Models", section 5.1): parameters in memory laid
 * out as the buckets, which part of them each rank updates, and how updates reach all ranks.
 *
 * A bucket is cut into world_size shards of equal size. Rank r gets shard r of the reduced
 * gradients and updates shard r of the parameters. Then ranks all-gather the updated shards, or the
 * shards of the copies that forward reads instead (copies.h). */
#include "ddp/ddp_shard.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "ddp/copies.h"
#include "ddp/ddp_bucket.h"
#include "ddp/ddp_layout.h"
#include "group/device/group_device.h"
#include "kernels/cpu/reduce.h"

#include <string.h>

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

static size_t most(size_t a, size_t b)
{
    return a > b ? a : b;
}

/* The elements of slot @p s that rank @p rank updates. */
static cddp_span span_of(const cddp_ddp *ddp, uint32_t s, int rank)
{
    const struct cddp_bucket *bucket = &ddp->layout.buckets[ddp->layout.plan->bucket_of[s]];
    const struct cddpi_param *param = &ddp->params[ddp->slots[s].param];
    size_t element = cddp_type_bytes(bucket->type);
    size_t shard = cddpi_shard_elements(bucket);
    size_t slice = (size_t)(ddp->slots[s].slice - (unsigned char *)bucket->data) / element;
    size_t start = most((size_t)rank * shard, slice);
    size_t end = least(((size_t)rank + 1) * shard, slice + param->count);

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
    if (shards->spans == NULL || shards->first == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "ddp: no memory for %zu spans", capacity);
    }
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

/* The copy of the element that is at byte @p offset of the block. */
static unsigned char *copy_at(const cddp_ddp *ddp, size_t offset)
{
    return ddp->shards->copies + offset / sizeof(float) * cddp_type_bytes(ddp->shards->copy_type);
}

void *cddpi_ddp_param_copy(const cddp_ddp *ddp, size_t index)
{
    uint32_t slot = ddp->params[index].slot;

    return slot != UINT32_MAX && ddp->planning.tensors[slot].separate
               ? copy_at(ddp, ddp->layout.plan->offsets[slot])
               : NULL;
}

/* Copy the parameters from the caller's memory. */
static cddp_status move_params(cddp_ddp *ddp)
{
    cddp_status status = CDDP_OK;

    for (size_t s = 0; s < ddp->slot_count && status == CDDP_OK; s++) {
        struct cddpi_param *param = &ddp->params[ddp->slots[s].param];
        unsigned char *place = ddp->shards->block + ddp->layout.plan->offsets[s];

        if (ddp->slots[s].bytes > 0) {
            status = cddpi_ddp_copy(ddp, place, param->data, ddp->slots[s].bytes);
        }
        param->data = place;
    }
    return status;
}

static cddp_status make_tables(cddp_ddp *ddp)
{
    struct cddpi_ddp_shards *shards = ddp->shards;
    size_t buckets = ddp->layout.plan->bucket_count;
    size_t world_size = (size_t)ddp->world_size;

    shards->gathers = cddpi_zalloc_array(buckets, sizeof *shards->gathers);
    shards->peers = cddpi_zalloc_array(world_size, sizeof *shards->peers);
    shards->src = cddpi_zalloc_array(world_size, sizeof *shards->src);
    shards->weights = cddpi_zalloc_array(2 * world_size, sizeof *shards->weights);
    if (shards->gathers == NULL || shards->peers == NULL || shards->src == NULL ||
        shards->weights == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "ddp: no memory for %zu buckets", buckets);
    }
    return make_spans(ddp);
}

static cddp_status make_events(cddp_ddp *ddp)
{
    struct cddpi_ddp_shards *shards = ddp->shards;
    size_t buckets = ddp->layout.plan->bucket_count;
    cddp_status status = CDDP_OK;

    shards->gathered = cddpi_zalloc_array(buckets, sizeof *shards->gathered);
    shards->awaited = cddpi_zalloc_array(buckets, sizeof *shards->awaited);
    if (shards->gathered == NULL || shards->awaited == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "ddp: no memory for %zu events", buckets);
    }
    for (size_t b = 0; status == CDDP_OK && b < buckets; b++) {
        status = ddp->device->ops->event_create(ddp->device, false, &shards->gathered[b]);
    }
    return status;
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

/* Defer reductions only if all ranks can. */
static cddp_status agree_on_deferred(cddp_ddp *ddp)
{
    uint8_t deferred = may_be_deferred(ddp);
    cddp_status status = cddp_all_reduce(ddp->group, &deferred, &deferred, 1, CDDP_U8, CDDP_OP_MIN,
                                         NULL);

    ddp->shards->deferred = deferred != 0;
    return status == CDDP_OK ? CDDP_OK : cddpi_fail_prefix(status, "ddp: shards");
}

cddp_status cddpi_shard_install(cddp_ddp *ddp)
{
    size_t bytes = ddp->layout.plan->bytes > 0 ? ddp->layout.plan->bytes : CDDPI_ALIGNMENT;
    void *block = NULL;
    cddp_status status = make_tables(ddp);

    if (status == CDDP_OK) {
        status = make_events(ddp);
    }
    if (status != CDDP_OK) {
        cddp_group_abort(ddp->group,
                         cddp_last_error()); /* the other ranks would wait for this one */
        return status;
    }
    status = cddp_group_alloc(ddp->group, bytes, &block);
    if (status != CDDP_OK) {
        return cddpi_fail_prefix(status, "ddp: %zu bytes for parameters", bytes);
    }
    ddp->shards->block = block;
    if (ddp->shards->has_copies) {
        bytes = bytes / sizeof(float) * cddp_type_bytes(ddp->shards->copy_type);
        status = cddp_group_alloc(ddp->group, bytes, &block);
        if (status != CDDP_OK) {
            return cddpi_fail_prefix(status, "ddp: %zu bytes for copies of parameters", bytes);
        }
        ddp->shards->copies = block;
    }
    status = move_params(ddp);
    if (status != CDDP_OK) {
        cddp_group_abort(ddp->group,
                         cddp_last_error()); /* the other ranks would wait for this one */
        return status;
    }
    return agree_on_deferred(ddp);
}

/* Release what depends on the current plan, except the parameters. */
static void release_tables(cddp_ddp *ddp)
{
    struct cddpi_ddp_shards *shards = ddp->shards;

    for (size_t b = 0; shards->gathered != NULL && b < ddp->layout.plan->bucket_count; b++) {
        ddp->device->ops->event_destroy(ddp->device, shards->gathered[b]);
    }
    cddpi_free(shards->gathered);
    cddpi_free(shards->awaited);
    cddpi_free(shards->spans);
    cddpi_free(shards->first);
    cddpi_free(shards->gathers);
    cddpi_free(shards->peers);
    cddpi_free(shards->src);
    cddpi_free(shards->weights);
    shards->gathered = NULL;
    shards->awaited = NULL;
    shards->spans = NULL;
    shards->first = NULL;
    shards->gathers = NULL;
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
    cddp_status status = CDDP_OK;

    for (size_t b = 0; status == CDDP_OK && b < ddp->layout.plan->bucket_count; b++) {
        const struct cddp_bucket *bucket = &ddp->layout.buckets[b];
        size_t shard = cddpi_shard_elements(bucket);
        unsigned char *all = bucket->data;
        unsigned char *own = all + (size_t)ddp->rank * shard * cddp_type_bytes(bucket->type);

        status = cddp_all_gather(ddp->group, own, all, shard, bucket->type, NULL);
    }
    for (size_t s = 0; status == CDDP_OK && s < ddp->slot_count; s++) {
        if (ddp->slots[s].copied && ddp->slots[s].bytes > 0) {
            status = cddpi_ddp_copy(ddp, ddp->slots[s].grad, ddp->slots[s].slice,
                                    ddp->slots[s].bytes);
        }
    }
    return status == CDDP_OK ? CDDP_OK : cddpi_fail_prefix(status, "ddp: gradients for a new plan");
}

cddp_status cddpi_shard_move(cddp_ddp *ddp, struct cddpi_layout *layout)
{
    void *block = ddp->shards->block;

    CDDPI_TRY(gather_grads(ddp));
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

static cddp_status gather_failed(cddp_ddp *ddp, size_t b, cddp_status status)
{
    return cddpi_ddp_break(ddp,
                           cddpi_fail_prefix(status, "ddp: updated parameters of bucket %zu of %zu",
                                             b, ddp->layout.plan->bucket_count));
}

/* Make each replay wait for the updates of the previous step, which may be a replay, too. */
static cddp_status record_wait(cddp_ddp *ddp, size_t b)
{
    struct cddpi_ddp_shards *shards = ddp->shards;

    if (shards->awaited[b]) {
        return CDDP_OK;
    }
    shards->awaited[b] = true;
    return ddp->device->ops->order(ddp->device, CDDPI_STREAM_COMPUTE, shards->gathered[b]);
}

static cddp_status finish_gather(cddp_ddp *ddp, size_t b)
{
    cddp_work **work = &ddp->shards->gathers[b];
    int64_t entered_ns;
    cddp_status status;

    if (cddpi_group_is_capturing(ddp->group)) {
        return record_wait(ddp, b);
    }
    if (*work == NULL) {
        return CDDP_OK;
    }
    entered_ns = cddpi_now_ns();
    status = cddp_work_wait(*work, 0);
    ddp->shards->waited_ns += (uint64_t)(cddpi_now_ns() - entered_ns);
    if (status != CDDP_OK) {
        return gather_failed(ddp, b, status);
    }
    cddp_work_destroy(*work);
    *work = NULL;
    return CDDP_OK;
}

/* Start the gather of a bucket's parameters, or of their copies. */
static cddp_status start_gather(cddp_ddp *ddp, size_t b, bool copies, cddp_work **out_work)
{
    const struct cddp_bucket *bucket = &ddp->layout.buckets[b];
    size_t shard = cddpi_shard_elements(bucket);
    size_t offset = ddp->layout.plan->buckets[b].offset;
    cddp_type type = copies ? ddp->shards->copy_type : bucket->type;
    unsigned char *all = copies ? copy_at(ddp, offset) : ddp->shards->block + offset;
    unsigned char *own = all + (size_t)ddp->rank * shard * cddp_type_bytes(type);

    return cddp_all_gather(ddp->group, own, all, shard, type, out_work);
}

/* Start all gathers, the last bucket's first: forward needs its parameters first. */
static cddp_status start_gathers(cddp_ddp *ddp)
{
    for (size_t b = ddp->layout.plan->bucket_count; b-- > 0;) {
        cddp_status status = start_gather(ddp, b, ddp->layout.plan->buckets[b].separate,
                                          &ddp->shards->gathers[b]);

        if (status == CDDP_OK) {
            status = ddp->device->ops->record(ddp->device, ddp->shards->gathered[b],
                                              CDDPI_STREAM_COMM);
        }
        if (status != CDDP_OK) {
            return gather_failed(ddp, b, status);
        }
    }
    ddp->shards->updated = true;
    return CDDP_OK;
}

void cddpi_shard_capture(cddp_ddp *ddp)
{
    memset(ddp->shards->awaited, 0, ddp->layout.plan->bucket_count);
}

void cddpi_shard_forget(cddp_ddp *ddp)
{
    for (size_t b = 0; b < ddp->layout.plan->bucket_count; b++) {
        cddp_work_destroy(ddp->shards->gathers[b]);
        ddp->shards->gathers[b] = NULL;
    }
}

static cddp_status check_sharded(const cddp_ddp *ddp)
{
    if (ddp->shards == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "ddp: the optimizer is not sharded");
    }
    return cddpi_ddp_usable(ddp);
}

static cddp_status send_updates(cddp_ddp *ddp)
{
    CDDPI_TRY(check_sharded(ddp));
    if (ddp->backward.begun) {
        return cddpi_fail(CDDP_ERR_STATE, "ddp: updated in the middle of backward %llu",
                          (unsigned long long)ddp->backward.number);
    }
    CDDPI_TRY(cddpi_shard_finish(ddp));
    return ddp->world_size > 1 ? start_gathers(ddp) : CDDP_OK;
}

cddp_status cddp_ddp_updated(cddp_ddp *ddp)
{
    CDDPI_TRY(cddpi_ddp_enter(ddp, "ddp_updated"));
    return cddpi_ddp_leave(ddp, send_updates(ddp));
}

static cddp_status param_wait(cddp_ddp *ddp, size_t index)
{
    CDDPI_TRY(check_sharded(ddp));
    if (index >= ddp->param_count) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "ddp: parameter %zu of %zu", index, ddp->param_count);
    }
    if (ddp->params[index].slot == UINT32_MAX) {
        return CDDP_OK;
    }
    return finish_gather(ddp, ddp->layout.plan->bucket_of[ddp->params[index].slot]);
}

cddp_status cddp_ddp_param_wait(cddp_ddp *ddp, size_t index)
{
    CDDPI_TRY(cddpi_ddp_enter(ddp, "ddp_param_wait"));
    return cddpi_ddp_leave(ddp, param_wait(ddp, index));
}

cddp_status cddpi_shard_finish(cddp_ddp *ddp)
{
    /* finish gathers in the order in which they were started */
    for (size_t b = ddp->layout.plan->bucket_count; b-- > 0;) {
        CDDPI_TRY(finish_gather(ddp, b));
    }
    return CDDP_OK;
}

static cddp_status params_wait(cddp_ddp *ddp)
{
    CDDPI_TRY(check_sharded(ddp));
    return cddpi_shard_finish(ddp);
}

cddp_status cddp_ddp_params_wait(cddp_ddp *ddp)
{
    CDDPI_TRY(cddpi_ddp_enter(ddp, "ddp_params_wait"));
    return cddpi_ddp_leave(ddp, params_wait(ddp));
}

cddp_status cddpi_ddp_params_whole(cddp_ddp *ddp)
{
    if (ddp->shards != NULL) {
        CDDPI_TRY(cddp_ddp_params_wait(ddp));
    }
    for (size_t b = 0; b < ddp->layout.plan->bucket_count; b++) {
        cddp_status status = CDDP_OK;

        if (ddp->layout.plan->buckets[b].separate) {
            status = start_gather(ddp, b, false, NULL);
        }
        if (status != CDDP_OK) {
            return gather_failed(ddp, b, status);
        }
    }
    return CDDP_OK;
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
