/* setup_data.h - the data of a configuration. */
#ifndef CDDPI_TRAIN_SETUP_DATA_H
#define CDDPI_TRAIN_SETUP_DATA_H

#include "train/trainer.h"

/** Check that the files which the configuration names exist and may be read. */
CDDP_CHECKED cddp_status cddpi_trainer_check_files(const struct cddpi_config *config);
/** Open the data. Collective with a @p group; NULL: alone. Both are to be closed, on
 *  failure, too. */
CDDP_CHECKED cddp_status cddpi_trainer_open_data(const struct cddpi_config *config,
                                                 cddp_group *group, struct cddpi_dataset *train,
                                                 struct cddpi_dataset *test);
/** A sentence about classes without a sample to train on, or "": there are none, or nothing can be
 *  wrong about them. */
void cddpi_trainer_note_classes(const struct cddpi_config *config,
                                const struct cddpi_dataset *train, char *out, size_t out_bytes);
/** A line or a few that say how much data there is. */
void cddpi_trainer_print_data(const struct cddpi_dataset *train, const struct cddpi_dataset *test,
                              FILE *file);
/** The orders and loaders of the open data. */
CDDP_CHECKED cddp_status cddpi_trainer_build_data(struct cddpi_trainer *trainer);

#endif
