/* micro_sums.c - owns this rank's partial sums of a step's micro-batches. */
#include "ddp/micro_sums.h"

#include "base/alloc.h"
#include "ddp/ddp_step.h"
#include "kernels/cpu/reduce.h"
#include "kernels/cuda/cuda_kernels.h"

#include <cddp/sampler.h>

bool cddpi_micro_is_idle(const cddp_ddp *ddp)
{
    return cddpi_is_by_micro_batches(ddp) &&
           cddp_share_of(0, ddp->backward.step.micro_batches, ddp->rank, ddp->world_size).count ==
               0;
}

/* What depends only on the number of micro-batches. */
static void plan_step(cddp_ddp *ddp, uint64_t all)
{
    struct cddpi_micro_sums *sums = ddp->sums;

    if (sums->all == all) {
        return;
    }
    sums->all = all;
    sums->most = cddpi_micro_most_nodes(all, ddp->world_size);
    sums->is_of_ranks = cddpi_micro_is_tree_of_ranks(all, ddp->world_size);
}

/* Make sure that the stack has memory for its node @p at. */
static cddp_status reserve_block(cddp_ddp *ddp, int at)
{
    struct cddpi_micro_sums *sums = ddp->sums;
    size_t bytes = ddp->layout.plan->bytes > 0 ? ddp->layout.plan->bytes : CDDPI_ALIGNMENT;
    void *memory;

    if (sums->blocks[at] != NULL) {
        return CDDP_OK;
    }
    CDDPI_TRY(ddp->device->ops->alloc(ddp->device, bytes, "partial sums of gradients", &memory));
    sums->blocks[at] = memory;
    return cddpi_ddp_clear(ddp, memory, bytes); /* also what is between gradients */
}

cddp_status cddpi_micro_begin(cddp_ddp *ddp)
{
    const cddp_step *step = &ddp->backward.step;
    struct cddpi_micro_node stack[CDDPI_MICRO_NODES];
    int depth;

    if (ddp->sums == NULL) {
        ddp->sums = cddpi_zalloc(sizeof *ddp->sums);
        CDDPI_TRY_MEMORY(ddp->sums != NULL, "ddp: no memory for partial sums");
    }
    ddp->sums->run = 0;
    if (ddp->backward.done == 0) {
        ddp->sums->depth = 0;
        plan_step(ddp, step->micro_batches);
    }
    depth = ddp->sums->depth;
    memcpy(stack, ddp->sums->stack, (size_t)depth * sizeof *stack);
    ddp->sums->merges = cddpi_micro_is_idle(ddp)
                            ? 0
                            : cddpi_micro_push(stack, &depth,
                                               (struct cddpi_micro_node){step->micro_batch, 1},
                                               step->micro_batches);
    return ddp->backward.accumulates && ddp->sums->merges == 0 ? reserve_block(ddp, depth - 1)
                                                               : CDDP_OK;
}

/* Plan where each micro-batch of the run @p share comes to the sums. */
static cddp_status plan_run(cddp_ddp *ddp, cddp_share share)
{
    struct cddpi_micro_sums *sums = ddp->sums;
    struct cddpi_micro_place *places = cddpi_zalloc_array(share.count + 1, sizeof *places);

    CDDPI_TRY_MEMORY(places != NULL, "ddp: no memory for %llu micro-batches",
                     (unsigned long long)share.count);
    cddpi_free(sums->places);
    sums->places = places;
    sums->depth = sums->merges = 0;
    for (uint64_t m = 0; m < share.count; m++) {
        struct cddpi_micro_node stack[CDDPI_MICRO_NODES];
        int depth = sums->depth;

        memcpy(stack, sums->stack, (size_t)depth * sizeof *stack);
        places[m].depth = depth;
        places[m].merges = cddpi_micro_push(
            stack, &depth, (struct cddpi_micro_node){share.first + m, 1}, sums->all);
        sums->merges = places[m].merges;
        if (m + 1 < share.count) { /* the last one is merged as buckets start */
            memcpy(sums->stack, stack, (size_t)depth * sizeof *stack);
            sums->depth = depth;
            CDDPI_TRY(reserve_block(ddp, depth - 1));
        }
    }
    return CDDP_OK;
}

cddp_status cddpi_micro_begin_run(cddp_ddp *ddp)
{
    struct cddpi_micro_sums *sums = ddp->sums;
    cddp_share share = cddp_share_of(0, sums->all, ddp->rank, ddp->world_size);

    if (sums->arrived == NULL) {
        sums->arrived = cddpi_zalloc_array(ddp->slot_count, sizeof *sums->arrived);
        CDDPI_TRY_MEMORY(sums->arrived != NULL, "ddp: no memory for %zu gradients",
                         ddp->slot_count);
    }
    memset(sums->arrived, 0, ddp->slot_count * sizeof *sums->arrived);
    CDDPI_TRY(plan_run(ddp, share));
    sums->run = share.count;
    return CDDP_OK;
}

