/* placed_plan.h - plans what each device of a process does with its segments, in order. Pure
 * functions. */
#ifndef CDDPI_PARALLEL_PLACED_PLAN_H
#define CDDPI_PARALLEL_PLACED_PLAN_H

#include "parallel/pipeline/pipeline_schedule.h"
#include "parallel/placed/placement.h"

enum cddpi_placed_passes { CDDPI_PLACED_FORWARD, CDDPI_PLACED_BACKWARD, CDDPI_PLACED_BOTH };

struct cddpi_placed_shape {
    const struct cddpi_segment *segments; /* in order */
    int segment_count, device_count;
    enum cddpi_pipeline_schedule
        schedule; /* for several micro-batches; zero_bubble: for one, too */
    int micro_batches;
};

/* In its actions, `chunk` is the index of a segment. */
struct cddpi_placed_plan {
    struct cddpi_pipeline_action **actions; /* one list per device ... */
    size_t *counts;                         /* ... and its length */
    int device_count;
    int micro_batches;
    int slots; /* slots per segment, at most */
};

/** Plan actions without circular waits. A forward waits for the forward of the segment before it, a
 *  backward for the backward of the segment after it; gradients of parameters wait for no other
 *  segment. The backwards of a segment are in the order of the micro-batches.
 *  @param out  Release with cddpi_placed_plan_fini().
 *  @return CDDP_OK; CDDP_ERR_CONFIG: the schedule needs segment n on device n, or is interleaved;
 *          CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_placed_plan(const struct cddpi_placed_shape *shape,
                                           enum cddpi_placed_passes passes,
                                           struct cddpi_placed_plan *out);
void cddpi_placed_plan_fini(struct cddpi_placed_plan *plan); /* accepts a zeroed one */

#endif
