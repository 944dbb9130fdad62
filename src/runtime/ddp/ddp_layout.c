/* ddp_layout.c - owns the buckets' sizes and memory. If the caller gives no sizes, rank 0 chooses
 * them from the speed of the group's link, and all ranks take its choice. A layout is a plan with
 * memory; gradients move from one layout to the next. */
#include "ddp/ddp_layout.h"
#include "base/alloc.h"
#include "base/error.h"
#include "base/log.h"
#include "ddp/ddp_observe.h"
#include "ddp/ddp_shard.h"
#include "ddp/ddp_step.h"
#include "ddp/micro_sums.h"

#include <stdio.h>
#include <string.h>

/* When to warn that the first bucket starts late: the model has more than WORTH_BYTES (with fewer,
 * overlap matters little), and more than MUCH_PERCENT of the other gradients are ready earlier. */
enum { WORTH_BYTES = 1 << 20, MUCH_PERCENT = 50 };

static bool is_narrow(const cddp_ddp *ddp)
{
    return ddp->hook == cddp_hook_bf16 || ddp->hook == cddp_hook_fp16;
}

static bool is_built_in(const cddp_ddp *ddp)
{
    return ddp->hook == cddp_hook_identity || is_narrow(ddp);
}

/* Replace sizes that are 0 by the defaults. */
static void fill_defaults(struct cddpi_bucket_plan_rule *rule)
{
    static const size_t first_bytes = (size_t)1 << 20;
    static const size_t bucket_bytes = (size_t)25 << 20;

    rule->bucket_bytes = rule->bucket_bytes > 0 ? rule->bucket_bytes : bucket_bytes;
    if (rule->first_bytes == 0) {
        rule->first_bytes = rule->bucket_bytes < first_bytes ? rule->bucket_bytes : first_bytes;
    }
}

/* No sizes are chosen on a device: the speed of its transport is not measured, and the CPU does not
 * know when gradients become ready. */
void cddpi_sizes_begin(cddp_ddp *ddp, const cddp_ddp_options *options)
{
    cddp_type type = ddp->hook == cddp_hook_bf16   ? CDDP_BF16
                     : ddp->hook == cddp_hook_fp16 ? CDDP_F16
                                                   : CDDP_F32;

    ddp->planning.rule.first_bytes = options->first_bucket_bytes;
    ddp->planning.rule.bucket_bytes = options->bucket_bytes;
    if (options->part_bytes > 0 && !options->shard && is_built_in(ddp)) {
        ddp->planning.rule.large_bytes = options->part_bytes + 1;
        ddp->planning.rule.part_bytes = options->part_bytes;
    }
    fill_defaults(&ddp->planning.rule);
    ddp->planning.chooses_sizes = options->first_bucket_bytes == 0 && options->bucket_bytes == 0 &&
                                  options->part_bytes == 0 && !cddpi_device_is_async(ddp->device) &&
                                  cddpi_group_link(ddp->group, type, &ddp->planning.link) &&
                                  ddp->planning.link.is_measured;
}

static cddp_status choose_sizes_alone(cddp_ddp *ddp, const uint32_t *order, bool measured)
{
    struct cddpi_bucket_question question = {.tensors = ddp->planning.tensors,
                                             .count = ddp->slot_count,
                                             .ready_s = measured ? ddp->backward.ready_s : NULL,
                                             .link = &ddp->planning.link,
                                             .sent = is_narrow(ddp) ? 0.5 : 1,
                                             .may_split = ddp->shards == NULL && is_built_in(ddp)};
    bool copied = false;

    for (size_t s = 0; s < ddp->slot_count; s++) {
        copied = copied || ddp->slots[s].copied;
    }
    question.rule = (struct cddpi_bucket_plan_rule){
        .grain = ddp->planning.rule.grain, .flat = ddp->planning.rule.flat, .order = order};
    fill_defaults(&question.rule);
    question.sent *= ddp->shards != NULL ? 0.5 : 1;
    question.worked_s = (copied + is_narrow(ddp)) / ddp->planning.link.reduce_bytes_per_s;
    return cddpi_bucket_sizes_choose(&question, &ddp->planning.sizes);
}

static void set_sizes(struct cddpi_bucket_plan_rule *rule, const struct cddpi_bucket_sizes *sizes)
{
    rule->first_bytes = sizes->first_bytes;
    rule->bucket_bytes = sizes->bucket_bytes;
    rule->large_bytes = sizes->large_bytes;
    rule->part_bytes = sizes->part_bytes;
}

