/* plan.c - owns the bucket plan: a pure function from sizes, types, order and caps to slices. */
#include "ddp/plan.h"

#include "base/alloc.h"
#include "base/error.h"

#include <stdlib.h>
#include <string.h>

enum { TYPES = CDDP_U8 + 1 };

/* A bucket while it is being filled. */
struct draft {
    cddp_type type;
    bool separate;
    size_t payload;
    size_t count;
    uint32_t last;   /* position in the order of completion of the member that comes last */
    uint32_t number; /* in order of opening */
};

struct drafts {
    struct draft *list;
    size_t count;
    uint32_t *of;       /* by tensor */
    uint32_t *walk;     /* tensors in the order in which they are put into buckets */
    uint32_t *position; /* by tensor: place in the order of completion */
};

static void free_drafts(struct drafts *drafts)
{
    cddpi_free(drafts->list);
    cddpi_free(drafts->of);
    cddpi_free(drafts->walk);
    cddpi_free(drafts->position);
}

static cddp_status no_memory(size_t count)
{
    return cddpi_fail(CDDP_ERR_NO_MEMORY, "ddp: no memory to plan the buckets of %zu parameters",
                      count);
}

static cddp_status alloc_drafts(size_t count, struct drafts *drafts)
{
    drafts->list = cddpi_zalloc_array(count + 1, sizeof *drafts->list);
    drafts->of = cddpi_zalloc_array(count + 1, sizeof *drafts->of);
    drafts->walk = cddpi_zalloc_array(count + 1, sizeof *drafts->walk);
    drafts->position = cddpi_zalloc_array(count + 1, sizeof *drafts->position);
    if (drafts->list == NULL || drafts->of == NULL || drafts->walk == NULL ||
        drafts->position == NULL) {
        return no_memory(count);
    }
    return CDDP_OK;
}

/* Set walk and position; the order may come from another rank, so it is checked. */
static cddp_status read_order(const struct cddpi_bucket_plan_rule *rule, size_t count,
                              struct drafts *drafts)
{
    memset(drafts->position, 0xff, count * sizeof *drafts->position);
    for (size_t i = 0; i < count; i++) {
        uint32_t tensor = rule->order != NULL ? rule->order[i] : (uint32_t)(count - 1 - i);

        if (tensor >= count || drafts->position[tensor] != UINT32_MAX) {
            return cddpi_fail(
                CDDP_ERR_ARGUMENT,
                "ddp: the order of %zu gradients is not a permutation: entry %zu is %u%s", count, i,
                tensor, tensor < count ? " again" : "");
        }
        drafts->position[tensor] = (uint32_t)i;
        drafts->walk[i] = tensor;
    }
    /* the caller's block cannot be rearranged: only the order of its ranges follows completion */
    for (size_t i = 0; rule->flat && i < count; i++) {
        drafts->walk[i] = (uint32_t)(count - 1 - i);
    }
    return CDDP_OK;
}

static void fill_drafts(const struct cddpi_bucket_plan_tensor *tensors, size_t count,
                        const struct cddpi_bucket_plan_rule *rule, struct drafts *drafts)
{
    struct draft *open[2 * TYPES] = {NULL};
    size_t cap[2 * TYPES];

    for (int kind = 0; kind < 2 * TYPES; kind++) {
        cap[kind] = rule->first_bytes;
    }
    for (size_t i = 0; i < count; i++) {
        uint32_t tensor = drafts->walk[i];
        int kind = 2 * (int)tensors[tensor].type + (tensors[tensor].separate ? 1 : 0);
        struct draft *draft = open[kind];

        if (draft == NULL) {
            draft = &drafts->list[drafts->count];
            draft->number = (uint32_t)drafts->count++;
            draft->type = tensors[tensor].type;
            draft->separate = tensors[tensor].separate;
            open[kind] = draft;
        }
        draft->payload += tensors[tensor].bytes;
        draft->count++;
        if (drafts->position[tensor] > draft->last) {
            draft->last = drafts->position[tensor];
        }
        drafts->of[tensor] = draft->number;
        if (draft->payload >= cap[kind]) {
            open[kind] = NULL;
            cap[kind] = rule->bucket_bytes;
        }
    }
}

static int by_completion(const void *a, const void *b)
{
    const struct draft *x = a;
    const struct draft *y = b;

    return x->last < y->last ? -1 : x->last > y->last;
}

static cddp_status alloc_plan(size_t count, size_t buckets, struct cddpi_bucket_plan **out)
{
    struct cddpi_bucket_plan *plan = cddpi_zalloc(sizeof *plan);

    if (plan == NULL) {
        return no_memory(count);
    }
    plan->tensor_count = count;
    plan->bucket_count = buckets;
    plan->buckets = cddpi_zalloc_array(buckets + 1, sizeof *plan->buckets);
    plan->members = cddpi_zalloc_array(count + 1, sizeof *plan->members);
    plan->bucket_of = cddpi_zalloc_array(count + 1, sizeof *plan->bucket_of);
    plan->offsets = cddpi_zalloc_array(count + 1, sizeof *plan->offsets);
    if (plan->buckets == NULL || plan->members == NULL || plan->bucket_of == NULL ||
        plan->offsets == NULL) {
        cddpi_bucket_plan_destroy(plan);
        return no_memory(count);
    }
    *out = plan;
    return CDDP_OK;
}

