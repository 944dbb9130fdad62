/* ddp.c - owns the life of a handle: registration, comparison and broadcast, destruction; and what
 * a caller may ask of it. */
#include "ddp/ddp.h"
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "base/struct_size.h"
#include "ddp/copies.h"
#include "ddp/manifest.h"
#include "group/device/device.h"

#include <stddef.h>
#include <stdlib.h>
#include <string.h>

static cddp_status no_memory(size_t count)
{
    return cddpi_fail(CDDP_ERR_NO_MEMORY, "ddp: no memory to register %zu parameters", count);
}

static cddp_status read_options(const cddp_ddp_options *options, cddp_ddp_options *out)
{
    cddp_ddp_options read = CDDP_DDP_OPTIONS_INIT;

    if (options != NULL) {
        cddp_status status = cddpi_struct_read("ddp options", "CDDP_DDP_OPTIONS_INIT", options,
                                               sizeof read, sizeof read.struct_size, &read);

        if (status != CDDP_OK) {
            return status;
        }
    }
    read.hook = read.hook != NULL ? read.hook : cddp_hook_identity;
    *out = read;
    return CDDP_OK;
}

/* Loops over elements read and write whole ones, so C wants each at a multiple of its size. */
static cddp_status check_alignment(const char *what, size_t index, const cddp_param *tensor,
                                   const char *part, const void *memory)
{
    size_t element = cddp_type_bytes(tensor->type);

    if ((uintptr_t)memory % element != 0) {
        return cddpi_fail(CDDP_ERR_ARGUMENT,
                          "ddp: the %s of %s %zu (%.200s) lies at %p, which is not a multiple of "
                          "the %zu bytes of %s",
                          part, what, index, tensor->name, memory, element,
                          cddp_type_name(tensor->type));
    }
    return CDDP_OK;
}

/* The number of elements, or a failure that names @p what ("parameter", "buffer") and @p index. */
static cddp_status check_tensor(const char *what, size_t index, const cddp_param *tensor,
                                size_t *out_count)
{
    size_t element = cddp_type_bytes(tensor->type);
    size_t count = 1;

    if (tensor->name == NULL || tensor->name[0] == '\0') {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "ddp: %s %zu has no name", what, index);
    }
    if (tensor->dims < 0 || tensor->dims > CDDP_MAX_DIMS) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "ddp: %s %zu (%.200s) has %d dimensions", what, index,
                          tensor->name, tensor->dims);
    }
    if (element == 0) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "ddp: %s %zu (%.200s) has an unknown type %d", what,
                          index, tensor->name, (int)tensor->type);
    }
    for (int d = 0; d < tensor->dims; d++) {
        if (tensor->shape[d] < 0 ||
            __builtin_mul_overflow(count, (size_t)tensor->shape[d], &count) ||
            count > (size_t)PTRDIFF_MAX / element) {
            return cddpi_fail(CDDP_ERR_ARGUMENT, "ddp: %s %zu (%.200s): dimension %d is %lld", what,
                              index, tensor->name, d, (long long)tensor->shape[d]);
        }
    }
    if (tensor->data == NULL && count > 0) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "ddp: %s %zu (%.200s) has no data", what, index,
                          tensor->name);
    }
    *out_count = count;
    return check_alignment(what, index, tensor, "data", tensor->data);
}

static cddp_status check_type(size_t index, const cddp_param *param)
{
    switch (param->type) {
    case CDDP_F32:
    case CDDP_F64:
    case CDDP_F16:
    case CDDP_BF16:
        return check_alignment("parameter", index, param, "gradient", param->grad);
    default:
        return cddpi_fail(CDDP_ERR_ARGUMENT, "ddp: parameter %zu (%.200s) has the type %s", index,
                          param->name, cddp_type_name(param->type));
    }
}

static int by_name(const void *a, const void *b)
{
    const char *const *x = a;
    const char *const *y = b;

    return strcmp(*x, *y);
}

static cddp_status check_unique(const char *what, const cddp_param *tensors, size_t count)
{
    const char **names = cddpi_zalloc_array(count + 1, sizeof *names);
    cddp_status status = CDDP_OK;

    if (names == NULL) {
        return no_memory(count);
    }
    for (size_t i = 0; i < count; i++) {
        names[i] = tensors[i].name;
    }
    qsort(names, count, sizeof *names, by_name);
    for (size_t i = 1; i < count && status == CDDP_OK; i++) {
        if (strcmp(names[i - 1], names[i]) == 0) {
            status = cddpi_fail(CDDP_ERR_ARGUMENT, "ddp: two %ss have the name %.200s", what,
                                names[i]);
        }
    }
    cddpi_free(names);
    return status;
}

