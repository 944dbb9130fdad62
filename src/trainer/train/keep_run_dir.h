/* keep_run_dir.h - the run's folder while it is written to. */
#ifndef CDDPI_TRAIN_KEEP_RUN_DIR_H
#define CDDPI_TRAIN_KEEP_RUN_DIR_H

#include <cddp/status.h>

#include <dirent.h>
#include <stdbool.h>

struct cddpi_trainer;

/* The run's folder, and what was saved there. Of rank 0; the others have the name of the
 * checkpoints' folder only. */
struct cddpi_run_folder {
    DIR *held;           /* keeps other runs out of it; NULL: not */
    char *checkpoints;   /* the folder in it */
    char *moved_to;      /* where the run is since another folder had to be made; NULL: its own */
    bool has_reported;   /* that none could be made */
    int64_t saved_ns;    /* when the last checkpoint was written or tried */
    uint64_t saved_step; /* the step of the last checkpoint; ~0: there is none */
    bool lost;           /* that checkpoint is gone, and one is to be written soon */
};

/** Of a run that begins; cddpi_run_folder_fini() releases it, also if it fails. */
CDDP_CHECKED cddp_status cddpi_run_folder_init(struct cddpi_run_folder *folder, const char *run_dir,
                                               int64_t now_ns);
void cddpi_run_folder_fini(struct cddpi_run_folder *folder); /* accepts a zeroed one */

/** The run's folder: what the configuration says, unless that was lost. Rank 0. */
const char *cddpi_trainer_run_dir(const struct cddpi_trainer *trainer);
/** See whether the run's folder and files are still there under their names. If not, say so, and go
 *  on in a fresh folder: of the same name unless that is taken, with a new file of metrics and, if
 *  checkpoints are lost, soon one. Rank 0.
 *  @return CDDP_OK; or why no folder could be made, which a warning also says, once. */
cddp_status cddpi_trainer_keep_run_dir(struct cddpi_trainer *trainer);

#endif
