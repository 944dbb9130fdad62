/* html.h - escapes untrusted text in the markup that cddp itself writes: the timeline. */
#ifndef CDDPI_TRAIN_REPORT_HTML_H
#define CDDPI_TRAIN_REPORT_HTML_H

#include <stdio.h>

/** Write @p text as XML or HTML text, or as a quoted attribute, so that nothing in it is markup.
 *  Bytes that are not UTF-8 and control characters become U+FFFD. */
void cddpi_html_put(FILE *out, const char *text);

#endif