/* Check the buffers, and keep what later broadcasts need. */
static cddp_status register_buffers(cddp_ddp *ddp, const cddp_param *buffers, size_t count)
{
    if (buffers == NULL && count > 0) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "ddp: %zu buffers at NULL", count);
    }
    ddp->buffers = cddpi_zalloc_array(count, sizeof *ddp->buffers);
    if (ddp->buffers == NULL) {
        return no_memory(count);
    }
    for (size_t i = 0; i < count; i++) {
        struct cddpi_param *buffer = &ddp->buffers[i];
        cddp_status status = check_tensor("buffer", i, &buffers[i], &buffer->count);

        if (status != CDDP_OK) {
            return status;
        }
        buffer->name = cddpi_strdup(buffers[i].name);
        if (buffer->name == NULL) {
            return no_memory(count);
        }
        buffer->data = buffers[i].data;
        buffer->type = buffers[i].type;
        buffer->slot = UINT32_MAX;
        ddp->buffer_count++;
    }
    return check_unique("buffer", buffers, count);
}

static cddp_status alloc_params(cddp_ddp *ddp, size_t count)
{
    ddp->params = cddpi_zalloc_array(count, sizeof *ddp->params);
    ddp->slots = cddpi_zalloc_array(count, sizeof *ddp->slots);
    ddp->tensors = cddpi_zalloc_array(count, sizeof *ddp->tensors);
    ddp->arrivals = cddpi_zalloc_array(count, sizeof *ddp->arrivals);
    ddp->ready_s = cddpi_zalloc_array(count, sizeof *ddp->ready_s);
    ddp->used_map = cddpi_zalloc_array(count, sizeof *ddp->used_map);
    ddp->step_statuses = cddpi_zalloc_array((size_t)ddp->world_size, sizeof *ddp->step_statuses);
    if (ddp->params == NULL || ddp->slots == NULL || ddp->tensors == NULL ||
        ddp->arrivals == NULL || ddp->ready_s == NULL || ddp->used_map == NULL ||
        ddp->step_statuses == NULL) {
        return no_memory(count);
    }
    ddp->param_count = count;
    return CDDP_OK;
}

static cddp_status register_param(cddp_ddp *ddp, const cddp_param *params, size_t index)
{
    const cddp_param *from = &params[index];
    struct cddpi_param *param = &ddp->params[index];
    struct cddpi_slot *slot = &ddp->slots[ddp->slot_count];
    cddp_status status = check_tensor("parameter", index, from, &param->count);

    if (status == CDDP_OK) {
        status = check_type(index, from);
    }
    if (status != CDDP_OK) {
        return status;
    }
    param->name = cddpi_strdup(from->name);
    if (param->name == NULL) {
        return no_memory(ddp->param_count);
    }
    param->data = param->home = from->data;
    param->type = from->type;
    param->slot = UINT32_MAX;
    if (from->frozen) {
        return CDDP_OK;
    }
    param->slot = (uint32_t)ddp->slot_count;
    slot->param = (uint32_t)index;
    slot->bytes = param->count * cddp_type_bytes(param->type);
    slot->grad = from->grad;
    slot->owned = from->grad == NULL;
    slot->copied = from->grad != NULL && ddp->flat == NULL && !ddp->in_place;
    ddp->tensors[ddp->slot_count].bytes = slot->bytes;
    ddp->tensors[ddp->slot_count].type = param->type;
    ddp->slot_count++;
    return CDDP_OK;
}

static cddp_status register_params(cddp_ddp *ddp, const cddp_param *params, size_t count)
{
    cddp_status status;

    if (params == NULL || count == 0 || count >= UINT32_MAX) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "ddp: %zu parameters at %p", count,
                          (const void *)params);
    }
    status = alloc_params(ddp, count);
    for (size_t i = 0; i < count && status == CDDP_OK; i++) {
        status = register_param(ddp, params, i);
    }
    if (status != CDDP_OK) {
        return status;
    }
    if (ddp->slot_count == 0) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "ddp: all %zu parameters are frozen", count);
    }
    return check_unique("parameter", params, count);
}

