/* html.h - what pages and pictures of runs are made of. Whatever comes from files, names and
 * configurations goes through cddpi_html_put(). */
#ifndef CDDPI_TRAIN_REPORT_HTML_H
#define CDDPI_TRAIN_REPORT_HTML_H

#include <stddef.h>
#include <stdio.h>

/** @p text as text of HTML or of an attribute in quotes: nothing in it is markup. Bytes that are no
 *  UTF-8, and control characters, become a replacement character. */
void cddpi_html_put(FILE *out, const char *text);

/** The beginning of a page, with its style. Titles are escaped. */
void cddpi_html_begin(FILE *out, const char *title);
/** The end of it, with the script for tooltips. */
void cddpi_html_end(FILE *out);

/** The style sheet of pictures, for pages and for a picture that stands alone. */
void cddpi_html_picture_style(FILE *out);

/** Round steps between ticks: the least of 1, 2 or 5 times a power of ten that gives at most @p
 * most of them in @p span. */
double cddpi_tick_step(double span, int most);

#endif
