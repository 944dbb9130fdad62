/* summary.h - tells the user what a run is about to do, and at its end where to look and how to go
 * on. Rank 0. */
#ifndef CDDPI_TRAIN_SUMMARY_H
#define CDDPI_TRAIN_SUMMARY_H

#include "train/trainer.h"

/** How many parameters the models on this rank have. */
uint64_t cddpi_trainer_parameters(const struct cddpi_trainer *trainer);

/** Print five lines: the model, ranks and devices, data, batch, folder. */
void cddpi_trainer_show_start(struct cddpi_trainer *trainer);

/** Print how long the run took, or after what time it failed: @p earlier seconds in the processes
 * that this one goes on from and
 *  @p seconds in this one, and where the run's page is if @p has_page. */
void cddpi_trainer_show_end(struct cddpi_trainer *trainer, bool has_failed, double earlier,
                            double seconds, bool has_page);

#endif
