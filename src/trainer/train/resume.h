/* resume.h - resumes an earlier run. */
#ifndef CDDPI_TRAIN_RESUME_H
#define CDDPI_TRAIN_RESUME_H

#include "train/trainer.h"

/** Go on from the last state that earlier ranks of this job have kept (recovery/keep.h) or, if
 * there is none or it is older, from the checkpoint that train.resume names: rank 0 finds and loads
 * it, and sends it to all ranks. Collective. */
CDDP_CHECKED cddp_status cddpi_trainer_resume(struct cddpi_trainer *trainer);

/** The newest complete checkpoint in the folder @p dir. *out is NULL if there is no checkpoint at
 *  all; if all are broken, that is an error. Release with cddpi_free().
 *  @param to_train  False: only the model is used, so only that must be whole. */
CDDP_CHECKED cddp_status cddpi_trainer_find_newest_in(struct cddpi_trainer *trainer,
                                                      const char *dir, bool to_train, char **out);
/** The checkpoint that train.resume names: the path itself, or, if it is a run folder, its newest
 *  complete checkpoint. Release with cddpi_free(). Anything else at the path is an error that says
 *  what was found. */
CDDP_CHECKED cddp_status cddpi_trainer_find_named(struct cddpi_trainer *trainer, bool to_train,
                                                  char **out);

#endif
