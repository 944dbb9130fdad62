/* unused.c - owns what happens to parameters that got no gradient: an error by name, or with
 * allow_unused a contribution of zero, and their gradient back if no rank used them. */
#include "base/alloc.h"
#include "base/error.h"
#include "ddp/ddp.h"

#include <stdio.h>
#include <string.h>

enum { MOST_NAMES = 8 };

void cddpi_unused_release(cddp_ddp *ddp)
{
    if (ddp->device != NULL) {
        ddp->device->ops->release(ddp->device, ddp->backup);
    } else {
        cddpi_free(ddp->backup);
    }
    ddp->backup = NULL;
}

/* Room for the gradients that the zeros of hidden slots overwrite. */
static cddp_status reserve_backup(cddp_ddp *ddp)
{
    size_t bytes = 0;
    unsigned char *backup;

    for (size_t s = 0; s < ddp->slot_count; s++) {
        struct cddpi_slot *slot = &ddp->slots[s];

        if (!slot->used && !slot->scattered) {
            slot->backup = bytes;
            bytes += slot->bytes;
        }
    }
    if (bytes <= ddp->backup_bytes) {
        return CDDP_OK;
    }
    if (ddp->device != NULL) {
        void *memory;
        cddp_status status = ddp->device->ops->alloc(ddp->device, bytes,
                                                     "gradients of unused parameters", &memory);

        if (status != CDDP_OK) {
            return status;
        }
        backup = memory;
    } else {
        backup = cddpi_alloc_aligned(bytes);
    }
    if (backup == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY,
                          "no memory for %zu bytes of gradients of unused parameters", bytes);
    }
    cddpi_unused_release(ddp);
    ddp->backup = backup;
    ddp->backup_bytes = bytes;
    return CDDP_OK;
}

static cddp_status hide(cddp_ddp *ddp, struct cddpi_slot *slot)
{
    cddp_status status = CDDP_OK;

    if (!slot->scattered) {
        status = cddpi_ddp_copy(ddp, ddp->backup + slot->backup, slot->slice, slot->bytes);
    }
    slot->hidden = true;
    return status == CDDP_OK ? cddpi_ddp_clear(ddp, slot->slice, slot->bytes) : status;
}

static cddp_status show(cddp_ddp *ddp, struct cddpi_slot *slot, bool used_somewhere)
{
    slot->hidden = false;
    if (!used_somewhere && !slot->scattered) {
        return cddpi_ddp_copy(ddp, slot->slice, ddp->backup + slot->backup, slot->bytes);
    }
    if (used_somewhere && slot->scattered) {
        return cddpi_ddp_copy(ddp, slot->grad, slot->slice, slot->bytes);
    }
    return CDDP_OK;
}

static size_t count_unused(const cddp_ddp *ddp)
{
    size_t unused = 0;

    for (size_t s = 0; s < ddp->slot_count; s++) {
        unused += !ddp->slots[s].used;
    }
    return unused;
}

/* "2 of 10 parameters got no gradient ...: 3 (fc2.weight), 4 (fc2.bias); ..." */
static void complain(cddp_ddp *ddp, size_t unused)
{
    char names[CDDPI_DDP_TEXT_BYTES / 2];
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
    (void)cddpi_ddp_note(
        ddp, cddpi_fail(CDDP_ERR_STATE,
                        "%zu of %zu parameters got no gradient in backward %llu: %s (if that "
                        "is meant, create with allow_unused)",
                        unused, ddp->slot_count, (unsigned long long)ddp->backward, names));
}

void cddpi_unused_complete(cddp_ddp *ddp)
{
    size_t unused = count_unused(ddp);
    bool hiding = unused > 0 && ddp->allow_unused;

    if (hiding && reserve_backup(ddp) != CDDP_OK) {
        (void)cddpi_ddp_note(ddp, CDDP_ERR_NO_MEMORY);
        hiding = false;
    }
    /* a rank of weight 0 had no samples, so it may have had no backward */
    if (unused > 0 && !ddp->allow_unused && ddp->step.weight != 0) {
        complain(ddp, unused);
    }
    for (size_t s = 0; s < ddp->slot_count; s++) {
        struct cddpi_slot *slot = &ddp->slots[s];
        cddp_status status = CDDP_OK;

        if (slot->ready) {
            continue;
        }
        if (slot->used && slot->scattered) { /* what no_sync has accumulated */
            status = cddpi_ddp_copy(ddp, slot->slice, slot->grad, slot->bytes);
        } else if (!slot->used && hiding) {
            status = hide(ddp, slot);
        }
        if (status != CDDP_OK) {
            (void)cddpi_ddp_note(ddp, status);
        }
        ddp->layout.buckets[ddp->layout.plan->bucket_of[s]].missing--;
    }
}

cddp_status cddpi_unused_settle(cddp_ddp *ddp)
{
    bool any = false;
    cddp_status status;

    for (int rank = 0; rank < ddp->world_size; rank++) {
        any = any || (ddp->verdicts[rank].flags & CDDPI_VERDICT_HIDDEN) != 0;
    }
    if (!any) {
        return CDDP_OK;
    }
    for (size_t s = 0; s < ddp->slot_count; s++) {
        ddp->used_map[s] = ddp->slots[s].used;
    }
    status = cddp_all_reduce(ddp->group, ddp->used_map, ddp->used_map, ddp->slot_count, CDDP_U8,
                             CDDP_OP_MAX, NULL);
    if (status != CDDP_OK) {
        return cddpi_fail_prefix(status, "ddp: which parameters were used");
    }
    for (size_t s = 0; s < ddp->slot_count && status == CDDP_OK; s++) {
        if (ddp->slots[s].hidden) {
            status = show(ddp, &ddp->slots[s], ddp->used_map[s] != 0);
        }
    }
    return status;
}
