/* timeline.h - a picture of one step: what each rank computed, waited for and sent. */
#ifndef CDDPI_TRAIN_REPORT_TIMELINE_H
#define CDDPI_TRAIN_REPORT_TIMELINE_H

#include "base/file.h"
#include "report/traces.h"

/** Draw @p step as SVG. @p alone: as a file of its own, with its style and a ground. Without it the
 *  style is the page's. */
CDDP_CHECKED cddp_status cddpi_timeline_put(const struct cddpi_traces *traces,
                                            const struct cddpi_traced_step *step, bool alone,
                                            struct cddpi_writer *writer);
/** Choose the step to draw: the one that took the median time. Returns false if there is none. */
bool cddpi_timeline_choose(const struct cddpi_traces *traces, struct cddpi_traced_step *out);

#endif