/* Check that the caller's block is laid out as the plan assumes. */
static cddp_status check_flat(const cddp_ddp *ddp)
{
    const unsigned char *expected = ddp->flat;

    for (size_t s = 0; s < ddp->slot_count && ddp->flat != NULL; s++) {
        const struct cddpi_slot *slot = &ddp->slots[s];
        const struct cddpi_param *param = &ddp->params[slot->param];

        if (param->type != ddp->tensors[0].type) {
            return cddpi_fail(CDDP_ERR_ARGUMENT,
                              "ddp: flat_grads: parameter %u (%.200s) is %s, those before are %s",
                              slot->param, param->name, cddp_type_name(param->type),
                              cddp_type_name(ddp->tensors[0].type));
        }
        if (slot->grad != expected) {
            return cddpi_fail(CDDP_ERR_ARGUMENT,
                              "ddp: flat_grads: the gradient of parameter %u (%.200s) is not at "
                              "byte %td of the block",
                              slot->param, param->name, expected - ddp->flat);
        }
        expected += slot->bytes;
    }
    return CDDP_OK;
}

/* Translate the caller's order, which names parameters, to the plan's, which names slots. */
static cddp_status read_order(cddp_ddp *ddp, const uint32_t *ready_order)
{
    for (size_t i = 0; i < ddp->slot_count && ready_order != NULL; i++) {
        uint32_t param = ready_order[i];

        if (param >= ddp->param_count || ddp->params[param].slot == UINT32_MAX) {
            return cddpi_fail(CDDP_ERR_ARGUMENT, "ddp: ready_order: entry %zu is %u, which is %s",
                              i, param,
                              param >= ddp->param_count ? "no parameter" : "a frozen parameter");
        }
        ddp->arrivals[i] = ddp->params[param].slot; /* borrowed until the first backward */
    }
    return CDDP_OK;
}

static cddp_status prepare_shards(cddp_ddp *ddp, const cddp_ddp_options *options)
{
    if (options->flat_grads != NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "ddp: shard and flat_grads exclude each other");
    }
    ddp->rule.grain = (size_t)ddp->world_size * CDDPI_ALIGNMENT;
    ddp->shards = cddpi_zalloc(sizeof *ddp->shards);
    if (ddp->shards == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "ddp: no memory for shards");
    }
    ddp->shards->deferred = options->reduce_late;
    return CDDP_OK;
}

