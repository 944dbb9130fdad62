/* ddp_observe.h - owns the times of steps on a device, and what log and trace say about steps. */
#ifndef CDDPI_DDP_OBSERVE_H
#define CDDPI_DDP_OBSERVE_H

#include "ddp/ddp.h"

/* Measure steps on a device. On the CPU these functions do nothing. */
enum cddpi_timing_point { CDDPI_AT_WAIT, CDDPI_AFTER_WAIT };
cddp_status cddpi_timing_begin(cddp_ddp *ddp); /* of a backward */
cddp_status cddpi_timing_bucket_start(const struct cddpi_bucket *bucket);
cddp_status cddpi_timing_bucket_end(const struct cddpi_bucket *bucket); /* after its reduction */
cddp_status cddpi_timing_mark(cddp_ddp *ddp, enum cddpi_timing_point point);
/** Add steps that are over to the statistics, without waiting. */
cddp_status cddpi_timing_read(cddp_ddp *ddp);
void cddpi_timing_release(cddp_ddp *ddp);

/** With CDDP_LOG=debug: log a line for each bucket of the present layout. */
void cddpi_ddp_log_plan(const cddp_ddp *ddp);
/** Call it when a backward begins: the first time, this opens the trace that CDDP_TRACE names. */
void cddpi_ddp_trace_begin(cddp_ddp *ddp);
/** Call it when the step's wait, entered at @p entered_ns, is over, and before the buckets change.
 */
void cddpi_ddp_trace_end(cddp_ddp *ddp, int64_t entered_ns);

#endif
