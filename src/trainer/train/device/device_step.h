/* device_step.h - the end of a step on a device: clipping, the update and the loss scale, which
 * only put work into the compute stream; and what they found, once it is known. */
#ifndef CDDPI_TRAIN_DEVICE_DEVICE_STEP_H
#define CDDPI_TRAIN_DEVICE_DEVICE_STEP_H

#include "optim/loss_scale.h"
#include "train/trainer.h"

struct cddpi_device_step;

/* How a step is done. step_graphs.c decides the same for all ranks. On the processor all false. */
struct cddpi_step_mode {
    bool replays; /* from captures, where there are any; whole steps only */
    bool timed;   /* to choose whether steps are replayed */
};

/* What the end of a step found. */
struct cddpi_step_result {
    double norm;  /* of the gradients' mean, unscaled; NaN: not asked for */
    bool skipped; /* the gradients were not finite, so nothing changed: only with a loss scale */
    struct cddpi_step_mode mode; /* of that step */
    int64_t step_ns;             /* of the compute stream, from its first work to its last */
    /* parts of that, of all micro-batches; 0 if it was replayed */
    int64_t forward_ns, backward_ns, optimizer_ns;
};

/* What the compute stream begins with. */
enum cddpi_mark { CDDPI_MARK_FORWARD, CDDPI_MARK_BACKWARD };

/** The trainer's optimizer is on the device already, and from now on also writes the copies of
 *  parameters that the model's products read.
 *  @param scales  Losses are scaled (fp16): by trainer->loss_scale, which follows the device's. */
CDDP_CHECKED cddp_status cddpi_device_step_create(struct cddpi_trainer *trainer, bool scales,
                                                  struct cddpi_device_step **out);
void cddpi_device_step_destroy(struct cddpi_device_step *step); /* accepts NULL */

/** The loss scale on the device; NULL: losses are not scaled. */
const float *cddpi_device_step_loss_scale(const struct cddpi_device_step *step);
/** Give the device trainer->loss_scale as it is now (after a checkpoint was read). Waits. */
CDDP_CHECKED cddp_status cddpi_device_step_send_scale(struct cddpi_device_step *step);

/** A micro-batch's forward or backward begins; not in a step that is replayed. Nothing if @p step
 * is NULL. */
CDDP_CHECKED cddp_status cddpi_device_step_mark(struct cddpi_device_step *step,
                                                enum cddpi_mark mark);
/** A step that is replayed begins. */
CDDP_CHECKED cddp_status cddpi_device_step_begin_replay(struct cddpi_device_step *step);

/** Clip, update, share: the three below, of a step that is not replayed. @p wants_norm: also where
 *  nothing is clipped. @p timed: as struct cddpi_step_mode has it. */
CDDP_CHECKED cddp_status cddpi_device_step_update(struct cddpi_device_step *step, double lr,
                                                  bool wants_norm, bool timed);
/** What changes from step to step; not part of a capture. */
CDDP_CHECKED cddp_status cddpi_device_step_prepare(struct cddpi_device_step *step, double lr);
/** Work for the device only: also part of a capture. */
CDDP_CHECKED cddp_status cddpi_device_step_work(struct cddpi_device_step *step, bool wants_norm);
/** Numbers start on their way back, and updated parameters to all ranks; not in a capture. */
CDDP_CHECKED cddp_status cddpi_device_step_end(struct cddpi_device_step *step, bool wants_norm,
                                               struct cddpi_step_mode mode);
/** Whether the norm is found in any case. */
bool cddpi_device_step_has_factor(const struct cddpi_device_step *step);

/** Updates whose numbers were not taken yet; 0 if @p step is NULL. */
int cddpi_device_step_pending(const struct cddpi_device_step *step);
/** What the oldest update that was not taken yet found; waits for it. CDDP_ERR_STATE: there is
 *  none. */
CDDP_CHECKED cddp_status cddpi_device_step_take(struct cddpi_device_step *step,
                                                struct cddpi_step_result *out);

#endif
