/* run_dir.h - locks and prepares the run folder. */
#ifndef CDDPI_TRAIN_RUN_DIR_H
#define CDDPI_TRAIN_RUN_DIR_H

#include "report/report_progress.h"
#include "train/config/config.h"

#include <dirent.h>

/** Lock the run folder, if it exists, until @p held is closed or the process ends in any way. The
 *  lock leaves no file in the folder. Rank 0.
 *  @param held  NULL at first; a folder that is locked already stays locked.
 *  @return CDDP_OK; CDDP_ERR_STATE: another run still holds it after 2 seconds of retries. */
CDDP_CHECKED cddp_status cddpi_run_dir_hold(const char *dir, DIR **held);
/** Create the run folder, lock it as above, move an earlier run aside (unless this run resumes),
 *  and write train.conf. Rank 0. */
CDDP_CHECKED cddp_status cddpi_run_dir_prepare(const struct cddpi_config *config, bool resumes,
                                               DIR **held, struct cddpi_progress *progress);

#endif
