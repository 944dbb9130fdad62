/* follow.h - shows in a terminal how a run goes on, from the lines that it adds to metrics.jsonl.
 */
#ifndef CDDPI_TRAIN_REPORT_FOLLOW_H
#define CDDPI_TRAIN_REPORT_FOLLOW_H

#include <cddp/status.h>

/** Show the run in @p dir on stdout until it ends, which its line of kind "end" says: on a terminal
 *  a few lines that are drawn again, else a line for each line of metrics. Waits for a run that has
 *  not begun, and goes on when a run begins again. Says on stderr for what it waits.
 *  @return CDDP_OK, CDDP_ERR_IO (metrics.jsonl or stdout), CDDP_ERR_NO_MEMORY, CDDP_ERR_PEER (the
 *          run has no process any more, and did not end). */
CDDP_CHECKED cddp_status cddpi_report_follow(const char *dir);

#endif
