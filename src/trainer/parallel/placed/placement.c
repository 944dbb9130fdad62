/* placement.c - owns the turning of layer names into segments on devices and ranges of layers, and
 * the order of work on each device. */
#include "parallel/placed/placement.h"

#include "base/alloc.h"
#include "base/error.h"

static cddp_status fail_layer(const struct cddpi_model_spec *spec, int layer, const char *what)
{
    char name[200] = "";

    CDDPI_TRY(cddpi_model_layer_name(spec, layer, name, sizeof name));
    return cddpi_fail(CDDP_ERR_CONFIG, "layer \"%s\" %s", name, what);
}

cddp_status cddpi_placement_init(const struct cddpi_model_spec *spec, struct cddpi_placement *out)
{
    bool has_params = false;

    *out = (struct cddpi_placement){.spec = spec};
    CDDPI_TRY(cddpi_model_layer_has_params(spec, 0, &has_params, &out->layers));
    out->devices = cddpi_zalloc_array((size_t)out->layers + 1, sizeof *out->devices);
    CDDPI_TRY_MEMORY(out->devices != NULL, "parallel: no memory to place %d layers", out->layers);
    for (int i = 0; i < out->layers; i++) {
        out->devices[i] = -1;
    }
    return CDDP_OK;
}

void cddpi_placement_fini(struct cddpi_placement *placement)
{
    cddpi_free(placement->devices);
}

cddp_status cddpi_placement_put(struct cddpi_placement *placement, const char *first,
                                const char *last, int device)
{
    struct cddpi_layer_range from = {0, 0};
    struct cddpi_layer_range to = {0, 0};

    CDDPI_TRY(cddpi_model_find_layers(placement->spec, first, &from));
    CDDPI_TRY(cddpi_model_find_layers(placement->spec, last, &to));
    if (to.end <= from.first) {
        return cddpi_fail(CDDP_ERR_CONFIG, "layer \"%s\" comes before \"%s\"", last, first);
    }
    for (int i = from.first; i < to.end; i++) {
        if (placement->devices[i] >= 0) {
            return fail_layer(placement->spec, i, "is placed twice");
        }
        placement->devices[i] = device;
    }
    return CDDP_OK;
}

/* Assign the layers that have no device yet. */
static cddp_status place_rest(struct cddpi_placement *placement)
{
    int *devices = placement->devices;
    int count;

    for (int i = 0; i < placement->layers; i++) {
        bool has_params = false;

        if (devices[i] < 0) {
            CDDPI_TRY(cddpi_model_layer_has_params(placement->spec, i, &has_params, &count));
        }
        if (has_params) {
            return fail_layer(placement->spec, i, "is placed nowhere");
        }
        if (devices[i] < 0 && i > 0) {
            devices[i] = devices[i - 1];
        }
    }
    for (int i = placement->layers - 2; i >= 0; i--) {
        devices[i] = devices[i] < 0 ? devices[i + 1] : devices[i];
    }
    return CDDP_OK;
}

cddp_status cddpi_placement_segments(struct cddpi_placement *placement, struct cddpi_segment **out,
                                     int *out_count)
{
    struct cddpi_segment *segments;
    int count = 0;

    CDDPI_TRY(place_rest(placement));
    segments = cddpi_zalloc_array((size_t)placement->layers + 1, sizeof *segments);
    CDDPI_TRY_MEMORY(segments != NULL, "parallel: no memory for %d layers", placement->layers);
    for (int i = 0; i < placement->layers; i++) {
        if (i == 0 || placement->devices[i] != placement->devices[i - 1]) {
            segments[count++] = (struct cddpi_segment){{i, i}, placement->devices[i]};
        }
        segments[count - 1].layers.end = i + 1;
    }
    *out = segments;
    *out_count = count;
    return CDDP_OK;
}

static cddp_status mark_layers(const struct cddpi_model_spec *spec, const char *name, bool *marked,
                               struct cddpi_layer_range *all)
{
    struct cddpi_layer_range found;

    CDDPI_TRY(cddpi_model_find_layers(spec, name, &found));
    for (int i = found.first; i < found.end; i++) {
        if (marked[i]) {
            return fail_layer(spec, i, "is named twice");
        }
        marked[i] = true;
        all->first = i < all->first ? i : all->first;
        all->end = i >= all->end ? i + 1 : all->end;
    }
    return CDDP_OK;
}

/* A layer between named ones must be named, unless it has no parameters. A layer without parameters
 * after the range joins it, because such a layer may be computed together with the one before
 * it. */
static cddp_status complete_range(const struct cddpi_model_spec *spec, const bool *marked,
                                  int layers, struct cddpi_layer_range *all)
{
    bool has_params = false;
    int named_end = all->end;

    for (int i = all->first; i < layers && (i < named_end || !has_params); i++) {
        int count;

        CDDPI_TRY(cddpi_model_layer_has_params(spec, i, &has_params, &count));
        if (i < named_end && has_params && !marked[i]) {
            return fail_layer(spec, i, "lies between layers that are named, but is not");
        }
        all->end = i < named_end || has_params ? all->end : i + 1;
        has_params = i >= named_end && has_params;
    }
    return CDDP_OK;
}

