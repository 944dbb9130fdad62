/* timeline.h - a picture of one step: what each rank computed, waited for and sent. */
#ifndef CDDPI_TRAIN_REPORT_TIMELINE_H
#define CDDPI_TRAIN_REPORT_TIMELINE_H

#include "report/traces.h"

/** Draw @p step as SVG. @p alone: a file of its own, with its style and a ground. */
void cddpi_timeline_draw(const struct cddpi_traces *traces, const struct cddpi_traced_step *step,
                         bool alone, FILE *out);
/** The step to be drawn: the one whose time is the median; false: there is none. */
bool cddpi_timeline_choose(const struct cddpi_traces *traces, struct cddpi_traced_step *out);

#endif
