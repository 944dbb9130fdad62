/* page_parts.h - page.html, compiled in as three parts: report_page.c writes the run's data between
 * them. */
#ifndef CDDPI_TRAIN_REPORT_PAGE_PARTS_H
#define CDDPI_TRAIN_REPORT_PAGE_PARTS_H

extern const char cddpi_page_head[];     /* up to the timelines */
extern const char cddpi_page_body[];     /* from there to the JSON of the runs */
extern const char cddpi_page_tail[];     /* from there to the end */
extern const char cddpi_picture_style[]; /* the first style sheet, for a timeline on its own */

#endif
