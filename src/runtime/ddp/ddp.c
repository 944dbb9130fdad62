/* ddp.c - owns the creation and destruction of a handle, and its statistics. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/log.h"
#include "base/types.h"
#include "ddp/copies.h"
#include "ddp/ddp_create.h"
#include "ddp/ddp_layout.h"
#include "ddp/ddp_observe.h"
#include "ddp/ddp_shard.h"
#include "ddp/ddp_step.h"
#include "ddp/micro_sums.h"
#include "group/device/group_device.h"
#include "group/engine/group_entry.h"
#include "group/group_info.h"

#include <stddef.h>
#include <stdlib.h>

static cddp_status read_options(const cddp_ddp_options *options, cddp_ddp_options *out)
{
    cddp_ddp_options read = CDDP_DDP_OPTIONS_INIT;

    if (options != NULL) {
        CDDPI_TRY(
            cddpi_struct_read("ddp options", "CDDP_DDP_OPTIONS_INIT", options, sizeof read, &read));
    }
    read.hook = read.hook != NULL ? read.hook : cddp_hook_identity;
    *out = read;
    return CDDP_OK;
}

static cddp_status prepare_shards(cddp_ddp *ddp, const cddp_ddp_options *options, bool deferred)
{
    if (options->flat_grads != NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "ddp: shard and flat_grads exclude each other");
    }
    ddp->planning.rule.grain = (size_t)ddp->world_size * CDDPI_ALIGNMENT;
    ddp->shards = cddpi_zalloc(sizeof *ddp->shards);
    CDDPI_TRY_MEMORY(ddp->shards != NULL, "ddp: no memory for shards");
    ddp->shards->deferred = deferred;
    return CDDP_OK;
}

/* Whether another plan may be better after the first backward. With a sharded optimizer the caller
 * must be one that follows, since its state may depend on the addresses of parameters and on which
 * part of them each rank updates. */
static bool may_improve(const cddp_ddp *ddp, const cddp_ddp_options *options,
                        const struct cddpi_ddp_copies *copies)
{
    if (ddp->in_place) {
        return false;
    }
    return options->shard ? copies != NULL && copies->follows && ddp->planning.chooses_sizes
                          : ddp->planning.chooses_sizes || options->ready_order == NULL;
}

/* Whether no gradient is in cddp's memory, from where the caller could have its address. */
static bool owns_no_grads(const cddp_ddp *ddp)
{
    for (size_t s = 0; s < ddp->slot_count; s++) {
        if (ddp->slots[s].owned) {
            return false;
        }
    }
    return true;
}

/* Do everything that a rank can do alone. */
static cddp_status prepare(cddp_ddp *ddp, const struct cddpi_manifest *model,
                           const struct cddpi_ddp_copies *copies, struct cddpi_layout *layout)
{
    const cddp_ddp_options *options = model->options;

    if (options->share_flat_grads && options->flat_grads == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "ddp: share_flat_grads is set, but flat_grads is NULL");
    }
    ddp->flat = options->flat_grads;
    ddp->allow_unused = options->allow_unused;
    ddp->hook = options->hook;
    ddp->hook_state = options->hook_state;
    ddp->planning.rule.flat = ddp->flat != NULL;
    ddp->in_place = ddp->world_size == 1 && ddp->hook == cddp_hook_identity && !options->shard;
    cddpi_sizes_begin(ddp, options);
    ddp->planning.rebuild_due = may_improve(ddp, options, copies);
    ddp->planning.late_due = ddp->flat != NULL && !ddp->in_place;
    ddp->planning.order_is_given = options->ready_order != NULL;
    if (options->shard) {
        CDDPI_TRY(prepare_shards(ddp, options, copies != NULL && copies->reduce_late));
    }
    CDDPI_TRY(cddpi_ddp_register(ddp, model));
    ddp->planning.may_move = options->may_move_grads || owns_no_grads(ddp);
    if (copies != NULL && copies->counts != NULL && ddp->shards != NULL &&
        cddpi_device_is_async(ddp->device) && ddp->world_size > 1) {
        cddpi_shard_plan_copies(ddp, copies->type, copies->counts);
    }
    return cddpi_layout_make(ddp, options->ready_order != NULL ? ddp->backward.arrivals : NULL,
                             layout);
}

static const char *hook_name(cddp_hook_fn hook)
{
    if (hook == cddp_hook_identity) {
        return "identity";
    }
    if (hook == cddp_hook_bf16) {
        return "bf16";
    }
    return hook == cddp_hook_fp16 ? "fp16" : "custom";
}

/* Let rank 0 choose the sizes of buckets, and plan again if it chose others. */
static cddp_status choose_sizes(cddp_ddp *ddp, const cddp_ddp_options *options,
                                struct cddpi_layout *layout)
{
    const uint32_t *order = options->ready_order != NULL ? ddp->backward.arrivals : NULL;
    bool changed;
    cddp_status status = cddpi_sizes_choose(ddp, order, false, &changed);

