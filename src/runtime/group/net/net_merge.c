/* net_merge.c - prepares the arguments of the kernel that merges the slots of a piece according to
 * a schedule. */
#include "group/net/net_merge.h"

#include "group/net/net_collective.h"
#include "group/net/net_room.h"

/* Collect the merges of the piece's current round, their range, and whether the round ends with the
 * result.
 */
static void collect(const struct cddpi_net_schedule *schedule, const struct net_piece *piece,
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

cddp_status cddpi_net_merging(const struct net_backend *net,
                              const struct net_collective *collective, struct net_piece *piece,
                              const struct cddpi_net_schedule *schedule, struct net_merging *out)
{
    size_t parts = (size_t)net->tree.part_count;
    struct cddpi_reduce_operand *operands = cddpi_net_take(piece->arena, parts * sizeof *operands);

    *out = (struct net_merging){.how = {.type = collective->op->type,
                                        .op = collective->op_of_sums,
                                        .has_factors = collective->has_factors,
                                        .operands = operands,
                                        .operand_count = net->tree.part_count,
                                        .ranks = net->size},
                                .merges = cddpi_net_take(piece->arena, parts * sizeof *out->merges),
                                .is_empty = true};
    if (operands == NULL || out->merges == NULL) {
        return CDDP_ERR_NO_MEMORY;
    }
    out->how.merges = out->merges;
    collect(schedule, piece, out);
    for (size_t p = 0; p < parts; p++) {
        const struct net_slot *slot = &piece->slots[p];
        size_t bytes = net_slot_bytes(collective, slot);

        operands[p] = (struct cddpi_reduce_operand){
            slot->data != NULL ? slot->data + (out->begin - slot->offset) * bytes : NULL,
            slot->is_leaf, slot->factor};
    }
    return CDDP_OK;
}
