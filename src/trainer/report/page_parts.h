/* page_parts.h - page.html as it is compiled in: cut where report_page.c puts what a run has. */
#ifndef CDDPI_TRAIN_REPORT_PAGE_PARTS_H
#define CDDPI_TRAIN_REPORT_PAGE_PARTS_H

extern const char cddpi_page_head[];     /* up to the timelines */
extern const char cddpi_page_body[];     /* from there to the JSON of the runs */
extern const char cddpi_page_tail[];     /* from there to the end */
extern const char cddpi_picture_style[]; /* the first style sheet, for a timeline on its own */

#endif
