/* dry_run.h - implements cddp-train --dry-run. */
#ifndef CDDPI_TRAIN_DRY_RUN_H
#define CDDPI_TRAIN_DRY_RUN_H

#include "data/dataset.h"
#include "train/config/config.h"

/** The number of ranks to check for: $WORLD_SIZE, else the ranks of one pipeline. */
int cddpi_dry_run_ranks(const struct cddpi_config *config);

/** Print a few lines that say how much data there is. */
void cddpi_trainer_print_data(const struct cddpi_dataset *train, const struct cddpi_dataset *test,
                              FILE *file);
/** Print what the configuration describes, without joining a group. */
CDDP_CHECKED cddp_status cddpi_trainer_dry_run(const struct cddpi_config *config, FILE *file);

#endif
