/* checkpoint.h - checkpoints of a run. */
#ifndef CDDPI_TRAIN_CHECKPOINT_H
#define CDDPI_TRAIN_CHECKPOINT_H

#include "train/trainer.h"

/* Whether a checkpoint that could not be written may be written later. */
enum cddpi_save_again {
    CDDPI_SAVE_NEVER, /* what failed will fail again: a name, a limit, a parameter */
    CDDPI_SAVE_WITH_ROOM,
    CDDPI_SAVE_LATER /* for a reason that may pass */
};

/** Bring together on rank 0 what a checkpoint holds, and the parameters from each rank's device to
 *  its processor if they are wanted @p everywhere. Collective, before cddpi_trainer_save(). */
CDDP_CHECKED cddp_status cddpi_trainer_assemble(struct cddpi_trainer *trainer, bool everywhere);
/** Release what cddpi_trainer_assemble() has made. */
void cddpi_trainer_end_assembled(struct cddpi_trainer *trainer);
/** Write a checkpoint of where the run is; what was assembled for it stays. Rank 0; after it all
 *  ranks call the engine's end_save().
 *  @param last          Nothing is worth more: where the disk is full, all older ones but one may
 * go.
 *  @param out_why_again  Why another try may succeed where this one failed.
 *  @return Also CDDP_ERR_STATE: a parameter is not finite; nothing is written then. */
CDDP_CHECKED cddp_status cddpi_trainer_save(struct cddpi_trainer *trainer, bool last,
                                            enum cddpi_save_again *out_why_again);

/* For engines, and to resume: */

/** Whether checkpoints have a loss scale: runs in fp16. */
bool cddpi_checkpoint_has_scale(const struct cddpi_trainer *trainer);
/** Add tensors of an optimizer to those of @p snapshot. */
CDDP_CHECKED cddp_status cddpi_checkpoint_add_optimizer(cddp_snapshot *snapshot,
                                                        const cddp_tensor *tensors, size_t count);
/** Release the list of tensors, which an engine has made. */
void cddpi_checkpoint_release(cddp_snapshot *snapshot);

#endif
