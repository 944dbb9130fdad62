/* net_plan.c - owns the schedules of a group, which are created at first use, and what pieces need
 * to follow them: the slots' memory, and the arguments of the kernel that merges slots. */
#include "group/net/net_plan.h"

#include "base/alloc.h"
#include "group/net/net_collective.h"
#include "group/net/net_room.h"

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
        const struct cddpi_net_step *step = &plan->schedule.steps[i];
        int slot = step->slot;

        if (step->kind != CDDPI_STEP_RECV && step->kind != CDDPI_STEP_MERGE) {
            continue;
        }
        if (plan->slot_end[slot] == 0 || step->begin < plan->slot_begin[slot]) {
            plan->slot_begin[slot] = step->begin;
        }
        if (step->end > plan->slot_end[slot]) {
            plan->slot_end[slot] = step->end;
        }
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

bool cddpi_net_adds_nothing(const struct net_backend *net, const struct cddpi_net_step *step)
{
    const struct net_collective *collective = net->collective;
    int first = net->tree.parts[step->slot].first;

    for (int rank = first; rank < first + step->ranks && collective->has_factors; rank++) {
        if (collective->factors[rank] != 0) {
            return false;
        }
    }
    return collective->has_factors;
}

/* Collect the merges of the piece's current round, their range, and whether the round ends with the
 * result. */
static void collect_merges(const struct cddpi_net_schedule *schedule, const struct net_piece *piece,
                           struct net_merging *out)
{
    for (int i = 0; i < schedule->count; i++) {
        const struct cddpi_net_step *step = &schedule->steps[i];
        bool merges = step->kind == CDDPI_STEP_MERGE;

        if (step->round != piece->round || (!merges && step->kind != CDDPI_STEP_FINISH)) {
            continue;
        }
        out->is_empty = false;
        out->begin = cddpi_share_begin(piece->count, schedule->ranges, step->begin);
        out->end = cddpi_share_begin(piece->count, schedule->ranges, step->end);
        if (merges) {
            out->merges[out->how.merge_count++] = (struct cddpi_reduce_merge){step->slot,
                                                                              step->other, NULL};
        } else {
            out->how.root = step->slot;
            out->finishes = true;
        }
    }
}

cddp_status cddpi_net_merging(const struct net_backend *net, struct net_piece *piece,
                              struct net_merging *out)
{
    const struct net_collective *collective = net->collective;
    size_t parts = (size_t)net->tree.part_count;
    struct cddpi_reduce_operand *operands = cddpi_net_take(piece->room, parts * sizeof *operands);

    *out = (struct net_merging){.how = {.type = collective->op->type,
                                        .op = collective->op_of_sums,
                                        .has_factors = collective->has_factors,
                                        .operands = operands,
                                        .operand_count = net->tree.part_count,
                                        .ranks = net->size},
                                .merges = cddpi_net_take(piece->room, parts * sizeof *out->merges),
                                .is_empty = true};
    if (operands == NULL || out->merges == NULL) {
        return CDDP_ERR_NO_MEMORY;
    }
    out->how.merges = out->merges;
    collect_merges(&collective->plan->schedule, piece, out);
    for (size_t p = 0; p < parts; p++) {
        const struct net_slot *slot = &piece->room->slots[p];
        size_t bytes = net_slot_bytes(collective, slot);

        operands[p] = (struct cddpi_reduce_operand){
            slot->data != NULL ? slot->data + (out->begin - slot->offset) * bytes : NULL,
            slot->is_leaf, slot->factor};
    }
    return CDDP_OK;
}
