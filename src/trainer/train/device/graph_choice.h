/* graph_choice.h - chooses whether steps are replayed, by timing a few steps of both ways and
 * taking the faster. All ranks make the same choice. */
#ifndef CDDPI_TRAIN_DEVICE_GRAPH_CHOICE_H
#define CDDPI_TRAIN_DEVICE_GRAPH_CHOICE_H

#include "train/device/device_step.h"

enum {
    CDDPI_GRAPH_TIMED_STEPS = 5
}; /* of each way, alternating: a device's speed changes over time */

/* Times of one of the two ways. */
struct cddpi_step_times {
    double ms[CDDPI_GRAPH_TIMED_STEPS];
    int count;
};

struct cddpi_graph_choice {
    bool always;    /* replay always; there is no choice */
    bool off;       /* do not replay any more */
    uint64_t steps; /* whole steps since the run began */
    struct cddpi_step_times plain, replayed;
};

/** Whether the choice for all later steps is due before the next step, whose batch is @p whole or
 *  not. All measured times must have been passed in before. */
bool cddpi_graph_choice_is_due(const struct cddpi_graph_choice *choice, bool whole);
/** Choose by the times of the slowest rank. Collective.
 *  @param out_ms  Its times per step: plain, and replayed; not finite: not timed. */
CDDP_CHECKED cddp_status cddpi_graph_choice_make(struct cddpi_graph_choice *choice,
                                                 cddp_group *group, double out_ms[2]);
/** How the next step runs. */
struct cddpi_step_mode cddpi_graph_choice_next(struct cddpi_graph_choice *choice, bool whole);
/** Pass in the time of a step that was timed. */
void cddpi_graph_choice_time(struct cddpi_graph_choice *choice, bool replayed, int64_t step_ns);

#endif
