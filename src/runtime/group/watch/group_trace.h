/* group_trace.h - records what a rank does in chosen steps: time spans and the group's operations.
 * They are written at the end of the last step to trace/rank-R.json in the group's folder (dump.h).
 * cddp-trace merges the files of all ranks.
 *
 * Only the compute thread uses this. Outside of the chosen steps a call costs one comparison. */
#ifndef CDDPI_GROUP_TRACE_H
#define CDDPI_GROUP_TRACE_H

#include "group/group.h"

#define CDDPI_SPAN_MAP(X)                                                                          \
    X(CDDPI_SPAN_STEP, "step")                                                                     \
    X(CDDPI_SPAN_DATA, "data") /* waiting for the loader */                                        \
    X(CDDPI_SPAN_FORWARD, "forward")                                                               \
    X(CDDPI_SPAN_BACKWARD, "backward")                                                             \
    /* gradients of parameters that are computed after backward */                                 \
    X(CDDPI_SPAN_WEIGHTS, "weights")                                                               \
    /* exposed communication; with a bucket's number: for its updated parameters */                \
    X(CDDPI_SPAN_WAIT, "wait")                                                                     \
    X(CDDPI_SPAN_OPTIMIZER, "optimizer")                                                           \
    X(CDDPI_SPAN_LOADER, "loader") /* a loader thread builds a batch */                            \
    /* from the time all its gradients are ready until their mean is ready */                      \
    X(CDDPI_SPAN_BUCKET, "bucket")                                                                 \
    /* spans of one device, if a process has several */                                            \
    /* DataParallel: the device gets its copy of the model */                                      \
    X(CDDPI_SPAN_REPLICATE, "replicate")                                                           \
    /* DataParallel: the device adds up the gradients of all devices */                            \
    X(CDDPI_SPAN_SUM, "sum")
enum cddpi_span { CDDPI_SPAN_MAP(CDDPI_CHOICE_ID) };

/** Read "10-20" or "10".
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT: the text says what is wrong, but not in which setting. */
CDDP_CHECKED cddp_status cddpi_trace_parse(const char *text, uint64_t *out_first,
                                           uint64_t *out_last);

/** Trace the steps from @p first to @p last. */
CDDP_CHECKED cddp_status cddpi_trace_open(cddp_group *group, uint64_t first, uint64_t last);
/** Write what was recorded, and stop. Also called before the group is destroyed. */
void cddpi_trace_close(cddp_group *group);

/** Begin step @p step: spans that are added from now on belong to it.
 *  @param out_begins  Whether it is the first traced step; may be NULL. */
void cddpi_trace_step(cddp_group *group, uint64_t step, bool *out_begins);

/** Let spans of @p part, which was split from @p whole, go to the trace of @p whole, so that one
 *  file has all of a rank's time. Steps are begun, and the trace is closed, by @p whole, which
 *  outlives @p part. */
void cddpi_trace_lend(cddp_group *part, const cddp_group *whole);

/** Whether steps of the group are traced, now or later. */
bool cddpi_trace_is_open(const cddp_group *group);
bool cddpi_trace_is_on(const cddp_group *group);

/** Add a span of the current step. @p number: the bucket or the loader thread; else -1. */
void cddpi_trace_add(cddp_group *group, enum cddpi_span kind, int64_t begin_ns, int64_t end_ns,
                     int32_t number, uint64_t bytes);
/** The same for compute that may have waited for communication: add what lies between the waits
 *  (CDDPI_SPAN_WAIT) that were added inside of it, so that no time is in two spans. */
void cddpi_trace_add_work(cddp_group *group, enum cddpi_span kind, int64_t begin_ns, int64_t end_ns,
                          int32_t number);
/** Add a span of one of several devices of this process, counted from 0; it is inside the rank's
 *  own span. @p number: the micro-batch; else -1. */
void cddpi_trace_add_device(cddp_group *group, int device, enum cddpi_span kind, int64_t begin_ns,
                            int64_t end_ns, int32_t number);

#endif
