/* setup_csv.h - opens CSV files as train.conf says. */
#ifndef CDDPI_TRAIN_SETUP_CSV_H
#define CDDPI_TRAIN_SETUP_CSV_H

#include "data/dataset.h"
#include "train/config/config.h"

/** As cddpi_dataset_open_csv(). @p blame words failures of files. */
CDDP_CHECKED cddp_status cddpi_trainer_open_csv(const struct cddpi_config *config,
                                                const struct cddpi_data_blame *blame,
                                                cddp_group *group, struct cddpi_dataset *train,
                                                struct cddpi_dataset *test);

#endif
