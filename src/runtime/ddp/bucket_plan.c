/* bucket_plan.c - owns the bucket plan: a pure function from sizes, types, order and caps to
 * slices. */
#include "ddp/bucket_plan.h"

#include "base/alloc.h"
#include "base/error.h"

#include <stdlib.h>

enum { TYPES = CDDP_U8 + 1 };

/* When to cut the caller's block: each cut costs the latency of one more collective. */
enum { STRAY_BYTES = 256 << 10, STRAY_SHARE = 8, MOST_CUTS = 64 };

/* A bucket while it is being filled. */
struct draft {
    cddp_type type;
    bool separate;
    size_t payload;
    size_t count;
    bool is_part;
    uint32_t last;   /* its last member's position in the order of completion */
    uint32_t number; /* drafts are numbered in the order in which they were opened */
    size_t from,
        to; /* flat plan: when its members become ready, as ranges of `ready_at` in bytes */
};

/* A tensor while buckets are being filled. */
struct drafted {
    uint32_t draft;    /* its first one */
    uint32_t parts;    /* the number of its drafts */
    uint32_t position; /* its place in the order of completion */
    size_t ready_at;   /* bytes of all tensors that are ready once this one is */
};

struct drafts {
    struct draft *list;
    size_t count;
    struct drafted *tensors;
    uint32_t *walk;     /* tensors in the order in which they are assigned to buckets */
    uint32_t *bucket;   /* by a draft's number: the index of its bucket */
    size_t stray_bytes; /* the most bytes of other ranges that may become ready between the members
                           of a range: see is_apart() */
    uint32_t cuts;      /* how many ranges were cut because of stray_bytes */
};

static void free_drafts(struct drafts *drafts)
{
    cddpi_free(drafts->list);
    cddpi_free(drafts->tensors);
    cddpi_free(drafts->walk);
    cddpi_free(drafts->bucket);
}

static cddp_status no_memory(size_t count)
{
    return cddpi_fail(CDDP_ERR_NO_MEMORY, "ddp: no memory to plan the buckets of %zu parameters",
                      count);
}

static bool is_large(const struct cddpi_bucket_plan_tensor *tensor,
                     const struct cddpi_bucket_plan_rule *rule)
{
    return rule->large_bytes > 0 && tensor->bytes >= rule->large_bytes;
}

/* The size of each part of @p tensor but the last; its own size if it is not cut. */
static size_t part_of(const struct cddpi_bucket_plan_tensor *tensor,
                      const struct cddpi_bucket_plan_rule *rule)
{
    size_t parts;

    if (!is_large(tensor, rule) || rule->part_bytes == 0 || rule->grain > 0) {
        return tensor->bytes;
    }
    parts = (tensor->bytes + rule->part_bytes - 1) / rule->part_bytes;
    parts = parts < CDDPI_BUCKET_PARTS ? parts : CDDPI_BUCKET_PARTS;
    return cddpi_align((tensor->bytes + parts - 1) / parts);
}

static cddp_status alloc_drafts(const struct cddpi_bucket_plan_tensor *tensors, size_t count,
                                const struct cddpi_bucket_plan_rule *rule, struct drafts *drafts)
{
    size_t most = 1;

    drafts->tensors = cddpi_zalloc_array(count + 1, sizeof *drafts->tensors);
    for (size_t t = 0; t < count && drafts->tensors != NULL; t++) {
        size_t part = part_of(&tensors[t], rule);

        drafts->tensors[t].parts = part < tensors[t].bytes
                                       ? (uint32_t)((tensors[t].bytes + part - 1) / part)
                                       : 1;
        most += drafts->tensors[t].parts;
    }
    drafts->list = cddpi_zalloc_array(most, sizeof *drafts->list);
    drafts->bucket = cddpi_zalloc_array(most, sizeof *drafts->bucket);
    drafts->walk = cddpi_zalloc_array(count + 1, sizeof *drafts->walk);
    if (drafts->tensors == NULL || drafts->list == NULL || drafts->bucket == NULL ||
        drafts->walk == NULL) {
        return no_memory(count);
    }
    return CDDP_OK;
}

/* Set walk and position. Check the order, since it may come from another rank. */
static cddp_status read_order(const struct cddpi_bucket_plan_rule *rule, size_t count,
                              struct drafts *drafts)
{
    for (size_t t = 0; t < count; t++) {
        drafts->tensors[t].position = UINT32_MAX;
    }
    for (size_t i = 0; i < count; i++) {
        uint32_t tensor = rule->order != NULL ? rule->order[i] : (uint32_t)(count - 1 - i);

        if (tensor >= count || drafts->tensors[tensor].position != UINT32_MAX) {
            return cddpi_fail(
                CDDP_ERR_ARGUMENT,
                "ddp: the order of %zu gradients is not a permutation: entry %zu is %u%s", count, i,
                tensor, tensor < count ? " again" : "");
        }
        drafts->tensors[tensor].position = (uint32_t)i;
        drafts->walk[i] = tensor;
    }
    return CDDP_OK;
}

