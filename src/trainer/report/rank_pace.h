/* rank_pace.h - finds ranks that are slower than the others. All ranks of a run have the same time
 * for a step, since they wait for the slowest. What differs is a rank's own time: that of its steps
 * without waiting for other ranks. It is compared with the median of all ranks that compute the
 * same part of the model, as if each of them had equally many samples. */
#ifndef CDDPI_TRAIN_REPORT_RANK_PACE_H
#define CDDPI_TRAIN_REPORT_RANK_PACE_H

#include "base/launcher_report.h"
#include "report/interval.h"

/* What a rank measured since ranks last compared their times. All ranks send rank 0 these bytes. */
struct cddpi_rank_pace {
    double step_ns;       /* of all steps */
    double own_ns;        /* of it, without waiting for other ranks */
    double update_ns;     /* of it, the update, which does not depend on the number of samples */
    double data_ns;       /* of it, waiting for data */
    double samples;       /* of this rank's part of the batches */
    double added_samples; /* the same, since the last interval was added; for this rank only */
    double steps;         /* 0: nothing was measured */
    double part;          /* the number of the part of the model: of the pipeline's stage */
};

/** Add what was measured in @p interval, and added_samples; nothing, if most of its steps were
 *  replayed, which are not measured. */
void cddpi_rank_pace_add(struct cddpi_rank_pace *pace, const struct cddpi_interval *interval);

struct cddpi_pace_result {
    struct cddpi_slow_rank slow[CDDPI_REPORT_SLOW_RANKS]; /* the slowest ones */
    int count;                                            /* of these */
    int slowest;                                          /* the slowest rank; -1: unknown */
    double slowest_ms, median_ms; /* of a step: its own time, and that of the ranks like it */
};

/** Compare the @p count ranks. A rank that takes 1.1 times the median is slow, if what it takes
 * longer is a tenth of a step. With an even number of ranks, the median is the faster of the two in
 * the middle; so of two ranks, it is the other one's time.
 *  @param room  Memory for @p count numbers. */
void cddpi_rank_paces_compare(const struct cddpi_rank_pace *paces, int count, double *room,
                              struct cddpi_pace_result *out);

#endif
