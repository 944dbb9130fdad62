/* net_plan.c - owns the schedules of a group, which are created at first use, and the data that
 * pieces need to follow them. */
#include "group/net/net_plan.h"

#include "base/alloc.h"
#include "group/net/net_collective.h"

#include <string.h>

/* Extend the range of shares for which a slot needs memory. */
static void note_range(struct net_plan *plan, const struct cddpi_net_step *step)
{
    if (step->kind != CDDPI_STEP_RECV && step->kind != CDDPI_STEP_MERGE) {
        return;
    }
    if (plan->slot_end[step->slot] == 0 || step->begin < plan->slot_begin[step->slot]) {
        plan->slot_begin[step->slot] = step->begin;
    }
    if (step->end > plan->slot_end[step->slot]) {
        plan->slot_end[step->slot] = step->end;
    }
}

bool cddpi_net_plan_make(struct net_backend *net, enum cddpi_algorithm algorithm, int root,
                         struct net_plan *plan)
{
    size_t parts = (size_t)net->tree.part_count;

    if (plan->is_made) {
        return true;
    }
    if (!cddpi_schedule_init(&net->tree, algorithm, net->host, root, &plan->schedule)) {
        return false;
    }
    plan->is_made = true;
    plan->slot_begin = cddpi_zalloc_array(parts, sizeof *plan->slot_begin);
    plan->slot_end = cddpi_zalloc_array(parts, sizeof *plan->slot_end);
    if (plan->slot_begin == NULL || plan->slot_end == NULL) {
        cddpi_net_plan_fini(plan);
        return false;
    }
    for (int i = 0; i < plan->schedule.count; i++) {
        note_range(plan, &plan->schedule.steps[i]);
    }
    return true;
}

void cddpi_net_plan_fini(struct net_plan *plan)
{
    if (plan->is_made) {
        cddpi_schedule_fini(&plan->schedule);
    }
    cddpi_free(plan->slot_begin);
    cddpi_free(plan->slot_end);
    *plan = (struct net_plan){0};
}

const struct net_plan *cddpi_net_plan_of(const struct net_backend *net,
                                         const struct net_collective *collective)
{
    return collective->op->kind == CDDPI_REDUCE
               ? &net->root_plans[net->host_of[collective->op->root]]
               : &net->plans[collective->algorithm];
}

bool cddpi_net_adds_nothing(const struct net_backend *net, const struct net_collective *collective,
                            const struct cddpi_net_step *step)
{
    int first = net->tree.parts[step->slot].first;

    for (int rank = first; rank < first + step->ranks && collective->has_factors; rank++) {
        if (collective->factors[rank] != 0) {
            return false;
        }
    }
    return collective->has_factors;
}
