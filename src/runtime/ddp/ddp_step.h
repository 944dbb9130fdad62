/* ddp_step.h - owns the course of a step: its backward, its end, and what ranks exchange at its
 * end. */
#ifndef CDDPI_DDP_STEP_H
#define CDDPI_DDP_STEP_H

#include "ddp/ddp.h"

/* What every rank sends to all others at the end of each synchronised step. */
struct cddpi_step_status {
    int32_t status;
    uint32_t flags;     /* CDDPI_STEP_ */
    uint64_t backward;  /* its number */
    double weight;      /* of the step: see cddp_step */
    int64_t arrival_ns; /* when its last bucket was started; on a device: minus the time that it
                           waited in the last step whose times are known */
    int64_t wait_ns;    /* when it entered cddp_ddp_wait(); on a device: how many steps' times it
                           knows */
};

enum {
    CDDPI_STEP_ZERO_FILLED = 1,
    CDDPI_STEP_ORDER_KNOWN = 2,
    CDDPI_STEP_SUM = 4,
    CDDPI_STEP_JOINED = 8 /* the rank has no more steps of its own, and only takes part */
};

/* uneven.c */
/** After the exchange of step statuses: learn whether any rank had a step of its own, and the
 * number of its backward. */
void cddpi_ddp_read_joined(cddp_ddp *ddp);

/* reducer.c */
/** Begin a backward, at @p now_ns. */
cddp_status cddpi_ddp_begin_backward(cddp_ddp *ddp, int64_t now_ns);
/** Start all buckets that are complete and whose predecessors were started. */
cddp_status cddpi_ddp_start_buckets(cddp_ddp *ddp);
/** An operation of the step could not be started: @p status and the stored text say why. If the
 * real reason is that a bucket has failed meanwhile, return that bucket's status and text instead.
 */
cddp_status cddpi_ddp_not_started(cddp_ddp *ddp, cddp_status status);

/* finish.c */
/** cddp_ddp_wait() within a call. */
cddp_status cddpi_ddp_wait(cddp_ddp *ddp);
/** Make the handle ready for the next backward. */
void cddpi_ddp_end_backward(cddp_ddp *ddp);

/* unused.c */
/** Complete the buckets that wait for parameters without a gradient in this backward. */
void cddpi_unused_complete(cddp_ddp *ddp);
/** Restore the gradients of parameters that no rank used. Collective; all buckets must be done. */
cddp_status cddpi_unused_restore(cddp_ddp *ddp);
void cddpi_unused_release(cddp_ddp *ddp);

/* step_status.c */
/** Start the exchange of step statuses: it sends this rank's status to all ranks. */
cddp_status cddpi_step_status_start(cddp_ddp *ddp);
/** Wait for the step statuses of all ranks. If any rank has failed, all fail with the same text. */
cddp_status cddpi_step_status_finish(cddp_ddp *ddp);

#endif
