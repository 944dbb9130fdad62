/* graph_choice.h - whether steps are replayed: the faster way of two, found by timing a few steps
 * of either. All ranks come to the same choice. */
#ifndef CDDPI_TRAIN_DEVICE_GRAPH_CHOICE_H
#define CDDPI_TRAIN_DEVICE_GRAPH_CHOICE_H

#include "train/device/device_step.h"

enum {
    CDDPI_GRAPH_TIMED_STEPS = 5
}; /* of either way, in turns: devices change their pace in time */

/* Times of one way to do steps. */
struct cddpi_step_times {
    double ms[CDDPI_GRAPH_TIMED_STEPS];
    int count;
};

struct cddpi_graph_choice {
    bool always;    /* no choice */
    bool off;       /* steps are not replayed any more */
    uint64_t steps; /* whole ones since the run began */
    struct cddpi_step_times plain, replayed;
};

/** Whether the next step, of a batch that is @p whole or not, is the one before which the way of
 * all later steps is chosen: all times must have been told by then. */
bool cddpi_graph_choice_is_due(const struct cddpi_graph_choice *choice, bool whole);
/** Choose, by what the slowest rank tells. Collective.
 *  @param out_ms  What a step takes on it: plain, and replayed; not finite: none was timed. */
CDDP_CHECKED cddp_status cddpi_graph_choice_make(struct cddpi_graph_choice *choice,
                                                 cddp_group *group, double out_ms[2]);
/** How the next step is done. */
struct cddpi_step_mode cddpi_graph_choice_next(struct cddpi_graph_choice *choice, bool whole);
/** A step that was timed took so long. */
void cddpi_graph_choice_time(struct cddpi_graph_choice *choice, bool replayed, int64_t step_ns);

#endif
