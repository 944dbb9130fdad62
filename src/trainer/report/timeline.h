/* timeline.h - draws one step: what each rank computed, waited for and sent. */
#ifndef CDDPI_TRAIN_REPORT_TIMELINE_H
#define CDDPI_TRAIN_REPORT_TIMELINE_H

#include "base/file.h"
#include "report/traces.h"

#include <stdio.h>

/** Draw @p step as SVG.
 *  @param alone  As a separate file, with a style sheet and a background. false: part of the page,
 *                which has the style. */
CDDP_CHECKED cddp_status cddpi_timeline_put(const struct cddpi_traces *traces,
                                            const struct cddpi_traced_step *step, bool alone,
                                            struct cddpi_writer *writer);
/** Choose the step to draw: the one that took the median time. Returns false if there is none. */
bool cddpi_timeline_choose(const struct cddpi_traces *traces, struct cddpi_traced_step *out);

/** Write @p text as XML or HTML text, or as a quoted attribute, so that nothing in it is markup.
 *  Bytes that are not UTF-8 and control characters become U+FFFD. */
void cddpi_html_put(FILE *out, const char *text);

#endif
