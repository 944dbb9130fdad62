/* verdict.c - owns the small exchange that ends each synchronised step: every rank learns in this
 * very step whether all of them did it, who was late, and what went wrong elsewhere. */
#include "base/alloc.h"
#include "base/clock.h"
#include "base/error.h"
#include "ddp/ddp.h"

#include <stdio.h>
#include <string.h>

enum { REASON_BYTES = CDDPI_DDP_TEXT_BYTES, MOST_REASONS = 3 };

static uint32_t own_flags(const cddp_ddp *ddp)
{
    uint32_t flags = 0;

    for (size_t s = 0; s < ddp->slot_count; s++) {
        if (ddp->slots[s].hidden) {
            flags |= CDDPI_VERDICT_HIDDEN;
        }
    }
    if (ddp->arrival_count == ddp->slot_count) {
        flags |= CDDPI_VERDICT_ORDER;
    }
    if (ddp->step.sum != 0) {
        flags |= CDDPI_VERDICT_SUM;
    }
    return flags;
}

cddp_status cddpi_verdict_start(cddp_ddp *ddp)
{
    struct cddpi_verdict *own = &ddp->verdicts[ddp->rank];
    cddp_status status;

    own->status = (int32_t)ddp->own_status;
    own->flags = own_flags(ddp);
    own->backward = ddp->backward;
    own->weight = ddp->step.weight;
    own->arrival_ns = ddp->device != NULL ? -(int64_t)ddp->stats.exposed_ns
                                          : ddp->arrival_ns - ddp->clock_origin_ns;
    status = cddp_all_gather(ddp->group, own, ddp->verdicts, sizeof *own, CDDP_U8,
                             &ddp->verdict_work);
    return status == CDDP_OK ? CDDP_OK : cddpi_fail_prefix(status, "ddp: end of the step");
}

/* A rank that left out or added a no_sync backward would pair one step with another. */
static cddp_status check_backward(const cddp_ddp *ddp)
{
    for (int rank = 1; rank < ddp->world_size; rank++) {
        if (ddp->verdicts[rank].backward != ddp->verdicts[0].backward) {
            return cddpi_fail(CDDP_ERR_MISMATCH,
                              "ranks disagree about no_sync: rank 0 synchronised its backward "
                              "%llu, rank %d its backward %llu",
                              (unsigned long long)ddp->verdicts[0].backward, rank,
                              (unsigned long long)ddp->verdicts[rank].backward);
        }
    }
    return CDDP_OK;
}

/* Where a bucket's reduction would not find it. */
static cddp_status check_weights(const cddp_ddp *ddp)
{
    uint32_t sum = ddp->verdicts[0].flags & CDDPI_VERDICT_SUM;

    for (int rank = 1; rank < ddp->world_size; rank++) {
        if ((ddp->verdicts[rank].flags & CDDPI_VERDICT_SUM) != sum) {
            return cddpi_fail(CDDP_ERR_MISMATCH,
                              "ranks disagree about backward %llu: rank %d adds gradients up, rank "
                              "%d takes their mean",
                              (unsigned long long)ddp->backward, sum != 0 ? 0 : rank,
                              sum != 0 ? rank : 0);
        }
        if (sum != 0) {
            continue;
        }
        if ((ddp->verdicts[rank].weight < 0) != (ddp->verdicts[0].weight < 0)) {
            return cddpi_fail(CDDP_ERR_MISMATCH,
                              "ranks disagree about the weight of backward %llu: it is %g on rank "
                              "0, %g on rank %d",
                              (unsigned long long)ddp->backward, ddp->verdicts[0].weight,
                              ddp->verdicts[rank].weight, rank);
        }
    }
    return CDDP_OK;
}

static cddp_status word_reasons(const cddp_ddp *ddp, const char *reasons, cddp_status status)
{
    char text[MOST_REASONS * (REASON_BYTES + 16)];
    size_t length = 0;
    int named = 0;
    int failed = 0;

    for (int rank = 0; rank < ddp->world_size; rank++) {
        const char *reason = reasons + (size_t)rank * REASON_BYTES;

        if (ddp->verdicts[rank].status == CDDP_OK || failed++ >= MOST_REASONS) {
            continue;
        }
        length += (size_t)snprintf(text + length, sizeof text - length, "%srank %d: %.*s",
                                   named++ > 0 ? "; " : "", rank, REASON_BYTES - 1, reason);
    }
    if (failed > named) {
        return cddpi_fail(status, "%s; and %d more ranks failed", text, failed - named);
    }
    return cddpi_fail(status, "%s", text);
}

/* Some rank failed: now, and only now, the reasons go round. */
static cddp_status check_status(cddp_ddp *ddp)
{
    cddp_status failure = CDDP_OK;
    cddp_status status;
    char *reasons;

    for (int rank = ddp->world_size - 1; rank >= 0; rank--) {
        if (ddp->verdicts[rank].status != CDDP_OK) {
            failure = (cddp_status)ddp->verdicts[rank].status;
        }
    }
    if (failure == CDDP_OK) {
        return CDDP_OK;
    }
    reasons = cddpi_zalloc_array((size_t)ddp->world_size, REASON_BYTES);
    if (reasons == NULL) {
        return cddpi_fail(CDDP_ERR_NO_MEMORY, "ddp: no memory for the reasons of a failure");
    }
    status = cddp_all_gather(ddp->group, ddp->own_text, reasons, REASON_BYTES, CDDP_U8, NULL);
    if (status == CDDP_OK) {
        status = word_reasons(ddp, reasons, failure);
        ddp->told = true;
    } else {
        status = cddpi_fail_prefix(status, "ddp: reasons of a failure");
    }
    cddpi_free(reasons);
    return status;
}

static int find_slowest(const cddp_ddp *ddp)
{
    int slowest = 0;

    for (int rank = 1; rank < ddp->world_size; rank++) {
        if (ddp->verdicts[rank].arrival_ns > ddp->verdicts[slowest].arrival_ns) {
            slowest = rank;
        }
    }
    return ddp->world_size > 1 ? slowest : -1;
}

cddp_status cddpi_verdict_finish(cddp_ddp *ddp)
{
    cddp_status status = cddp_work_wait(ddp->verdict_work, 0);

    if (status != CDDP_OK) {
        return cddpi_fail_prefix(status, "ddp: end of the step of backward %llu",
                                 (unsigned long long)ddp->backward);
    }
    cddp_work_destroy(ddp->verdict_work);
    ddp->verdict_work = NULL;
    ddp->stats.slowest_rank = find_slowest(ddp);
    if (!ddp->one_machine) {
        ddp->clock_origin_ns = cddpi_now_ns();
    }
    status = check_backward(ddp);
    if (status == CDDP_OK) {
        status = check_weights(ddp);
    }
    if (status == CDDP_OK) {
        return check_status(ddp);
    }
    ddp->told = true;
    return status;
}
