/* report_page.h - report.html: one or several runs as one page that needs nothing besides itself.
 */
#ifndef CDDPI_TRAIN_REPORT_REPORT_PAGE_H
#define CDDPI_TRAIN_REPORT_REPORT_PAGE_H

#include <cddp/status.h>

/** Write a page about the runs in @p dirs to @p path: several over each other. A trace of a run is
 *  drawn if there is one.
 *  @return CDDP_OK, or what cddpi_run_read() or the file failed with. */
CDDP_CHECKED cddp_status cddpi_report_page_write(char *const *dirs, int count, const char *path);

#endif