    if (status != CDDP_OK || !changed) {
        return status;
    }
    cddpi_layout_release(ddp, layout);
    status = cddpi_layout_make(ddp, order, layout);
    return status == CDDP_OK ? CDDP_OK : cddpi_ddp_abort(ddp->group, status);
}

/* Do everything that ranks do together; @p own is the status of prepare() on this rank. */
static cddp_status create_together(cddp_ddp *ddp, const struct cddpi_manifest *model,
                                   cddp_status own, struct cddpi_layout *layout)
{
    char *text = own == CDDP_OK ? cddpi_manifest_text(model) : NULL;
    cddp_status status;

    if (own == CDDP_OK && text == NULL) {
        own = cddpi_ddp_no_memory(model->param_count);
    }
    status = cddpi_ddp_agree(ddp->group, own, text);
    cddpi_free(text);
    if (status != CDDP_OK) {
        return status;
    }
    CDDPI_TRY(cddpi_ddp_broadcast(ddp->group, "parameter", ddp->params, ddp->param_count, 0));
    CDDPI_TRY(cddpi_ddp_broadcast(ddp->group, "buffer", ddp->buffers, ddp->buffer_count, 0));
    if (ddp->planning.chooses_sizes) {
        CDDPI_TRY(choose_sizes(ddp, model->options, layout));
    }
    if (ddp->flat != NULL && !cddpi_device_is_async(ddp->device)) {
        status = cddpi_group_adopt(ddp->group, ddp->flat, layout->plan->bytes,
                                   cddp_type_bytes(ddp->planning.tensors[0].type),
                                   model->options->share_flat_grads, &ddp->adopted);
        if (status != CDDP_OK) {
            return cddpi_fail_prefix(status, "ddp: flat_grads");
        }
    }
    CDDPI_TRY(cddpi_layout_install(ddp, layout));
    cddpi_sizes_tell(ddp, false);
    return ddp->shards != NULL ? cddpi_shard_install(ddp) : CDDP_OK;
}

cddp_status cddp_ddp_create(cddp_group *group, const cddp_param *params, size_t param_count,
                            const cddp_param *buffers, size_t buffer_count,
                            const cddp_ddp_options *options, cddp_ddp **out)
{
    return cddpi_ddp_create_with_copies(group, params, param_count, buffers, buffer_count, options,
                                        NULL, out);
}

/* Whether @p work is unfinished. Then it still uses this handle's memory, and must not be waited
 * for, since other ranks may never take part. Updated parameters are waited for: every rank sends
 * its own after each step. */
static bool is_running(cddp_work *work)
{
    bool done = true;

    return work != NULL && cddp_work_test(work, &done) == CDDP_OK && !done;
}

static cddp_work *gather_of(const cddp_ddp *ddp, size_t bucket)
{
    return ddp->shards != NULL && ddp->shards->buckets != NULL ? ddp->shards->buckets[bucket].gather
                                                               : NULL;
}

static void end_works(cddp_ddp *ddp)
{
    size_t buckets = ddp->layout.buckets != NULL ? ddp->layout.plan->bucket_count : 0;
    bool running = is_running(ddp->end.status_work);

    for (size_t b = 0; b < buckets; b++) {
        running = running || is_running(ddp->layout.buckets[b].work);
    }
    if (running) {
        cddp_group_abort(ddp->group, "its cddp_ddp was destroyed in the middle of a step");
        ddp->group->is_told = true; /* the caller, who did it */
    }
    for (size_t b = 0; b < buckets; b++) {
        cddp_work_destroy(ddp->layout.buckets[b].work);
        cddp_work_destroy(gather_of(ddp, b));
    }
    cddp_work_destroy(ddp->end.status_work);
}

static void dismantle(cddp_ddp *ddp)
{
    end_works(ddp);
    cddpi_shard_release(ddp);
    cddpi_micro_destroy(ddp);
    cddpi_layout_release(ddp, &ddp->layout);
    cddp_group_free(ddp->group, ddp->adopted.pages);
    for (size_t i = 0; i < ddp->param_count; i++) {
        cddpi_free(ddp->params[i].name);
    }
    for (size_t i = 0; i < ddp->buffer_count; i++) {
        cddpi_free(ddp->buffers[i].name);
    }
    cddpi_free(ddp->buffers);
    cddpi_free(ddp->params);
    cddpi_free(ddp->dims);
    cddpi_free(ddp->shapes);
    cddpi_free(ddp->slots);
    cddpi_free(ddp->planning.tensors);
    cddpi_free(ddp->backward.arrivals);
    cddpi_free(ddp->backward.ready_s);
    cddpi_free(ddp->end.used_map);
    cddpi_free(ddp->bucket_stats);
    cddpi_free(ddp->end.statuses);
    cddpi_unused_release(ddp);
    cddpi_timing_release(ddp);
    cddpi_handle_release(&ddp->handle, sizeof *ddp);
}

