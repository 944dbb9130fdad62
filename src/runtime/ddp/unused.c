/* unused.c - owns unused parameters: those that got no gradient. Without allow_unused they are an
 * error that names them. With it they contribute zeros, and the old gradients of those that no rank
 * used are restored. */
#include "base/error.h"
#include "ddp/ddp_step.h"
#include "ddp/micro_sums.h"

#include <stdio.h>

enum { MOST_NAMES = 8 };

void cddpi_unused_release(cddp_ddp *ddp)
{
    ddp->device->ops->release(ddp->device, ddp->end.backup);
    ddp->end.backup = NULL;
}

/* Make room for the gradients that zero-filling overwrites. */
static cddp_status reserve_backup(cddp_ddp *ddp)
{
    size_t bytes = 0;
    void *memory;

    for (size_t s = 0; s < ddp->slot_count; s++) {
        struct cddpi_ddp_slot *slot = &ddp->slots[s];

        if (!slot->used && !slot->copied) {
            slot->backup = bytes;
            bytes += slot->bytes;
        }
    }
    if (bytes <= ddp->end.backup_bytes) {
        return CDDP_OK;
    }
    CDDPI_TRY(
        ddp->device->ops->alloc(ddp->device, bytes, "gradients of unused parameters", &memory));
    cddpi_unused_release(ddp);
    ddp->end.backup = memory;
    ddp->end.backup_bytes = bytes;
    return CDDP_OK;
}

static cddp_status zero_fill(cddp_ddp *ddp, struct cddpi_ddp_slot *slot)
{
    slot->zero_filled = true;
    if (!slot->copied) {
        CDDPI_TRY(cddpi_ddp_copy(ddp, ddp->end.backup + slot->backup, slot->slice, slot->bytes));
    }
    return cddpi_ddp_clear(ddp, slot->slice, slot->bytes);
}

static cddp_status restore_grad(cddp_ddp *ddp, struct cddpi_ddp_slot *slot, bool used_somewhere)
{
    slot->zero_filled = false;
    if (!used_somewhere && !slot->copied) {
        return cddpi_ddp_copy(ddp, slot->slice, ddp->end.backup + slot->backup, slot->bytes);
    }
    if (used_somewhere && slot->copied) {
        return cddpi_ddp_copy(ddp, slot->grad, slot->slice, slot->bytes);
    }
    return CDDP_OK;
}

/* Keep as this rank's failure: "1 of 10 parameters got no gradient in backward 3: parameter 4
 * (fc2.bias) ...". */
static void report_unused(cddp_ddp *ddp, size_t unused)
{
    char names[MOST_NAMES * 72 + 32];
    size_t length = 0;
    size_t named = 0;

    for (size_t s = 0; s < ddp->slot_count && named < MOST_NAMES; s++) {
        uint32_t param = ddp->slots[s].param;

        if (ddp->slots[s].used) {
            continue;
        }
        length += (size_t)snprintf(names + length, sizeof names - length, "%sparameter %u (%.40s)",
                                   named++ > 0 ? ", " : "", param, ddp->params[param].name);
    }
    if (unused > named) {
        snprintf(names + length, sizeof names - length, " and %zu more", unused - named);
    }
    (void)cddpi_ddp_set_pending(
        ddp,
        cddpi_fail(CDDP_ERR_INCOMPLETE,
                   "%zu of %zu parameters got no gradient in step %llu: %s (if that "
                   "is meant, create with allow_unused)",
                   unused, ddp->slot_count, (unsigned long long)ddp->backward.step.number, names));
}

void cddpi_unused_complete(cddp_ddp *ddp)
{
    size_t unused = 0;
    bool zero_filling;

    for (size_t s = 0; s < ddp->slot_count; s++) {
        unused += !ddp->slots[s].used;
    }
    zero_filling = unused > 0 && ddp->allow_unused;
    if (zero_filling && reserve_backup(ddp) != CDDP_OK) {
        (void)cddpi_ddp_set_pending(ddp, CDDP_ERR_NO_MEMORY);
        zero_filling = false;
    }
    /* a rank without samples may have had no backward */
    if (unused > 0 && !ddp->allow_unused && cddpi_step_weight(ddp) != 0 && !ddp->backward.follows &&
        !cddpi_micro_is_idle(ddp)) {
        report_unused(ddp, unused);
    }
    for (size_t s = 0; s < ddp->slot_count; s++) {
        struct cddpi_ddp_slot *slot = &ddp->slots[s];
        cddp_status status = CDDP_OK;

        if (slot->ready) {
            continue;
        }
        if (slot->used && cddpi_is_by_micro_batches(ddp)) { /* none came in this micro-batch */
            status = cddpi_ddp_clear(ddp, slot->slice, slot->bytes);
        } else if (slot->used && slot->copied) { /* the gradient came in an earlier micro-batch */
            status = cddpi_ddp_copy(ddp, slot->slice, slot->grad, slot->bytes);
        } else if (!slot->used && zero_filling) {
            status = zero_fill(ddp, slot);
        } else if (ddp->backward.follows ||
                   cddpi_micro_is_idle(ddp)) { /* add zeros to the gradients of the other ranks */
            status = cddpi_ddp_clear(ddp, slot->slice, slot->bytes);
        }
        if (status != CDDP_OK) {
            (void)cddpi_ddp_set_pending(ddp, status);
        }
        for (uint32_t p = 0; p < ddp->layout.plan->parts_of[s]; p++) {
            ddp->layout.buckets[ddp->layout.plan->bucket_of[s] + p].missing--;
        }
    }
}

cddp_status cddpi_unused_restore(cddp_ddp *ddp)
{
    bool any = false;
    cddp_status status;

    for (int rank = 0; rank < ddp->world_size; rank++) {
        any = any || (ddp->end.statuses[rank].flags & CDDPI_STEP_ZERO_FILLED) != 0;
    }
    if (!any) {
        return CDDP_OK;
    }
    for (size_t s = 0; s < ddp->slot_count; s++) {
        ddp->end.used_map[s] = ddp->slots[s].used;
    }
    status = cddp_all_reduce(ddp->group, ddp->end.used_map, ddp->end.used_map, ddp->slot_count,
                             CDDP_U8, CDDP_OP_MAX, NULL);
    if (status != CDDP_OK) {
        return cddpi_fail_prefix(status, "ddp: which parameters were used");
    }
    for (size_t s = 0; s < ddp->slot_count; s++) {
        if (ddp->slots[s].zero_filled) {
            CDDPI_TRY(restore_grad(ddp, &ddp->slots[s], ddp->end.used_map[s] != 0));
        }
    }
    return CDDP_OK;
}