/* Number the buckets by completion and list their members in the order they were put in. */
static void list_members(const struct drafts *drafts, struct cddpi_bucket_plan *plan)
{
    size_t first = 0;

    for (size_t b = 0; b < plan->bucket_count; b++) {
        struct cddpi_bucket_plan_bucket *bucket = &plan->buckets[b];
        const struct draft *draft = &drafts->list[b];

        bucket->type = draft->type;
        bucket->separate = draft->separate;
        bucket->payload = draft->payload;
        bucket->first = first;
        first += draft->count;
    }
    for (size_t i = 0; i < plan->tensor_count; i++) {
        uint32_t tensor = drafts->walk[i];
        struct cddpi_bucket_plan_bucket *bucket = &plan->buckets[plan->bucket_of[tensor]];

        plan->members[bucket->first + bucket->count++] = tensor;
    }
}

static size_t padded(size_t bytes, size_t grain)
{
    return grain > 0 ? (bytes + grain - 1) / grain * grain : bytes;
}

static void place_aligned(const struct cddpi_bucket_plan_tensor *tensors, size_t grain,
                          struct cddpi_bucket_plan *plan)
{
    size_t offset = 0;

    for (size_t b = 0; b < plan->bucket_count; b++) {
        struct cddpi_bucket_plan_bucket *bucket = &plan->buckets[b];

        bucket->offset = offset;
        for (size_t i = bucket->first; i < bucket->first + bucket->count; i++) {
            plan->offsets[plan->members[i]] = offset;
            offset += cddpi_align(tensors[plan->members[i]].bytes);
        }
        bucket->bytes = padded(offset - bucket->offset, grain);
        offset = bucket->offset + bucket->bytes;
    }
    plan->bytes = offset;
}

static void place_flat(const struct cddpi_bucket_plan_tensor *tensors,
                       struct cddpi_bucket_plan *plan)
{
    for (size_t t = 0; t < plan->tensor_count; t++) {
        plan->offsets[t] = plan->bytes;
        plan->bytes += tensors[t].bytes;
    }
    for (size_t b = 0; b < plan->bucket_count; b++) {
        struct cddpi_bucket_plan_bucket *bucket = &plan->buckets[b];

        /* members go from the end of the block to its start */
        bucket->offset = plan->offsets[plan->members[bucket->first + bucket->count - 1]];
        bucket->bytes = bucket->payload;
    }
}

cddp_status cddpi_bucket_plan_make(const struct cddpi_bucket_plan_tensor *tensors, size_t count,
                                   const struct cddpi_bucket_plan_rule *rule,
                                   struct cddpi_bucket_plan **out)
{
    struct drafts drafts = {NULL, 0, NULL, NULL, NULL};
    struct cddpi_bucket_plan *plan = NULL;
    uint32_t renumbered;
    cddp_status status = alloc_drafts(count, &drafts);

    if (status == CDDP_OK) {
        status = read_order(rule, count, &drafts);
    }
    if (status != CDDP_OK) {
        goto done;
    }
    fill_drafts(tensors, count, rule, &drafts);
    status = alloc_plan(count, drafts.count, &plan);
    if (status != CDDP_OK) {
        goto done;
    }
    qsort(drafts.list, drafts.count, sizeof *drafts.list, by_completion);
    /* position is not needed any more: reuse it as the bucket's index, by order of opening */
    for (renumbered = 0; renumbered < drafts.count; renumbered++) {
        drafts.position[drafts.list[renumbered].number] = renumbered;
    }
    for (size_t t = 0; t < count; t++) {
        plan->bucket_of[t] = drafts.position[drafts.of[t]];
    }
    list_members(&drafts, plan);
    if (rule->flat) {
        place_flat(tensors, plan);
    } else {
        place_aligned(tensors, rule->grain, plan);
    }
    *out = plan;

done:
    free_drafts(&drafts);
    return status;
}

void cddpi_bucket_plan_destroy(struct cddpi_bucket_plan *plan)
{
    if (plan == NULL) {
        return;
    }
    cddpi_free(plan->buckets);
    cddpi_free(plan->members);
    cddpi_free(plan->bucket_of);
    cddpi_free(plan->offsets);
    cddpi_free(plan);
}

bool cddpi_bucket_plan_equal(const struct cddpi_bucket_plan *a, const struct cddpi_bucket_plan *b)
{
    if (a->tensor_count != b->tensor_count || a->bucket_count != b->bucket_count) {
        return false;
    }
    for (size_t t = 0; t < a->tensor_count; t++) {
        if (a->bucket_of[t] != b->bucket_of[t] || a->offsets[t] != b->offsets[t]) {
            return false;
        }
    }
    return true;
}
