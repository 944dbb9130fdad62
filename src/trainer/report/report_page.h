/* report_page.h - writes report.html: a self-contained page about one or several runs. */
#ifndef CDDPI_TRAIN_REPORT_REPORT_PAGE_H
#define CDDPI_TRAIN_REPORT_REPORT_PAGE_H

#include <cddp/status.h>

/** Write the page of the runs in @p dirs to @p path. Several runs are drawn over each other. A run
 *  that was traced has a timeline.
 *  @return CDDP_OK, or what cddpi_run_read() or the file failed with. */
CDDP_CHECKED cddp_status cddpi_report_page_write(char *const *dirs, int count, const char *path);

#endif