/* Do everything that a rank can do alone. */
static cddp_status prepare(cddp_ddp *ddp, const struct cddpi_manifest *model,
                           const struct cddpi_ddp_copies *copies, struct cddpi_layout *layout)
{
    const cddp_ddp_options *options = model->options;
    cddp_status status;

    ddp->flat = options->flat_grads;
    ddp->allow_unused = options->allow_unused;
    ddp->hook = options->hook;
    ddp->hook_state = options->hook_state;
    ddp->rule.flat = ddp->flat != NULL;
    ddp->in_place = ddp->world_size == 1 && ddp->hook == cddp_hook_identity && !options->shard;
    cddpi_sizes_begin(ddp, options);
    ddp->rebuild_due = !options->shard && !options->keep_buckets && !ddp->in_place &&
                       (ddp->chooses_sizes || options->ready_order == NULL);
    ddp->late_due = ddp->flat != NULL && !ddp->in_place;
    ddp->order_is_assumed = options->keep_buckets && options->ready_order == NULL;
    if (options->shard) {
        status = prepare_shards(ddp, options);
        if (status != CDDP_OK) {
            return status;
        }
    }
    status = register_params(ddp, model->params, model->param_count);
    if (status == CDDP_OK) {
        status = register_buffers(ddp, model->buffers, model->buffer_count);
    }
    if (status == CDDP_OK) {
        status = check_flat(ddp);
    }
    if (status == CDDP_OK) {
        status = cddpi_ddp_check_memory(ddp, options->shard);
    }
    if (status == CDDP_OK) {
        status = read_order(ddp, options->ready_order);
    }
    if (status != CDDP_OK) {
        return status;
    }
    if (copies != NULL && ddp->shards != NULL && cddpi_device_is_async(ddp->device) &&
        ddp->world_size > 1) {
        cddpi_shard_plan_copies(ddp, copies->type, copies->counts);
    }
    return cddpi_layout_make(ddp, options->ready_order != NULL ? ddp->arrivals : NULL, layout);
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

/* Let the sizes of buckets be chosen, and plan again if they are others. */
static cddp_status choose_sizes(cddp_ddp *ddp, const cddp_ddp_options *options,
                                struct cddpi_layout *layout)
{
    const uint32_t *order = options->ready_order != NULL ? ddp->arrivals : NULL;
    bool changed;
    cddp_status status = cddpi_sizes_choose(ddp, order, false, &changed);

    if (status != CDDP_OK || !changed) {
        return status;
    }
    cddpi_layout_release(ddp, layout);
    status = cddpi_layout_make(ddp, order, layout);
    if (status != CDDP_OK) {
        cddp_group_abort(ddp->group, cddp_last_error()); /* the others go on */
    }
    return status;
}

/* Do everything that ranks do together; @p own is the status of this rank's preparation. */
static cddp_status join(cddp_ddp *ddp, const struct cddpi_manifest *model, cddp_status own,
                        struct cddpi_layout *layout)
{
    char *text = own == CDDP_OK ? cddpi_manifest_text(model) : NULL;
    cddp_status status;

    if (own == CDDP_OK && text == NULL) {
        own = no_memory(model->param_count);
    }
    status = cddpi_ddp_agree(ddp->group, own, text);
    cddpi_free(text);
    if (status == CDDP_OK) {
        status = cddpi_ddp_broadcast(ddp->group, "parameter", ddp->params, ddp->param_count, 0);
    }
    if (status == CDDP_OK) {
        status = cddpi_ddp_broadcast(ddp->group, "buffer", ddp->buffers, ddp->buffer_count, 0);
    }
    if (status == CDDP_OK && ddp->chooses_sizes) {
        status = choose_sizes(ddp, model->options, layout);
    }
    if (status == CDDP_OK && ddp->flat != NULL && !cddpi_device_is_async(ddp->device)) {
        status = cddpi_group_adopt(ddp->group, ddp->flat, layout->plan->bytes,
                                   cddp_type_bytes(ddp->tensors[0].type), &ddp->adopted);
        status = status == CDDP_OK ? CDDP_OK : cddpi_fail_prefix(status, "ddp: flat_grads");
    }
    if (status == CDDP_OK) {
        status = cddpi_layout_install(ddp, layout);
    }
    if (status == CDDP_OK) {
        cddpi_sizes_tell(ddp, false);
    }
    return status == CDDP_OK && ddp->shards != NULL ? cddpi_shard_install(ddp) : status;
}

cddp_status cddp_ddp_create(cddp_group *group, const cddp_param *params, size_t param_count,
                            const cddp_param *buffers, size_t buffer_count,
                            const cddp_ddp_options *options, cddp_ddp **out)
{
    return cddpi_ddp_create_with_copies(group, params, param_count, buffers, buffer_count, options,
                                        NULL, out);
}

static cddp_status create(cddp_group *group, const cddp_param *params, size_t param_count,
                          const cddp_param *buffers, size_t buffer_count,
                          const cddp_ddp_options *options, const struct cddpi_ddp_copies *copies,
                          cddp_ddp **out)
{
    cddp_ddp_options read = CDDP_DDP_OPTIONS_INIT;
    struct cddpi_manifest model = {params, param_count, buffers, buffer_count, &read, "none", NULL};
    struct cddpi_layout layout = {NULL, NULL, NULL};
    cddp_status status;
    cddp_ddp *ddp;

    if (out == NULL) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "ddp_create: out is NULL");
    }
    ddp = cddpi_zalloc(sizeof *ddp);
    if (ddp == NULL) {
        status = no_memory(param_count);
        return cddpi_ddp_agree(group, status, NULL);
    }
    cddpi_handle_init(&ddp->handle, CDDPI_HANDLE_DDP);
    cddpi_group_ref(group);
    ddp->group = group;
    ddp->device = cddpi_group_on_device(group);
    model.device = ddp->device;
    ddp->rank = cddp_group_rank(group);
    ddp->world_size = cddp_group_world_size(group);
    ddp->one_machine = cddp_group_local_world_size(group) == ddp->world_size;
    ddp->step = ddp->last = (cddp_step)CDDP_STEP_INIT;
    ddp->stats = (cddp_ddp_stats)CDDP_DDP_STATS_INIT;
    status = read_options(options, &read);
    if (status == CDDP_OK) {
        model.hook_name = hook_name(read.hook);
        status = prepare(ddp, &model, copies, &layout);
    }
    status = join(ddp, &model, status, &layout);
    cddpi_layout_release(ddp, &layout);
    if (status != CDDP_OK) {
        cddp_ddp_destroy(ddp);
        return status;
    }
    ddp->clock_origin_ns = ddp->one_machine ? 0 : cddpi_now_ns();
    *out = ddp;
    return CDDP_OK;
}

cddp_status cddpi_ddp_create_with_copies(cddp_group *group, const cddp_param *params,
                                         size_t param_count, const cddp_param *buffers,
                                         size_t buffer_count, const cddp_ddp_options *options,
                                         const struct cddpi_ddp_copies *copies, cddp_ddp **out)
{
    cddp_status status = cddpi_group_enter(group, "ddp_create");

    if (status != CDDP_OK) {
        return status;
    }
    cddpi_group_call_of_ddp(group);
    return cddpi_group_leave(
        group, create(group, params, param_count, buffers, buffer_count, options, copies, out));
}

