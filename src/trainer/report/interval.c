/* interval.c - reduces the ranks' measurements to sums and means. */
#include "report/interval.h"

#include "base/error.h"

#include <math.h>

enum {
    CORRECT,
    COUNT,
    SKIPPED,
    DATA,
    FORWARD,
    BACKWARD,
    EXPOSED,
    PEERS,
    TRANSFER,
    OPTIMIZER,
    STEP,
    COMPARES,
    MEASURES,
    SUMS
};

cddp_status cddpi_interval_add_ranks(cddp_group *group, struct cddpi_exact_sum *sum)
{
    cddpi_exact_carry(sum);
    return cddp_all_reduce(group, sum->parts, sum->parts, CDDPI_EXACT_PARTS, CDDP_I64, CDDP_OP_SUM,
                           NULL);
}

cddp_status cddpi_interval_close(struct cddpi_interval *interval, cddp_group *group,
                                 const cddp_ddp *ddp, struct cddpi_interval_means *out)
{
    cddp_ddp_stats stats = CDDP_DDP_STATS_INIT;
    double sums[SUMS];
    double taken; /* predictions in steps that were not skipped */
    double scale; /* nanoseconds summed over ranks and steps -> milliseconds of one step */
    double parts; /* the same for steps whose parts were timed; NaN: no such step */

    CDDPI_TRY(cddp_ddp_get_stats(ddp, &stats));
    sums[CORRECT] = interval->correct;
    sums[COUNT] = interval->count;
    sums[SKIPPED] = interval->skipped_count;
    sums[DATA] = (double)interval->data_ns;
    sums[FORWARD] = (double)interval->forward_ns;
    sums[BACKWARD] = (double)interval->backward_ns;
    sums[EXPOSED] = (double)interval->exposed_ns;
    sums[PEERS] = (double)(int64_t)(stats.total_peer_wait_ns - interval->peer_wait_before_ns);
    sums[TRANSFER] = (double)(int64_t)(stats.total_transfer_ns - interval->transfer_before_ns);
    sums[OPTIMIZER] = (double)interval->optimizer_ns;
    sums[STEP] = (double)interval->step_ns;
    sums[COMPARES] = interval->compares;
    sums[MEASURES] = interval->measures;
    CDDPI_TRY(cddp_all_reduce(group, sums, sums, SUMS, CDDP_F64, CDDP_OP_SUM, NULL));
    CDDPI_TRY(cddpi_interval_add_ranks(group, &interval->loss_sum));
    scale = 1e-6 / ((double)interval->steps * cddp_group_world_size(group));
    parts = interval->steps > interval->whole
                ? scale * (double)interval->steps / (double)(interval->steps - interval->whole)
                : NAN;
    taken = sums[COUNT] - sums[SKIPPED];
    *out = (struct cddpi_interval_means){
        .loss = taken > 0 ? cddpi_exact_value(&interval->loss_sum) / taken : NAN,
        .accuracy = taken > 0 ? sums[CORRECT] / taken : NAN,
        .predictions_per_s =
            sums[STEP] > 0 ? sums[COUNT] * 1e3 / (sums[STEP] * scale * (double)interval->steps) : 0,
        .step_ms = sums[STEP] * scale,
        .data_ms = sums[DATA] * scale,
        .forward_ms = sums[FORWARD] * parts,
        .backward_ms = sums[BACKWARD] * parts,
        .exposed_comm_ms = sums[EXPOSED] * parts,
        /* As a fraction of the exposed time: on a device, not every step knows how its time is
         * split. */
        .peer_wait_ms = sums[EXPOSED] * parts * sums[PEERS] / (sums[PEERS] + sums[TRANSFER]),
        .optimizer_ms = sums[OPTIMIZER] * parts,
        .skipped_steps = interval->skipped,
        .replayed_steps = interval->replayed,
        .compares = sums[COMPARES] > 0,
        .measures = sums[MEASURES] > 0,
    };
    *interval = (struct cddpi_interval){.peer_wait_before_ns = stats.total_peer_wait_ns,
                                        .transfer_before_ns = stats.total_transfer_ns};
    return CDDP_OK;
}
