/* group_trace.h - what a rank does in chosen steps: spans of time and the group's operations,
 * written at the end of the last step to trace/rank-R.json in the group's folder (dump.h).
 * cddp-trace merges the files of all ranks.
 *
 * Everything belongs to the thread that drives compute. Outside of the chosen steps a call costs a
 * comparison. */
#ifndef CDDPI_GROUP_TRACE_H
#define CDDPI_GROUP_TRACE_H

#include "group/group.h"

enum cddpi_span {
    CDDPI_SPAN_STEP,
    CDDPI_SPAN_DATA, /* waiting for the loader */
    CDDPI_SPAN_FORWARD,
    CDDPI_SPAN_BACKWARD,
    CDDPI_SPAN_WEIGHTS, /* gradients of parameters that come later than backward */
    CDDPI_SPAN_WAIT,    /* exposed communication */
    CDDPI_SPAN_OPTIMIZER,
    CDDPI_SPAN_LOADER, /* a thread of the loader makes a batch */
    CDDPI_SPAN_BUCKET, /* from all its gradients being there to its mean being there */
    /* of one of several devices of a process */
    CDDPI_SPAN_REPLICATE, /* DataParallel: it gets its copy of the model */
    CDDPI_SPAN_SUM,       /* DataParallel: it adds up the devices' gradients */
    CDDPI_SPANS
};

/** "step", "data", "forward" ... */
const char *cddpi_span_name(enum cddpi_span kind);

/** Read "10-20" or "10".
 *  @return CDDP_OK, CDDP_ERR_ARGUMENT: the text says what is wrong, not where. */
CDDP_CHECKED cddp_status cddpi_trace_parse(const char *text, uint64_t *out_first,
                                           uint64_t *out_last);

/** Trace the steps from @p first to @p last. */
CDDP_CHECKED cddp_status cddpi_trace_open(cddp_group *group, uint64_t first, uint64_t last);
/** Write what there is and stop. Also before the group is destroyed. */
void cddpi_trace_close(cddp_group *group);

/** Step @p step begins now: spans that are added from now on are its.
 *  @param out_begins  Whether it is the first that is traced; may be NULL. */
void cddpi_trace_step(cddp_group *group, uint64_t step, bool *out_begins);

bool cddpi_trace_is_on(const cddp_group *group);

/** A span of the present step. @p number: of the bucket, or of the loader's thread; else -1. */
void cddpi_trace_add(cddp_group *group, enum cddpi_span kind, int64_t begin_ns, int64_t end_ns,
                     int32_t number, uint64_t bytes);
/** A span of one of several devices of this process, from 0; it lies inside the rank's own.
 *  @p number: of the micro-batch, else -1. */
void cddpi_trace_add_device(cddp_group *group, int device, enum cddpi_span kind, int64_t begin_ns,
                            int64_t end_ns, int32_t number);

#endif