/* For a flat plan. The caller's block cannot be rearranged, so the order of completion decides only
 * where the block is cut and in which order its ranges are reduced. */
static void read_flat_order(const struct cddpi_bucket_plan_tensor *tensors, size_t count,
                            const struct cddpi_bucket_plan_rule *rule, struct drafts *drafts)
{
    size_t ready = 0;

    for (size_t i = 0; i < count; i++) {
        ready += tensors[drafts->walk[i]].bytes;
        drafts->tensors[drafts->walk[i]].ready_at = ready;
    }
    for (size_t i = 0; i < count; i++) {
        drafts->walk[i] = (uint32_t)(count - 1 - i);
    }
    drafts->stray_bytes = ready / STRAY_SHARE > STRAY_BYTES ? ready / STRAY_SHARE : STRAY_BYTES;
    if (drafts->stray_bytes > rule->bucket_bytes) {
        drafts->stray_bytes = rule->bucket_bytes;
    }
}

/* Whether the range of @p draft, with the tensor added, would wait long: too many bytes of other
 * ranges become ready between its first gradient and its last. */
static bool is_apart(const struct draft *draft, size_t bytes, size_t ready_at,
                     const struct drafts *drafts)
{
    size_t from = ready_at - bytes < draft->from ? ready_at - bytes : draft->from;
    size_t to = ready_at > draft->to ? ready_at : draft->to;

    return to - from - draft->payload - bytes > drafts->stray_bytes && drafts->cuts < MOST_CUTS;
}

static struct draft *open_draft(const struct cddpi_bucket_plan_tensor *tensor,
                                struct drafts *drafts)
{
    struct draft *draft = &drafts->list[drafts->count];

    draft->number = (uint32_t)drafts->count++;
    draft->type = tensor->type;
    draft->separate = tensor->separate;
    return draft;
}

/* Give @p tensor buckets of its own. */
static void draft_large(const struct cddpi_bucket_plan_tensor *tensor, uint32_t index,
                        const struct cddpi_bucket_plan_rule *rule, struct drafts *drafts)
{
    size_t part = part_of(tensor, rule);
    struct drafted *drafted = &drafts->tensors[index];

    drafted->draft = (uint32_t)drafts->count;
    for (uint32_t p = 0; p < drafted->parts; p++) {
        struct draft *draft = open_draft(tensor, drafts);
        size_t left = tensor->bytes - p * part;

        draft->payload = left < part ? left : part;
        draft->count = 1;
        draft->is_part = drafted->parts > 1;
        draft->last = drafted->position;
    }
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
        uint32_t index = drafts->walk[i];
        const struct cddpi_bucket_plan_tensor *tensor = &tensors[index];
        struct drafted *drafted = &drafts->tensors[index];
        int kind = 2 * (int)tensor->type + (tensor->separate ? 1 : 0);
        struct draft *draft = open[kind];
        size_t from = drafted->ready_at - tensor->bytes;

        if (is_large(tensor, rule)) {
            draft_large(tensor, index, rule, drafts);
            open[kind] = NULL; /* members of the open bucket must not wait for this tensor */
            cap[kind] = rule->bucket_bytes;
            continue;
        }
        if (draft != NULL && rule->flat &&
            is_apart(draft, tensor->bytes, drafted->ready_at, drafts)) {
            drafts->cuts++;
            draft = NULL;
        }
        if (draft == NULL) {
            draft = open[kind] = open_draft(tensor, drafts);
            draft->from = SIZE_MAX;
        }
        draft->from = from < draft->from ? from : draft->from;
        draft->to = drafted->ready_at > draft->to ? drafted->ready_at : draft->to;
        draft->payload += tensor->bytes;
        draft->count++;
        draft->last = drafted->position > draft->last ? drafted->position : draft->last;
        drafted->draft = draft->number;
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

    if (x->last != y->last) {
        return x->last < y->last ? -1 : 1;
    }
    return x->number < y->number ? -1 : x->number > y->number; /* parts of one tensor, in order */
}

static cddp_status alloc_plan(size_t count, size_t members, size_t buckets,
                              struct cddpi_bucket_plan **out)
{
    struct cddpi_bucket_plan *plan = cddpi_zalloc(sizeof *plan);

