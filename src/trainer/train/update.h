/* update.h - from gradients to new parameters. */
#ifndef CDDPI_TRAIN_UPDATE_H
#define CDDPI_TRAIN_UPDATE_H

#include "train/step.h"

/** Clip and update the parameters of one model; the cursor has moved past @p step already.
 *  @param collects  On a device: the step ends with this update, so that what its forwards found is
 *                   collected, and taken a step later.
 *  @param out_norm  Of the gradients; set only if they are clipped or the step is reported. */
CDDP_CHECKED cddp_status cddpi_trainer_update(struct cddpi_trainer *trainer,
                                              const struct cddpi_train_step *step, bool collects,
                                              double *out_norm);

#endif
