/* placed_plan.c - owns the order of work on each device of a placed model. */
#include "parallel/placed/placed_plan.h"

#include "base/alloc.h"
#include "base/error.h"

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
        if (plan->actions[d] == NULL) {
            return cddpi_fail(CDDP_ERR_NO_MEMORY, "parallel: no memory for %zu actions", most);
        }
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
