/* interval.h - owns what is measured between two lines of metrics, and its sums and means over
 * ranks. */
#ifndef CDDPI_TRAIN_REPORT_INTERVAL_H
#define CDDPI_TRAIN_REPORT_INTERVAL_H

#include "base/exact_sum.h"

#include <cddp/ddp.h>

/* What was measured since the last line of metrics, on this rank: step.c, micro_batch.c, update.c,
 * update.c, stages/stages_compute.c and gan/ add to it. */
struct cddpi_interval {
    struct cddpi_exact_sum loss_sum; /* the same for any division among ranks */
    double correct;                  /* loss_sum and correct do not include skipped steps */
    double count;                    /* predictions */
    double skipped_count;            /* predictions in skipped steps */
    uint64_t skipped;                /* steps */
    int64_t data_ns, forward_ns, backward_ns, optimizer_ns;
    int64_t exposed_ns; /* waiting for reducers in steps, and for other stages of a pipeline */
    int64_t norm_ns; /* waiting for other ranks' parts of the gradient's norm; in optimizer_ns, too
                      */
    int64_t step_ns;
    bool compares; /* rank 0: all ranks are to compare their times (rank_pace.h) */
    bool measures; /* rank 0: all ranks are to tell what their devices measure */
    uint64_t steps;
    uint64_t whole;    /* steps measured as a whole, without forward, backward ... */
    uint64_t replayed; /* steps that were replayed from captures */
    uint64_t peer_wait_before_ns, transfer_before_ns; /* the reducer's totals at the last line */
};

/* Means over all ranks. Times are of one step. On the processor no time is in two of data_ms,
 * forward_ms, backward_ms, exposed_comm_ms and optimizer_ms, so their sum is step_ms at most. */
struct cddpi_interval_means {
    double loss, accuracy; /* NaN: all steps were skipped */
    double predictions_per_s;
    double step_ms;
    double data_ms;
    /* NaN: not measured in any step */
    double forward_ms, backward_ms, exposed_comm_ms, optimizer_ms;
    double peer_wait_ms; /* the part of exposed_comm_ms before the last rank began to wait */
    uint64_t skipped_steps, replayed_steps;
    bool compares, measures; /* as rank 0 said */
};

/** Add up the ranks' sums: *@p sum becomes the sum of all. Collective. */
CDDP_CHECKED cddp_status cddpi_interval_add_ranks(cddp_group *group, struct cddpi_exact_sum *sum);

/** Compute the means over ranks and begin the next interval. Collective. */
CDDP_CHECKED cddp_status cddpi_interval_close(struct cddpi_interval *interval, cddp_group *group,
                                              const cddp_ddp *ddp,
                                              struct cddpi_interval_means *out);

#endif
