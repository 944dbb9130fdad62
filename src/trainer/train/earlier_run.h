/* earlier_run.h - finds an earlier run in the run folder, and moves it aside for a new one. */
#ifndef CDDPI_TRAIN_EARLIER_RUN_H
#define CDDPI_TRAIN_EARLIER_RUN_H

#include "report/report_progress.h"

#include <cddp/status.h>

/** Find out whether a run has written to the folder @p dir. A checkpoint folder that the user made
 *  in advance, or a link to one on another disk, does not count as a run.
 *  @return CDDP_OK; CDDP_ERR_IO: the folder cannot be read, or the checkpoints' path is not a
 *          folder. */
CDDP_CHECKED cddp_status cddpi_earlier_run_find(const char *dir, bool *out);

/** Move everything the earlier run wrote to a new folder earlier-N in @p dir, or, on failure,
 *  nothing, and print a line about it. A folder that is a link or is on another disk stays for the
 *  new run: its contents are moved to an earlier-N inside it, to which earlier-N in @p dir
 *  links. */
CDDP_CHECKED cddp_status cddpi_earlier_run_put_aside(const char *dir,
                                                     struct cddpi_progress *progress);

#endif