cddp_status cddpi_replicated_layers(const struct cddpi_model_spec *spec, char *const *names,
                                    int name_count, struct cddpi_layer_range *out)
{
    struct cddpi_layer_range all = {0, 0};
    bool *marked;
    bool has_params;
    int count;
    cddp_status status;

    CDDPI_TRY(cddpi_model_layer_has_params(spec, 0, &has_params, &count));
    marked = cddpi_zalloc_array((size_t)count, sizeof *marked);
    CDDPI_TRY_MEMORY(marked != NULL, "parallel: no memory for %d layers", count);
    all.first = count;
    for (int n = 0; n < name_count; n++) {
        CDDPI_TRY_GOTO(out, status, mark_layers(spec, names[n], marked, &all));
    }
    CDDPI_TRY_GOTO(out, status, complete_range(spec, marked, count, &all));
    *out = all;

out:
    cddpi_free(marked);
    return status;
}

void cddpi_placed_plan_fini(struct cddpi_placed_plan *plan)
{
    for (int d = 0; plan->actions != NULL && d < plan->device_count; d++) {
        cddpi_free(plan->actions[d]);
    }
    cddpi_free(plan->actions);
    cddpi_free(plan->counts);
    *plan = (struct cddpi_placed_plan){0};
}

static cddp_status check_schedule(const struct cddpi_placed_shape *shape)
{
    if (shape->schedule == CDDPI_PIPELINE_INTERLEAVED) {
        return cddpi_fail(CDDP_ERR_CONFIG, "interleaved is a schedule of stages over ranks: the "
                                           "devices of one process take gpipe, 1f1b or "
                                           "zero_bubble");
    }
    for (int s = 0; s < shape->segment_count; s++) {
        if (shape->segments[s].device != s) {
            return cddpi_fail(CDDP_ERR_CONFIG,
                              "%s wants the devices to have one stage each, in their order, but "
                              "stage %d of %d is on device %d: use gpipe",
                              shape->schedule == CDDPI_PIPELINE_1F1B ? "1f1b" : "zero_bubble", s,
                              shape->segment_count, shape->segments[s].device);
        }
    }
    return CDDP_OK;
}

/* Segment s is on device s. */
static cddp_status plan_1f1b(const struct cddpi_placed_shape *shape, struct cddpi_placed_plan *plan)
{
    struct cddpi_pipeline_shape ranks = {shape->schedule, shape->segment_count, 1,
                                         shape->micro_batches};

    CDDPI_TRY(check_schedule(shape));
    for (int s = 0; s < shape->segment_count; s++) {
        CDDPI_TRY(cddpi_pipeline_plan(&ranks, s, &plan->actions[s], &plan->counts[s]));
        for (size_t i = 0; i < plan->counts[s]; i++) {
            int slot = plan->actions[s][i].slot;

            plan->actions[s][i].chunk = s;
            plan->slots = slot >= plan->slots ? slot + 1 : plan->slots;
        }
    }
    return CDDP_OK;
}

static void add(const struct cddpi_placed_shape *shape, struct cddpi_placed_plan *plan, int segment,
                int micro_batch, enum cddpi_pipeline_pass pass)
{
    int d = shape->segments[segment].device;

    plan->actions[d][plan->counts[d]++] = (struct cddpi_pipeline_action){
        pass, segment, micro_batch, micro_batch, micro_batch, micro_batch};
}

/* All forwards, then all backwards, in the order of a single device. Works for any placement. */
static cddp_status plan_in_order(const struct cddpi_placed_shape *shape,
                                 enum cddpi_placed_passes passes, struct cddpi_placed_plan *plan)
{
    size_t most = 3 * (size_t)shape->segment_count * (size_t)shape->micro_batches;

    for (int d = 0; d < shape->device_count; d++) {
        plan->actions[d] = cddpi_zalloc_array(most, sizeof **plan->actions);
        CDDPI_TRY_MEMORY(plan->actions[d] != NULL, "parallel: no memory for %zu actions", most);
    }
    for (int m = 0; passes != CDDPI_PLACED_BACKWARD && m < shape->micro_batches; m++) {
        for (int s = 0; s < shape->segment_count; s++) {
            add(shape, plan, s, m, CDDPI_PASS_FORWARD);
        }
    }
    for (int m = 0; passes != CDDPI_PLACED_FORWARD && m < shape->micro_batches; m++) {
        for (int s = shape->segment_count - 1; s >= 0; s--) {
            add(shape, plan, s, m, CDDPI_PASS_BACKWARD);
            if (shape->schedule == CDDPI_PIPELINE_ZERO_BUBBLE) {
                add(shape, plan, s, m, CDDPI_PASS_WEIGHTS);
            }
        }
    }
    plan->slots = shape->micro_batches;
    return CDDP_OK;
}

cddp_status cddpi_placed_plan(const struct cddpi_placed_shape *shape,
                              enum cddpi_placed_passes passes, struct cddpi_placed_plan *out)
{
    size_t devices = (size_t)shape->device_count;
    struct cddpi_placed_plan plan = {
        .actions = cddpi_zalloc_array(devices, sizeof(struct cddpi_pipeline_action *)),
        .counts = cddpi_zalloc_array(devices, sizeof *plan.counts),
        .device_count = shape->device_count,
        .micro_batches = shape->micro_batches,
    };
    cddp_status status;

    if (plan.actions == NULL || plan.counts == NULL) {
        status = cddpi_fail(CDDP_ERR_NO_MEMORY, "parallel: no memory for %zu devices", devices);
    } else if (shape->micro_batches > 1 && shape->schedule != CDDPI_PIPELINE_GPIPE) {
        status = plan_1f1b(shape, &plan);
    } else {
        status = plan_in_order(shape, passes, &plan);
    }
    if (status != CDDP_OK) {
        cddpi_placed_plan_fini(&plan);
        return status;
    }
    *out = plan;
    return CDDP_OK;
}
