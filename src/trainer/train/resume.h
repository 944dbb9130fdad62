/* resume.h - taking up an earlier run. */
#ifndef CDDPI_TRAIN_RESUME_H
#define CDDPI_TRAIN_RESUME_H

#include "train/trainer.h"

/** Find and load what train.resume names, on rank 0, and share it. Collective. */
CDDP_CHECKED cddp_status cddpi_trainer_resume(struct cddpi_trainer *trainer);

/** The newest checkpoint of the run's folder, or *out NULL: it has none at all; cddpi_free(). */
CDDP_CHECKED cddp_status cddpi_trainer_find_newest(struct cddpi_trainer *trainer, char **out);
/** The same of the folder @p dir. */
CDDP_CHECKED cddp_status cddpi_trainer_find_newest_in(struct cddpi_trainer *trainer,
                                                      const char *dir, char **out);
/** The checkpoint that train.resume names: itself, or the newest whole one of the run whose folder
 *  it is; cddpi_free(). Anything else there is an error that says what it is. */
CDDP_CHECKED cddp_status cddpi_trainer_find_named(struct cddpi_trainer *trainer, char **out);

#endif
