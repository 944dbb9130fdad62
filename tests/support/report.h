/* report.h - makes runs that were never trained, and their report pages. */
#ifndef CDDP_TESTS_SUPPORT_REPORT_H
#define CDDP_TESTS_SUPPORT_REPORT_H

#include "support/folder.h"

/* Text that tries to inject HTML and scripts. */
#define REPORT_EVIL                                                                                \
    "</title></pre></script><!--<script>alert(1)</script><img src=x onerror=alert(1)>'\"&"

/* Make a run @p name in the test's folder: twenty lines of metrics, an evaluation, and REPORT_EVIL
 * wherever there is text. Returns its folder. */
char *report_make_run(const char *name);

/* A run of a language model, which wrote two texts. */
char *report_make_text_run(const char *name);

/* A run that wrote a grey sheet, 2 by 1 pixels, one with colours, and files that are no sheets. */
char *report_make_image_run(const char *name);

/* As report_make_run(), with @p metrics as its metrics.jsonl. */
char *report_make_run_of(const char *name, const char *metrics);

/* Replace the train.conf of a run. */
void report_configure(const char *dir, const char *text);

/* Add a trace of one step, so that the run has a timeline. */
void report_add_trace(const char *dir);

/* Write the report page of @p dirs to @p name in the test's folder. */
void report_make_page(char *const *dirs, int count, const char *name);

#endif
