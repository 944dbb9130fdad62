/* interval.h - what is measured between two lines of metrics, and what that comes to over ranks. */
#ifndef CDDPI_TRAIN_REPORT_INTERVAL_H
#define CDDPI_TRAIN_REPORT_INTERVAL_H

#include <cddp/ddp.h>

/* What was measured since the last line of metrics, on this rank: step.c, micro_batch.c, update.c,
 * collect_results.c, stages/stages_compute.c and gan/ add to it. */
struct cddpi_interval {
    double loss_sum; /* these two without steps that were skipped */
    double correct;
    double count;         /* predictions */
    double skipped_count; /* of these, in steps that were skipped */
    uint64_t skipped;     /* steps */
    int64_t data_ns, forward_ns, backward_ns, optimizer_ns;
    /* for other stages of a pipeline, or for a generator's reducer: exposed communication, too */
    int64_t stages_wait_ns;
    int64_t step_ns;
    uint64_t steps;
    uint64_t whole;             /* of these, whose parts' times are not known */
    uint64_t replayed;          /* of these, that were replayed from captures */
    uint64_t exposed_before_ns; /* totals of the reducer's statistics at the last line */
    uint64_t peer_wait_before_ns, transfer_before_ns;
};

/* The same of all ranks together. Times are those of one step. */
struct cddpi_interval_means {
    double loss, accuracy; /* NaN: all steps were skipped */
    double predictions_per_s;
    double step_ms;
    double data_ms;
    /* NaN: they are known of no step */
    double forward_ms, backward_ms, exposed_comm_ms, optimizer_ms;
    double peer_wait_ms; /* of exposed_comm_ms: before the last rank had come to its wait */
    uint64_t skipped_steps, replayed_steps;
};

/** Sum up over ranks, and begin anew. Collective. */
CDDP_CHECKED cddp_status cddpi_interval_close(struct cddpi_interval *interval, cddp_group *group,
                                              const cddp_ddp *ddp,
                                              struct cddpi_interval_means *out);

#endif
