/* setup_data.h - opens and loads the data that the configuration names. */
#ifndef CDDPI_TRAIN_SETUP_DATA_H
#define CDDPI_TRAIN_SETUP_DATA_H

#include "train/trainer.h"

/** Check that the configured files exist and are readable. */
CDDP_CHECKED cddp_status cddpi_trainer_check_files(const struct cddpi_config *config);
/** Open both datasets. Collective in @p group; NULL: this process alone. The caller closes both,
 *  also after a failure. */
CDDP_CHECKED cddp_status cddpi_trainer_open_data(const struct cddpi_config *config,
                                                 cddp_group *group, struct cddpi_dataset *train,
                                                 struct cddpi_dataset *test);
/** Write a sentence to @p out about classes without a training sample; "": every class has samples,
 *  or the data cannot lack any. */
void cddpi_trainer_note_classes(const struct cddpi_config *config,
                                const struct cddpi_dataset *train, char *out, size_t out_bytes);

#endif
