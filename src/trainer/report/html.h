/* html.h - text of strangers in what cddp itself writes as markup: the timeline. */
#ifndef CDDPI_TRAIN_REPORT_HTML_H
#define CDDPI_TRAIN_REPORT_HTML_H

#include <stdio.h>

/** Write @p text as text of XML and HTML, or of an attribute in quotes: nothing in it is markup.
 *  Bytes that are not UTF-8 and control characters become U+FFFD. */
void cddpi_html_put(FILE *out, const char *text);

#endif
