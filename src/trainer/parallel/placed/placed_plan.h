/* placed_plan.h - what each device of a process does with the segments on it, in order: a pure
 * function.
 */
#ifndef CDDPI_PARALLEL_PLACED_PLAN_H
#define CDDPI_PARALLEL_PLACED_PLAN_H

#include "parallel/pipeline/pipeline_schedule.h"
#include "parallel/placed/placement.h"

enum cddpi_placed_passes { CDDPI_PLACED_FORWARD, CDDPI_PLACED_BACKWARD, CDDPI_PLACED_BOTH };

struct cddpi_placed_shape {
    const struct cddpi_segment *segments; /* in order */
    int segment_count, device_count;
    enum cddpi_pipeline_schedule schedule; /* of several micro-batches. zero_bubble: each backward
                                              leaves the gradients of parameters to an action of
                                              their own, of one micro-batch, too */
    int micro_batches;
};

/* An action's chunk is the number of a segment. */
struct cddpi_placed_plan {
    struct cddpi_pipeline_action **actions; /* one list a device ... */
    size_t *counts;                         /* ... and how long it is */
    int device_count;
    int micro_batches;
    int slots; /* that a segment needs at most */
};

/** Actions that never wait in a circle, each for the one of the segment before it (forward) or
 *  after it (backward), or for none (gradients of parameters). The backwards of a segment come in
 * the order of the micro-batches.
 *  @param out  cddpi_placed_plan_fini() releases it.
 *  @return CDDP_OK; CDDP_ERR_CONFIG: the schedule wants segment n to be device n's; or is
 *          interleaved; CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_placed_plan(const struct cddpi_placed_shape *shape,
                                           enum cddpi_placed_passes passes,
                                           struct cddpi_placed_plan *out);
void cddpi_placed_plan_fini(struct cddpi_placed_plan *plan); /* accepts a zeroed one */

#endif
