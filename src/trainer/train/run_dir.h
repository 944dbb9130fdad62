/* run_dir.h - owns the run folder: locks and prepares it, and replaces it if it disappears while
 * the run writes to it. */
#ifndef CDDPI_TRAIN_RUN_DIR_H
#define CDDPI_TRAIN_RUN_DIR_H

#include "report/report_progress.h"
#include "train/config/config.h"

#include <dirent.h>
#include <stdbool.h>

struct cddpi_trainer;

/** Lock the run folder, if it exists, until @p held is closed or the process ends in any way. The
 *  lock leaves no file in the folder. Rank 0.
 *  @param held  NULL at first; a folder that is locked already stays locked.
 *  @return CDDP_OK; CDDP_ERR_STATE: another run still holds it after 2 seconds of retries. In a
 *  later generation of a job, after half of CDDP_TIMEOUT_MS, since it may be an earlier one. */
CDDP_CHECKED cddp_status cddpi_run_dir_hold(const char *dir, DIR **held);
/** Create the run folder, lock it as above, move an earlier run aside (unless this run resumes),
 *  and write train.conf. Rank 0. */
CDDP_CHECKED cddp_status cddpi_run_dir_prepare(const struct cddpi_config *config, bool resumes,
                                               DIR **held, struct cddpi_progress *progress);

/* The run folder and the state of its checkpoints. On rank 0; other ranks have only the name of the
 * checkpoint folder. */
struct cddpi_run_folder {
    DIR *held;           /* locks the folder against other runs; NULL: not locked */
    char *checkpoints;   /* path of the checkpoint folder */
    char *moved_to;      /* the folder that replaced a lost run folder; NULL: the original */
    bool has_reported;   /* has warned that no folder could be made */
    int64_t saved_ns;    /* when the last checkpoint was written or tried */
    int64_t whole_ns;    /* when the last complete checkpoint began, or the run */
    uint64_t saved_step; /* the step of the last checkpoint; ~0: no checkpoint */
    bool lost;           /* that checkpoint is gone; write one soon */
};

/** Prepare for a new run. Release with cddpi_run_folder_fini(), also after a failure. */
CDDP_CHECKED cddp_status cddpi_run_folder_init(struct cddpi_run_folder *folder, const char *run_dir,
                                               int64_t now_ns);
void cddpi_run_folder_fini(struct cddpi_run_folder *folder); /* accepts a zeroed one */

/** The run folder: the configured one, or its replacement if it was lost. Rank 0. */
const char *cddpi_trainer_run_dir(const struct cddpi_trainer *trainer);
/** Check that the run folder and its files still exist under their names. If not, print it, and
 *  continue in a new folder: under the same name if that is free, with a new metrics file and, if
 *  checkpoints are lost, a new checkpoint soon. Does nothing while a checkpoint is written in the
 *  background. Rank 0.
 *  @return CDDP_OK, or why no folder could be made; a warning says so, too, but only once. */
cddp_status cddpi_trainer_keep_run_dir(struct cddpi_trainer *trainer);

#endif
