/* update.h - updates the parameters from the gradients. */
#ifndef CDDPI_TRAIN_UPDATE_H
#define CDDPI_TRAIN_UPDATE_H

#include "train/step.h"

/** Clip the gradients and update the parameters of one model. The cursor has advanced past @p step
 *  already.
 *  @param collects  On a device: this update is the last of the step, so fetch the results of its
 *                   forwards; they are read a step later.
 *  @param out_norm  Of the gradients; set only if gradients are clipped or the step is reported. */
CDDP_CHECKED cddp_status cddpi_trainer_update(struct cddpi_trainer *trainer,
                                              const struct cddpi_train_step *step, bool collects,
                                              double *out_norm);

/** On a device: wait for the results of all steps but the last @p keep ones, and add them to the
 *  interval. Does nothing on the processor.
 *  @param out_norm  The last one's gradient norm; may be NULL. */
CDDP_CHECKED cddp_status cddpi_trainer_collect_results(struct cddpi_trainer *trainer, int keep,
                                                       double *out_norm);

#endif
