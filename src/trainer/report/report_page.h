/* report_page.h - writes report.html: a self-contained page about one or several runs. */
#ifndef CDDPI_TRAIN_REPORT_REPORT_PAGE_H
#define CDDPI_TRAIN_REPORT_REPORT_PAGE_H

#include <cddp/status.h>

/** Write the page of the runs in @p dirs to @p path. Several runs are drawn over each other. A run
 *  that was traced has a timeline.
 *  @return CDDP_OK, CDDP_ERR_NOT_FOUND, CDDP_ERR_IO (both name the file), CDDP_ERR_FORMAT,
 *          CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_report_page_write(char *const *dirs, int count, const char *path);

/* page.html, compiled in as three parts: report_page.c writes the run's data between them. */
extern const char cddpi_page_head[];     /* up to the timelines */
extern const char cddpi_page_body[];     /* from there to the JSON of the runs */
extern const char cddpi_page_tail[];     /* from there to the end */
extern const char cddpi_picture_style[]; /* the first style sheet without variables, for pictures */

#endif