cddp_status cddpi_sizes_choose(cddp_ddp *ddp, const uint32_t *order, bool measured,
                               bool *out_changed)
{
    struct cddpi_bucket_plan_rule *rule = &ddp->planning.rule;
    struct cddpi_bucket_plan_rule before = *rule;
    cddp_status status = ddp->rank == 0 ? choose_sizes_alone(ddp, order, measured) : CDDP_OK;

    if (status != CDDP_OK) {
        return cddpi_ddp_abort(ddp->group, status);
    }
    status = cddp_broadcast(ddp->group, &ddp->planning.sizes, sizeof ddp->planning.sizes, CDDP_U8,
                            0, NULL);
    if (status != CDDP_OK) {
        return cddpi_fail_prefix(status, "ddp: rank 0's choice of bucket sizes");
    }
    set_sizes(rule, &ddp->planning.sizes);
    *out_changed = rule->first_bytes != before.first_bytes ||
                   rule->bucket_bytes != before.bucket_bytes ||
                   rule->large_bytes != before.large_bytes || rule->part_bytes != before.part_bytes;
    return CDDP_OK;
}

/* For the log: "; each gradient of 4194304 bytes or more has its own bucket, in parts of 1048576".
 */
static void tell_large(const struct cddpi_bucket_plan_rule *rule, char *out, size_t bytes)
{
    char parts[64] = "";

    out[0] = '\0';
    if (rule->large_bytes == 0) {
        return;
    }
    if (rule->part_bytes > 0) {
        snprintf(parts, sizeof parts, ", in parts of %zu", rule->part_bytes);
    }
    snprintf(out, bytes, "; each gradient of %zu bytes or more has its own bucket%s",
             rule->large_bytes, parts);
}

void cddpi_sizes_tell(const cddp_ddp *ddp, bool measured)
{
    const struct cddpi_bucket_plan *plan = ddp->layout.plan;
    char usually[64] = "";
    char large[128];

    if (ddp->rank != 0 || ddp->world_size == 1 || !cddpi_log_enabled(CDDPI_LOG_INFO)) {
        return;
    }
    tell_large(&ddp->planning.rule, large, sizeof large);
    cddpi_log(
        CDDPI_LOG_INFO,
        "ddp: %zu bytes of gradients in %zu buckets: the first closes at %zu bytes, others at "
        "%zu%s%s",
        plan->bytes, plan->bucket_count, ddp->planning.rule.first_bytes,
        ddp->planning.rule.bucket_bytes, large,
        ddp->planning.chooses_sizes ? "" : " (given, or defaults)");
    if (ddp->planning.chooses_sizes && measured) {
        snprintf(usually, sizeof usually, " (%.2f ms with the usual sizes)",
                 ddp->planning.sizes.usual_tail_s * 1e3);
    }
    if (ddp->planning.chooses_sizes) {
        cddpi_log(
            CDDPI_LOG_INFO,
            "ddp: reduction is expected to end %s%.2f ms after backward%s, computed from %s, %.0f "
            "MB/s and %.0f us over %s between %d hosts",
            measured ? "" : "at most ", ddp->planning.sizes.tail_s * 1e3, usually,
            measured ? "the arrivals in the first backward" : "assumed arrivals",
            ddp->planning.link.bytes_per_s / 1e6, ddp->planning.link.latency_s * 1e6,
            ddp->planning.link.carrier, ddp->planning.link.hosts);
    }
}

/* Make room for the statistics of @p buckets buckets, and keep the existing statistics. */
static cddp_status reserve_stats(cddp_ddp *ddp, size_t buckets)
{
    cddp_bucket_stats *more;

    if (buckets <= ddp->bucket_stats_room) {
        return CDDP_OK;
    }
    more = cddpi_zalloc_array(buckets, sizeof *more);
    CDDPI_TRY_MEMORY(more != NULL, "ddp: no memory for %zu buckets", buckets);
    if (ddp->bucket_stats_room > 0) {
        memcpy(more, ddp->bucket_stats, ddp->bucket_stats_room * sizeof *more);
    }
    cddpi_free(ddp->bucket_stats);
    ddp->bucket_stats = more;
    ddp->bucket_stats_room = buckets;
    return CDDP_OK;
}

cddp_status cddpi_layout_make(cddp_ddp *ddp, const uint32_t *order, struct cddpi_layout *out)
{
    struct cddpi_bucket_plan_rule rule = ddp->planning.rule;
    struct cddpi_layout layout = {NULL, NULL, NULL};
    cddp_status status;

    rule.order = order;
    CDDPI_TRY(cddpi_bucket_plan_make(ddp->planning.tensors, ddp->slot_count, &rule, &layout.plan));
    layout.buckets = cddpi_zalloc_array(layout.plan->bucket_count, sizeof *layout.buckets);
    status = layout.buckets != NULL
                 ? reserve_stats(ddp, layout.plan->bucket_count)
                 : cddpi_fail(CDDP_ERR_NO_MEMORY, "ddp: no memory for %zu buckets",
                              layout.plan->bucket_count);
    if (status != CDDP_OK) {
        cddpi_free(layout.buckets);
        cddpi_bucket_plan_destroy(layout.plan);
        return status;
    }
    *out = layout;
    return CDDP_OK;
}

