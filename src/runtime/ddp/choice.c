/* choice.c - owns the sizes of buckets. If the caller gives none, rank 0 chooses them from the
 * speed of the group's link, and all ranks take its choice. */
#include "base/error.h"
#include "base/log.h"
#include "ddp/ddp_layout.h"

#include <stdio.h>

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

cddp_status cddpi_sizes_choose(cddp_ddp *ddp, const uint32_t *order, bool measured,
                               bool *out_changed)
{
    struct cddpi_bucket_plan_rule *rule = &ddp->planning.rule;
    struct cddpi_bucket_plan_rule before = *rule;
    cddp_status status = ddp->rank == 0 ? choose_sizes_alone(ddp, order, measured) : CDDP_OK;

    if (status != CDDP_OK) {
        cddp_group_abort(ddp->group,
                         cddp_last_error()); /* the other ranks would wait for this one */
        return status;
    }
    status = cddp_broadcast(ddp->group, &ddp->planning.sizes, sizeof ddp->planning.sizes, CDDP_U8,
                            0, NULL);
    if (status != CDDP_OK) {
        return cddpi_fail_prefix(status, "ddp: rank 0's choice of bucket sizes");
    }
    rule->first_bytes = ddp->planning.sizes.first_bytes;
    rule->bucket_bytes = ddp->planning.sizes.bucket_bytes;
    rule->large_bytes = ddp->planning.sizes.large_bytes;
    rule->part_bytes = ddp->planning.sizes.part_bytes;
    *out_changed = rule->first_bytes != before.first_bytes ||
                   rule->bucket_bytes != before.bucket_bytes ||
                   rule->large_bytes != before.large_bytes || rule->part_bytes != before.part_bytes;
    return CDDP_OK;
}

/* For the log: "; gradients of 4194304 have buckets of their own, in parts of 1048576". */
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
    snprintf(out, bytes, "; gradients of %zu have buckets of their own%s", rule->large_bytes,
             parts);
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
        ddp->planning.chooses_sizes ? "" : " (not chosen: given, or no link was measured)");
    if (ddp->planning.chooses_sizes && measured) {
        snprintf(usually, sizeof usually, " (%.2f ms with the usual sizes)",
                 ddp->planning.sizes.usual_tail_s * 1e3);
    }
    if (ddp->planning.chooses_sizes) {
        cddpi_log(CDDPI_LOG_INFO,
                  "ddp: reduction is expected to end %s%.2f ms behind backward%s, by %s, %.0f MB/s "
                  "and %.0f us over %s between %d hosts",
                  measured ? "" : "at most ", ddp->planning.sizes.tail_s * 1e3, usually,
                  measured ? "arrivals in the first backward" : "arrivals of any kind",
                  ddp->planning.link.bytes_per_s / 1e6, ddp->planning.link.latency_s * 1e6,
                  ddp->planning.link.carrier, ddp->planning.link.hosts);
    }
}