cddp_status cddpi_micro_add(const cddp_ddp *ddp, cddp_type type, void *to, const void *left,
                            const void *right, size_t bytes)
{
    struct cddpi_reduce how = {type, CDDP_OP_SUM, 2, 1, NULL};
    const void *src[] = {left, right};
    size_t count = bytes / cddp_type_bytes(type);

    if (cddpi_device_is_async(ddp->device)) {
        return ddp->device->kernels->add(ddp->device, type, left, right, false, count, to);
    }
    cddpi_reduce(&how, &to, src, count);
    return CDDP_OK;
}

/* Add the gradient @p right of @p slot to the sums, at @p place. */
static cddp_status add_slot(cddp_ddp *ddp, const struct cddpi_ddp_slot *slot,
                            struct cddpi_micro_place place, const unsigned char *right)
{
    struct cddpi_micro_sums *sums = ddp->sums;
    size_t offset = ddp->layout.plan->offsets[slot - ddp->slots];
    cddp_type type = ddp->params[slot->param].type;

    if (place.merges == 0) {
        return cddpi_ddp_copy(ddp, sums->blocks[place.depth] + offset, right, slot->bytes);
    }
    for (int i = place.depth - 1; i >= place.depth - place.merges; i--) {
        unsigned char *left = sums->blocks[i] + offset;

        CDDPI_TRY(cddpi_micro_add(ddp, type, left, left, right, slot->bytes));
        right = left;
    }
    return CDDP_OK;
}

/* Add the gradient of @p slot in the micro-batch that ends. */
static cddp_status keep_slot(cddp_ddp *ddp, const struct cddpi_ddp_slot *slot)
{
    struct cddpi_micro_sums *sums = ddp->sums;
    struct cddpi_micro_place place = {sums->depth, sums->merges};
    unsigned char *zeros; /* no gradient is zero; the block is free until the node is pushed */

    if (slot->ready) {
        return add_slot(ddp, slot, place, slot->grad);
    }
    zeros = sums->blocks[sums->depth] + ddp->layout.plan->offsets[slot - ddp->slots];
    CDDPI_TRY(cddpi_ddp_clear(ddp, zeros, slot->bytes));
    return place.merges > 0 ? add_slot(ddp, slot, place, zeros) : CDDP_OK;
}

cddp_status cddpi_micro_arrive(cddp_ddp *ddp, const struct cddpi_ddp_slot *slot, bool *out_last)
{
    struct cddpi_micro_sums *sums = ddp->sums;
    uint64_t before = sums->arrived[slot - ddp->slots]++;

    *out_last = before + 1 == sums->run;
    return *out_last ? CDDP_OK : add_slot(ddp, slot, sums->places[before], slot->grad);
}

cddp_status cddpi_micro_keep(cddp_ddp *ddp)
{
    struct cddpi_micro_sums *sums = ddp->sums;
    const cddp_step *step = &ddp->backward.step;

    if (ddp->backward.arrival_count < ddp->slot_count) { /* zeros need memory */
        cddp_status status = reserve_block(ddp, sums->depth);

        if (status != CDDP_OK) {
            return cddpi_ddp_abort(ddp->group, status);
        }
    }
    for (size_t s = 0; s < ddp->slot_count; s++) {
        CDDPI_TRY(keep_slot(ddp, &ddp->slots[s]));
    }
    (void)cddpi_micro_push(sums->stack, &sums->depth,
                           (struct cddpi_micro_node){step->micro_batch, 1}, step->micro_batches);
    return CDDP_OK;
}

cddp_status cddpi_micro_merge_bucket(const struct cddpi_bucket *bucket)
{
    cddp_ddp *ddp = bucket->ddp;
    const struct cddpi_bucket_plan_bucket *planned = &ddp->layout.plan->buckets[bucket->index];
    const struct cddpi_micro_sums *sums = ddp->sums;

    for (size_t i = 0; i < planned->count && sums->merges > 0; i++) {
        uint32_t s = ddp->layout.plan->members[planned->first + i];
        size_t first;
        size_t bytes = cddpi_bucket_part_of(bucket, &ddp->slots[s], &first);
        size_t offset = ddp->layout.plan->offsets[s] + first;
        unsigned char *sum = ddp->slots[s].slice + first;

        for (int n = sums->depth - 1; n >= sums->depth - sums->merges; n--) {
            CDDPI_TRY(
                cddpi_micro_add(ddp, bucket->type, sum, sums->blocks[n] + offset, sum, bytes));
        }
    }
    return CDDP_OK;
}

void cddpi_micro_end(cddp_ddp *ddp)
{
    if (ddp->sums != NULL) {
        ddp->sums->depth = 0;
    }
}

void cddpi_micro_release(cddp_ddp *ddp)
{
    for (int i = 0; ddp->sums != NULL && i < CDDPI_MICRO_NODES; i++) {
        ddp->device->ops->release(ddp->device, ddp->sums->blocks[i]);
        ddp->sums->blocks[i] = NULL;
    }
}

void cddpi_micro_destroy(cddp_ddp *ddp)
{
    cddpi_micro_release(ddp);
    if (ddp->sums != NULL) {
        cddpi_free(ddp->sums->places);
        cddpi_free(ddp->sums->arrived);
        cddpi_free(ddp->sums);
    }
}