/* Whether @p work is unfinished: then it still uses our memory, and must not be waited for, since
 * peers may never come. (On a device gathers may be unfinished here: they end before the memory is
 * released.) */
static bool is_running(cddp_work *work)
{
    bool done = true;

    return work != NULL && cddp_work_test(work, &done) == CDDP_OK && !done;
}

static cddp_work *gather_of(const cddp_ddp *ddp, size_t bucket)
{
    return ddp->shards != NULL && ddp->shards->gathers != NULL ? ddp->shards->gathers[bucket]
                                                               : NULL;
}

static void end_works(cddp_ddp *ddp)
{
    size_t buckets = ddp->layout.buckets != NULL ? ddp->layout.plan->bucket_count : 0;
    bool running = is_running(ddp->step_status_work);

    for (size_t b = 0; b < buckets; b++) {
        running = running || is_running(ddp->layout.buckets[b].work) ||
                  (!cddpi_device_is_async(ddp->device) && is_running(gather_of(ddp, b)));
    }
    if (running) {
        cddp_group_abort(ddp->group, "its cddp_ddp was destroyed in the middle of a step");
    }
    for (size_t b = 0; b < buckets; b++) {
        cddp_work_destroy(ddp->layout.buckets[b].work);
        cddp_work_destroy(gather_of(ddp, b));
    }
    cddp_work_destroy(ddp->step_status_work);
}

static void release(cddp_ddp *ddp)
{
    end_works(ddp);
    cddpi_shard_release(ddp);
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
    cddpi_free(ddp->slots);
    cddpi_free(ddp->tensors);
    cddpi_free(ddp->arrivals);
    cddpi_free(ddp->ready_s);
    cddpi_free(ddp->used_map);
    cddpi_free(ddp->bucket_stats);
    cddpi_free(ddp->step_statuses);
    cddpi_unused_release(ddp);
    cddpi_timing_release(ddp);
}

void cddp_ddp_destroy(cddp_ddp *ddp)
{
    cddp_group *group;

    if (ddp == NULL || !cddpi_handle_enter_last(&ddp->handle, CDDPI_HANDLE_DDP, "ddp_destroy")) {
        return;
    }
    if (!cddpi_handle_is_own(&ddp->handle)) { /* a fork: it has only memory of it */
        cddpi_handle_end(&ddp->handle);
        return;
    }
    group = ddp->group;
    if (!cddpi_handle_enter_last(&group->handle, CDDPI_HANDLE_GROUP, "ddp_destroy")) {
        (void)cddpi_handle_leave(&ddp->handle, CDDP_OK);
        return;
    }
    release(ddp);
    cddpi_handle_release(&ddp->handle, sizeof *ddp);
    (void)cddpi_group_leave(group, CDDP_OK);
    cddpi_group_unref(group);
}

cddp_status cddp_ddp_get_stats(const cddp_ddp *ddp, cddp_ddp_stats *out)
{
    cddp_ddp *entered = (cddp_ddp *)(uintptr_t)ddp; /* another thread may be changing them */
    cddp_status status = cddpi_ddp_enter(entered, "ddp_get_stats");

    return status == CDDP_OK
               ? cddpi_ddp_leave(entered, cddpi_struct_fill("ddp statistics", "CDDP_DDP_STATS_INIT",
                                                            &ddp->stats, sizeof *out, out))
               : status;
}

static cddp_status bucket_stats(const cddp_ddp *ddp, size_t bucket, cddp_bucket_stats *out)
{
    if (bucket >= ddp->stats.buckets) {
        return cddpi_fail(CDDP_ERR_ARGUMENT, "ddp: bucket %zu of %zu (after %llu steps)", bucket,
                          ddp->stats.buckets, (unsigned long long)ddp->stats.steps);
    }
    return cddpi_struct_fill("bucket statistics", "CDDP_BUCKET_STATS_INIT",
                             &ddp->bucket_stats[bucket], sizeof *out, out);
}

cddp_status cddp_ddp_get_bucket_stats(const cddp_ddp *ddp, size_t bucket, cddp_bucket_stats *out)
{
    cddp_ddp *entered = (cddp_ddp *)(uintptr_t)ddp;
    cddp_status status = cddpi_ddp_enter(entered, "ddp_get_bucket_stats");

    return status == CDDP_OK ? cddpi_ddp_leave(entered, bucket_stats(ddp, bucket, out)) : status;
}
