/* run_dir.h - the folder of a run. */
#ifndef CDDPI_TRAIN_RUN_DIR_H
#define CDDPI_TRAIN_RUN_DIR_H

#include "report/report_progress.h"
#include "train/config/config.h"

#include <dirent.h>

/** Hold the run's folder, if it is there, until @p held is closed or the process ends, however that
 *  is: nothing is left in the folder. Rank 0.
 *  @param held  NULL at first; what is held already stays.
 *  @return CDDP_OK; CDDP_ERR_STATE when another run holds it, after 2 seconds of asking. */
CDDP_CHECKED cddp_status cddpi_run_dir_hold(const char *dir, DIR **held);
/** Make the run's folder, hold it as above, put an earlier run aside (unless this one resumes),
 *  write train.conf. Rank 0. */
CDDP_CHECKED cddp_status cddpi_run_dir_prepare(const struct cddpi_config *config, bool resumes,
                                               DIR **held, struct cddpi_progress *progress);

#endif
