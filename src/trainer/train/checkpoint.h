/* checkpoint.h - writes the checkpoints of a run. */
#ifndef CDDPI_TRAIN_CHECKPOINT_H
#define CDDPI_TRAIN_CHECKPOINT_H

#include "train/trainer.h"

/* Whether and when to retry a checkpoint that could not be written. */
enum cddpi_save_again {
    CDDPI_SAVE_NEVER, /* the same error would come again: a name, a limit, a parameter */
    CDDPI_SAVE_WITH_ROOM,
    CDDPI_SAVE_LATER /* the cause may pass */
};

/** Bring the state to host memory, each part where it is; on other ranks than 0 only with
 *  @p everywhere. Collective. */
CDDP_CHECKED cddp_status cddpi_trainer_settle(struct cddpi_trainer *trainer, bool everywhere);
/** The same, and gather what a checkpoint holds on rank 0. Collective, before cddpi_trainer_save(),
 *  unless the checkpoint is shared out (save_share.h). */
CDDP_CHECKED cddp_status cddpi_trainer_assemble(struct cddpi_trainer *trainer, bool everywhere);
/** Release what cddpi_trainer_assemble() has made. */
void cddpi_trainer_end_assembled(struct cddpi_trainer *trainer);
/** Write a checkpoint of the run's current state, or, where train.checkpoint_async allows it, begin
 *  to write a copy (save_behind.h); no other is being written. The assembled data remain. Rank 0
 *  calls it; afterwards all ranks call the engine's end_save().
 *  @param last           The run's last checkpoint: it is complete at the return; if the disk is
 *                        full, all older checkpoints but one may be deleted for it.
 *  @param out_why_again  Whether and when another try may succeed after a failure.
 *  @return Also CDDP_ERR_STATE: a parameter is NaN or Inf; then nothing is written. */
CDDP_CHECKED cddp_status cddpi_trainer_save(struct cddpi_trainer *trainer, bool last,
                                            enum cddpi_save_again *out_why_again);

/* The tensors of a checkpoint. */
struct cddpi_checkpoint_list {
    struct cddpi_snapshot_params all;
    cddp_tensor *tensors;   /* the model's, then the optimizer's */
    cddp_snapshot snapshot; /* points to these; without step and state */
};

/** List the tensors of a checkpoint. Rank 0, or, of an engine without prepare_save, any rank.
 *  @param out  Release with cddpi_checkpoint_end_list(), also after an error. */
CDDP_CHECKED cddp_status cddpi_checkpoint_begin_list(struct cddpi_trainer *trainer,
                                                     struct cddpi_checkpoint_list *out);
void cddpi_checkpoint_end_list(struct cddpi_checkpoint_list *list);

/** The state of the run as a JSON text, which is the same in every run of the same configuration.
 *  Release with free(). NULL: no memory. */
char *cddpi_checkpoint_state(const struct cddpi_trainer *trainer);
/** Check the parameters that have data here: a step may make them NaN or Inf, and a run that
 * resumes from these always fails. The loss shows it only in the next step. Any thread.
 *  @return CDDP_OK, CDDP_ERR_STATE. */
CDDP_CHECKED cddp_status cddpi_checkpoint_check(const cddp_snapshot *snapshot);

/* For engines, and for resuming: */

/** Whether checkpoints contain a loss scale: in fp16 runs. */
bool cddpi_checkpoint_has_scale(const struct cddpi_trainer *trainer);
/** Append an optimizer's tensors to those of @p all. */
CDDP_CHECKED cddp_status cddpi_checkpoint_add_optimizer(struct cddpi_snapshot_params *all,
                                                        const cddp_param *tensors, size_t count);
/** Release the tensor list that an engine has made. */
void cddpi_checkpoint_release(struct cddpi_snapshot_params *all);

/** The index of the first element of @p tensor that is NaN or Inf; the number of elements if there
 *  is none. */
size_t cddpi_find_infinite(const cddp_param *tensor);
/** Fail with CDDP_ERR_STATE and a text about that element. */
cddp_status cddpi_fail_infinite(const cddp_param *tensor, size_t element, float value);

/** Write the checkpoint at the end of a run: check that all replicas are equal, and retry for a
 * while if the disk is full or if the error may pass. All ranks return together when it is written,
 * or all fail. Collective. */
CDDP_CHECKED cddp_status cddpi_trainer_save_last(struct cddpi_trainer *trainer);

#endif