cddp_status cddpi_ddp_create_with_copies(cddp_group *group, const cddp_param *params,
                                         size_t param_count, const cddp_param *buffers,
                                         size_t buffer_count, const cddp_ddp_options *options,
                                         const struct cddpi_ddp_copies *copies, cddp_ddp **out)
{
    cddp_ddp_options read = CDDP_DDP_OPTIONS_INIT;
    struct cddpi_manifest model = {params, param_count, buffers, buffer_count, &read, "none", NULL};
    struct cddpi_layout layout = {NULL, NULL, NULL};
    cddp_status status;
    cddp_ddp *ddp;

    CDDPI_ENTER_GROUP(group, "ddp_create");
    cddpi_group_call_of_ddp(group);
    if (out == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "ddp_create: out is NULL");
    }
    ddp = cddpi_zalloc(sizeof *ddp);
    if (ddp == NULL) {
        return cddpi_ddp_agree(group, cddpi_ddp_no_memory(param_count), NULL);
    }
    cddpi_handle_init(&ddp->handle, CDDPI_HANDLE_DDP);
    cddpi_group_ref(group);
    ddp->group = group;
    ddp->device = cddpi_group_on_device(group);
    model.device = ddp->device;
    ddp->rank = cddp_group_rank(group);
    ddp->world_size = cddp_group_world_size(group);
    ddp->one_machine = cddpi_group_local_world_size(group) == ddp->world_size;
    ddp->backward.step = (cddp_step)CDDP_STEP_INIT;
    ddp->stats = (cddp_ddp_stats)CDDP_DDP_STATS_INIT;
    status = read_options(options, &read);
    if (status == CDDP_OK) {
        model.hook_name = hook_name(read.hook);
        status = prepare(ddp, &model, copies, &layout);
    }
    status = create_together(ddp, &model, status, &layout);
    cddpi_layout_release(ddp, &layout);
    if (status != CDDP_OK) {
        struct cddpi_failure failure = *cddpi_last_failure();

        dismantle(ddp);
        cddpi_group_unref(group);
        return cddpi_fail_again(status, &failure);
    }
    ddp->end.clock_origin_ns = ddp->one_machine ? 0 : cddpi_now_ns();
    *out = ddp;
    return CDDP_OK;
}

void cddp_ddp_destroy(cddp_ddp *ddp)
{
    cddp_group *group;

    if (ddp == NULL || !cddpi_handle_enter_last(&ddp->handle, CDDPI_HANDLE_DDP, "ddp_destroy")) {
        return;
    }
    if (!cddpi_handle_is_own(&ddp->handle)) { /* a forked child has only a copy of its memory */
        cddpi_handle_end(&ddp->handle);
        return;
    }
    group = ddp->group;
    if (!cddpi_handle_enter_last(&group->handle, CDDPI_HANDLE_GROUP, "ddp_destroy")) {
        (void)cddpi_handle_leave(&ddp->handle, CDDP_OK);
        return;
    }
    if (cddpi_handle_is_nested(
            &group->handle)) { /* the call that runs the hook still needs the handle */
        cddpi_log(CDDPI_LOG_WARN, "ddp_destroy: a hook calls it; nothing was done");
        (void)cddpi_group_leave(group, CDDP_OK);
        (void)cddpi_handle_leave(&ddp->handle, CDDP_OK);
        return;
    }
    dismantle(ddp);
    (void)cddpi_group_leave(group, CDDP_OK);
    cddpi_group_unref(group);
}

cddp_status cddp_ddp_get_stats(const cddp_ddp *ddp, cddp_ddp_stats *out)
{
    cddp_ddp *entered = (cddp_ddp *)(uintptr_t)ddp; /* entering excludes a thread that changes it */

    CDDPI_ENTER_DDP(entered, "ddp_get_stats");
    return cddpi_struct_fill("ddp statistics", "CDDP_DDP_STATS_INIT", &ddp->stats, sizeof *out,
                             out);
}

cddp_status cddp_ddp_get_bucket_stats(const cddp_ddp *ddp, size_t bucket, cddp_bucket_stats *out)
{
    cddp_ddp *entered = (cddp_ddp *)(uintptr_t)ddp;

    CDDPI_ENTER_DDP(entered, "ddp_get_bucket_stats");
    if (bucket >= ddp->stats.buckets) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "ddp: bucket %zu of %zu (after %llu steps)", bucket,
                          ddp->stats.buckets, (unsigned long long)ddp->stats.steps);
    }
    return cddpi_struct_fill("bucket statistics", "CDDP_BUCKET_STATS_INIT",
                             &ddp->bucket_stats[bucket], sizeof *out, out);
}
