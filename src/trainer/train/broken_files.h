/* broken_files.h - warns about image files that could not be read (data.on_error = "skip"). */
#ifndef CDDPI_TRAIN_BROKEN_FILES_H
#define CDDPI_TRAIN_BROKEN_FILES_H

#include "train/trainer.h"

/** Rank 0 warns about samples replaced on any rank, if there are new ones since its last warning.
 *  Collective; does nothing where broken files are errors. */
CDDP_CHECKED cddp_status cddpi_trainer_tell_broken(struct cddpi_trainer *trainer);

#endif