    if (plan == NULL) {
        return no_memory(count);
    }
    plan->tensor_count = count;
    plan->bucket_count = buckets;
    plan->buckets = cddpi_zalloc_array(buckets + 1, sizeof *plan->buckets);
    plan->members = cddpi_zalloc_array(members + 1, sizeof *plan->members);
    plan->bucket_of = cddpi_zalloc_array(count + 1, sizeof *plan->bucket_of);
    plan->parts_of = cddpi_zalloc_array(count + 1, sizeof *plan->parts_of);
    plan->offsets = cddpi_zalloc_array(count + 1, sizeof *plan->offsets);
    if (plan->buckets == NULL || plan->members == NULL || plan->bucket_of == NULL ||
        plan->parts_of == NULL || plan->offsets == NULL) {
        cddpi_bucket_plan_destroy(plan);
        return no_memory(count);
    }
    *out = plan;
    return CDDP_OK;
}

/* Number the buckets in the order of completion, and list the members of each in the order in which
 * they were added. */
static void list_members(const struct drafts *drafts, struct cddpi_bucket_plan *plan)
{
    size_t first = 0;

    for (size_t b = 0; b < plan->bucket_count; b++) {
        struct cddpi_bucket_plan_bucket *bucket = &plan->buckets[b];
        const struct draft *draft = &drafts->list[b];

        bucket->type = draft->type;
        bucket->separate = draft->separate;
        bucket->payload = draft->payload;
        bucket->is_part = draft->is_part;
        bucket->first = first;
        first += draft->count;
    }
    for (size_t i = 0; i < plan->tensor_count; i++) {
        uint32_t tensor = drafts->walk[i];
        struct cddpi_bucket_plan_bucket *bucket = &plan->buckets[plan->bucket_of[tensor]];

        for (uint32_t p = 0; p < plan->parts_of[tensor]; p++, bucket++) {
            plan->members[bucket->first + bucket->count++] = tensor;
        }
    }
}

static void place_aligned(const struct cddpi_bucket_plan_tensor *tensors, size_t grain,
                          struct cddpi_bucket_plan *plan)
{
    size_t offset = 0;

    for (size_t b = 0; b < plan->bucket_count; b++) {
        struct cddpi_bucket_plan_bucket *bucket = &plan->buckets[b];

        bucket->offset = offset;
        if (bucket->is_part) {
            if (plan->bucket_of[plan->members[bucket->first]] == b) {
                plan->offsets[plan->members[bucket->first]] = offset;
            }
            offset += cddpi_align(bucket->payload);
            bucket->bytes = offset - bucket->offset;
            continue;
        }
        for (size_t i = bucket->first; i < bucket->first + bucket->count; i++) {
            plan->offsets[plan->members[i]] = offset;
            offset += cddpi_align(tensors[plan->members[i]].bytes);
        }
        bucket->bytes = offset - bucket->offset;
        if (grain > 0) {
            bucket->bytes = (bucket->bytes + grain - 1) / grain * grain;
        }
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
        uint32_t last = plan->members[bucket->first + bucket->count - 1];

        /* members go from the end of the block to its start, but parts of one tensor go from its
         * start to its end */
        bucket->offset = plan->offsets[last];
        if (b > plan->bucket_of[last]) {
            bucket->offset = bucket[-1].offset + bucket[-1].bytes;
        }
        bucket->bytes = bucket->payload;
    }
}

cddp_status cddpi_bucket_plan_make(const struct cddpi_bucket_plan_tensor *tensors, size_t count,
                                   const struct cddpi_bucket_plan_rule *rule,
                                   struct cddpi_bucket_plan **out)
{
    struct drafts drafts = {0};
    struct cddpi_bucket_plan *plan = NULL;
    size_t members = 0;
    cddp_status status;

    CDDPI_TRY_GOTO(done, status, alloc_drafts(tensors, count, rule, &drafts));
    CDDPI_TRY_GOTO(done, status, read_order(rule, count, &drafts));
    if (rule->flat) {
        read_flat_order(tensors, count, rule, &drafts);
    }
    fill_drafts(tensors, count, rule, &drafts);
    for (size_t t = 0; t < count; t++) {
        members += drafts.tensors[t].parts;
    }
    CDDPI_TRY_GOTO(done, status, alloc_plan(count, members, drafts.count, &plan));
    qsort(drafts.list, drafts.count, sizeof *drafts.list, by_completion);
    for (size_t b = 0; b < drafts.count; b++) {
        drafts.bucket[drafts.list[b].number] = (uint32_t)b;
    }
    for (size_t t = 0; t < count; t++) {
        plan->bucket_of[t] = drafts.bucket[drafts.tensors[t].draft];
        plan->parts_of[t] = drafts.tensors[t].parts;
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
    cddpi_free(plan->parts_of);
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
    for (size_t i = 0; i < a->bucket_count; i++) { /* buckets that hold parts of a tensor */
        if (a->buckets[i].offset != b->buckets[i].offset ||
            a->buckets[i].bytes != b->buckets[i].bytes) {
            return false;
        }
    }
    return true;
}
