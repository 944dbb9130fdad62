/* broken_files.h - warnings about image files that could not be read (data.on_error = "skip").
 */
#ifndef CDDPI_TRAIN_BROKEN_FILES_H
#define CDDPI_TRAIN_BROKEN_FILES_H

#include "train/trainer.h"

/** Let rank 0 warn about samples that were replaced on any rank, if there are more of them than it
 *  has warned of. Collective; nothing where broken files are errors. */
CDDP_CHECKED cddp_status cddpi_trainer_tell_broken(struct cddpi_trainer *trainer);

#endif
