/* earlier_run.h - an earlier run in a run's folder, which a new one puts aside. */
#ifndef CDDPI_TRAIN_EARLIER_RUN_H
#define CDDPI_TRAIN_EARLIER_RUN_H

#include "report/report_progress.h"

#include <cddp/status.h>

/** Whether a run has written to the folder @p dir. A folder for checkpoints that a user has made
 *  beforehand, or a link to one on another disk, is none.
 *  @return CDDP_OK; CDDP_ERR_IO: it cannot be seen, or checkpoints are to go where no folder is. */
CDDP_CHECKED cddp_status cddpi_earlier_run_find(const char *dir, bool *out);

/** Move what it wrote to a new folder earlier-N in @p dir, all of it or nothing, and say so. What
 * is a link to a folder, or another disk's, stays for the new run: its contents are put into a
 * folder earlier-N there, to which earlier-N in @p dir links. */
CDDP_CHECKED cddp_status cddpi_earlier_run_put_aside(const char *dir,
                                                     struct cddpi_progress *progress);

#endif