static void place_buckets(cddp_ddp *ddp, struct cddpi_layout *layout)
{
    for (size_t b = 0; b < layout->plan->bucket_count; b++) {
        const struct cddpi_bucket_plan_bucket *planned = &layout->plan->buckets[b];
        struct cddpi_bucket *bucket = &layout->buckets[b];

        bucket->ddp = ddp;
        bucket->index = b;
        bucket->data = layout->block + planned->offset;
        bucket->count = planned->bytes / cddp_type_bytes(planned->type);
        bucket->type = planned->type;
        bucket->missing = planned->count;
    }
}

static cddp_status move_slots(cddp_ddp *ddp, const struct cddpi_layout *layout)
{
    for (size_t s = 0; s < ddp->slot_count; s++) {
        struct cddpi_ddp_slot *slot = &ddp->slots[s];
        unsigned char *slice;

        if (ddp->in_place && !slot->owned) {
            slot->slice = slot->grad;
            continue;
        }
        slice = layout->block + layout->plan->offsets[s];
        if (slot->owned) {
            if (slot->grad != NULL) {
                CDDPI_TRY(cddpi_ddp_copy(ddp, slice, slot->grad, slot->bytes));
            }
            slot->grad = slice;
        }
        slot->slice = slice;
    }
    return CDDP_OK;
}

cddp_status cddpi_layout_install(cddp_ddp *ddp, struct cddpi_layout *layout)
{
    void *block = ddp->flat;
    cddp_status status;

    if (block == NULL) {
        /* parameters without elements still need an address */
        size_t bytes = layout->plan->bytes > 0 ? layout->plan->bytes : CDDPI_ALIGNMENT;

        status = cddp_group_alloc(ddp->group, bytes, 0, &block);
        if (status != CDDP_OK) {
            return cddpi_fail_prefix(status, "ddp: %zu bytes for gradients", bytes);
        }
    }
    layout->block = block;
    place_buckets(ddp, layout);
    status = move_slots(ddp, layout);
    cddpi_micro_release(ddp);
    cddpi_layout_release(ddp, &ddp->layout);
    ddp->layout = *layout;
    *layout = (struct cddpi_layout){NULL, NULL, NULL};
    cddpi_ddp_log_plan(ddp);
    for (size_t b = 0; b < ddp->layout.plan->bucket_count && status == CDDP_OK; b++) {
        status = cddpi_bucket_prepare(&ddp->layout.buckets[b]);
    }
    return status;
}

void cddpi_layout_release(cddp_ddp *ddp, struct cddpi_layout *layout)
{
    for (size_t b = 0; layout->buckets != NULL && b < layout->plan->bucket_count; b++) {
        if (layout->buckets[b].scratch != NULL) {
            cddp_group_free(ddp->group, layout->buckets[b].scratch);
        }
    }
    if (layout->block != NULL && layout->block != ddp->flat) {
        cddp_group_free(ddp->group, layout->block);
    }
    cddpi_free(layout->buckets);
    cddpi_bucket_plan_destroy(layout->plan);
    *layout = (struct cddpi_layout){NULL, NULL, NULL};
}

/* How many percent of the gradients outside the first bucket become ready before that bucket can
 * start. */
static unsigned percent_before_first(const cddp_ddp *ddp)
{
    const struct cddpi_bucket_plan *plan = ddp->layout.plan;
    const struct cddpi_bucket_plan_bucket *first = &plan->buckets[0];
    size_t own = 0;
    size_t before = 0;
    size_t missing = first->count;

    for (size_t i = first->first; i < first->first + first->count; i++) {
        own += ddp->slots[plan->members[i]].bytes;
    }
    for (size_t i = 0; missing > 0; i++) {
        before += ddp->slots[ddp->backward.arrivals[i]].bytes;
        missing -= plan->bucket_of[ddp->backward.arrivals[i]] == 0;
    }
    return plan->bytes > own ? (unsigned)(100 * (before - own) / (plan->bytes - own)) : 0;
}

void cddpi_layout_tell_late(cddp_ddp *ddp)
{
    unsigned percent;

    if (!ddp->planning.late_due || ddp->backward.arrival_count < ddp->slot_count) {
        return;
    }
    ddp->planning.late_due = false;
    percent = percent_before_first(ddp);
    if (ddp->rank == 0 && ddp->layout.plan->bytes > WORTH_BYTES && percent > MUCH_PERCENT) {
        cddpi_log(CDDPI_LOG_WARN,
                  "ddp: the first bucket of flat_grads could start only when %u %% of all others' "
                  "gradients were ready, too, since it holds one that comes late: little of the "
                  "communication overlaps. Smaller buckets (bucket_bytes), %sgradients that lie in "
                  "the order of backward, or grad = NULL help",
                  percent,
                  ddp->planning.order_is_given ? "a ready_order that is backward's, " : "");
    }
}

/* Whether every rank lets gradients move. */
static bool all_may_move(const cddp_ddp *ddp)
{
    for (int rank = 0; rank < ddp->world_size; rank++) {
        if ((ddp->end.statuses[rank].flags & CDDPI_STEP_MAY_MOVE) == 0) {
            return false;
        }
    }
    return true;
}

/* Say what a rebuild would bring, if it would bring anything. Only on rank 0, which need not ask
 * the others; the plan and the sizes stay as they are. */
static void tell_better(cddp_ddp *ddp)
{
    const struct cddpi_ddp_planning planning = ddp->planning;
    struct cddpi_bucket_plan_rule *rule = &ddp->planning.rule;
    struct cddpi_bucket_plan *better = NULL;
    cddp_status status = CDDP_OK;

    if (ddp->rank != 0 || !cddpi_log_enabled(CDDPI_LOG_INFO)) {
        return;
    }
    if (ddp->planning.chooses_sizes) {
        status = choose_sizes_alone(ddp, ddp->backward.arrivals, true);
        set_sizes(rule, &ddp->planning.sizes);
    }
    rule->order = ddp->backward.arrivals;
    if (status == CDDP_OK) {
        status = cddpi_bucket_plan_make(ddp->planning.tensors, ddp->slot_count, rule, &better);
    }
    ddp->planning = planning;
    if (status == CDDP_OK && !cddpi_bucket_plan_equal(better, ddp->layout.plan)) {
        cddpi_log(
            CDDPI_LOG_INFO,
            "ddp: gradients became ready in another order or at other times than the %zu "
            "buckets are made for: the first one could start only when %u %% of all others' "
            "gradients were ready, too. Buckets made anew would be %zu and start in the order "
            "of backward: options.may_move_grads allows it; then ask cddp_ddp_grad() again "
            "after the first cddp_ddp_wait()",
            ddp->layout.plan->bucket_count, percent_before_first(ddp), better->bucket_count);
    }
    cddpi_bucket_plan_destroy(better);
}

cddp_status cddpi_layout_rebuild(cddp_ddp *ddp)
{
    struct cddpi_layout layout = {NULL, NULL, NULL};
    bool changed = false;
    cddp_status status;

    ddp->planning.rebuild_due = false;
    if ((ddp->end.statuses[0].flags & CDDPI_STEP_ORDER_KNOWN) == 0) {
        return CDDP_OK; /* some parameter had no gradient on rank 0: keep the current plan */
    }
    if (!all_may_move(ddp)) {
        tell_better(ddp);
        return CDDP_OK;
    }
    status = cddp_broadcast(ddp->group, ddp->backward.arrivals,
                            ddp->slot_count * sizeof *ddp->backward.arrivals, CDDP_U8, 0, NULL);
    if (status != CDDP_OK) {
        return cddpi_fail_prefix(status, "ddp: rank 0's order of gradients");
    }
    if (ddp->planning.chooses_sizes) {
        CDDPI_TRY(cddpi_sizes_choose(ddp, ddp->backward.arrivals, true, &changed));
    }
    CDDPI_TRY(cddpi_layout_make(ddp, ddp->backward.arrivals, &layout));
    /* every rank made the same plan, since all have the same order */
    if (!cddpi_bucket_plan_equal(layout.plan, ddp->layout.plan)) {
        status = ddp->shards != NULL ? cddpi_shard_move(ddp, &layout)
                                     : cddpi_layout_install(ddp, &layout);
    }
    cddpi_layout_release(ddp, &layout);
    if (status == CDDP_OK && ddp->planning.chooses_sizes) {
        cddpi_sizes_tell(ddp, true);
    }
    return status;
}

void *cddp_ddp_grad(cddp_ddp *ddp, size_t index)
{
    void *grad = NULL;

    if (cddpi_ddp_enter(ddp, "ddp_grad") != CDDP_OK) { /* another thread could move gradients */
        return NULL;
    }
    if (index < ddp->param_count && ddp->params[index].slot != UINT32_MAX) {
        grad = ddp->slots[ddp->params[index].slot].grad;
    }
    (void)cddpi_group_leave(ddp->group, CDDP_OK);
    return grad;
}
