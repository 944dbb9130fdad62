/* device_step.h - owns the end of a step on a device: clipping, update and loss scale, which only
 * enqueue work in the compute stream, and their results, which arrive later. */
#ifndef CDDPI_TRAIN_DEVICE_DEVICE_STEP_H
#define CDDPI_TRAIN_DEVICE_DEVICE_STEP_H

#include "optim/loss_scale.h"
#include "train/trainer.h"

struct cddpi_device_step;

/* How a step runs. step_graphs.c makes the same decision on all ranks. All false on the
 * processor. */
struct cddpi_step_mode {
    bool replays; /* replay captures where they exist; only for whole batches */
    bool timed;   /* measure the step, to choose whether steps are replayed */
};

/* The results of the end of a step. */
struct cddpi_step_result {
    double norm;  /* of the averaged, unscaled gradients; NaN: not computed */
    bool skipped; /* the gradients had NaN or Inf, so nothing was updated; only with a loss scale */
    struct cddpi_step_mode mode; /* how that step ran */
    int64_t step_ns;             /* in the compute stream, from its first work to its last */
    /* parts of step_ns, over all micro-batches; 0 if the step was replayed */
    int64_t forward_ns, backward_ns, optimizer_ns;
};

/* The work that begins in the compute stream. */
enum cddpi_mark { CDDPI_MARK_FORWARD, CDDPI_MARK_BACKWARD };

/** Create the end of steps. The trainer's optimizer is on the device already; from now on it also
 *  writes the parameter copies that the model's matrix products read.
 *  @param scales  Scale the loss (fp16): by trainer->step.loss_scale, which follows the device's
 *                 value. */
CDDP_CHECKED cddp_status cddpi_device_step_create(struct cddpi_trainer *trainer, bool scales,
                                                  struct cddpi_device_step **out);
void cddpi_device_step_destroy(struct cddpi_device_step *step); /* accepts NULL */

/** The loss scale in device memory; NULL: the loss is not scaled. */
const float *cddpi_device_step_loss_scale(const struct cddpi_device_step *step);
/** Send the current trainer->step.loss_scale to the device (after a checkpoint was read). Waits for
 *  it. */
CDDP_CHECKED cddp_status cddpi_device_step_send_scale(struct cddpi_device_step *step);

/** Mark the beginning of a micro-batch's forward or backward; not in a replayed step. Does nothing
 *  if @p step is NULL. */
CDDP_CHECKED cddp_status cddpi_device_step_mark(struct cddpi_device_step *step,
                                                enum cddpi_mark mark);
/** Mark the beginning of a replayed step. */
CDDP_CHECKED cddp_status cddpi_device_step_begin_replay(struct cddpi_device_step *step);

/** Clip, update and share the parameters in a step that is not replayed: calls the next three
 *  functions.
 *  @param wants_norm  Compute the norm even without clipping.
 *  @param timed       As in struct cddpi_step_mode. */
CDDP_CHECKED cddp_status cddpi_device_step_update(struct cddpi_device_step *step, double lr,
                                                  bool wants_norm, bool timed);
/** Write the values that change from step to step; not part of a capture. */
CDDP_CHECKED cddp_status cddpi_device_step_prepare(struct cddpi_device_step *step, double lr);
/** Enqueue the work that runs only on the device; it can be part of a capture. */
CDDP_CHECKED cddp_status cddpi_device_step_work(struct cddpi_device_step *step, bool wants_norm);
/** Start copying the results to the host, and sending updated parameters to all ranks; not part of
 *  a capture. */
CDDP_CHECKED cddp_status cddpi_device_step_end(struct cddpi_device_step *step, bool wants_norm,
                                               struct cddpi_step_mode mode);
/** Whether every step computes the norm. */
bool cddpi_device_step_has_factor(const struct cddpi_device_step *step);

/** The number of updates whose results were not taken yet; 0 if @p step is NULL. */
int cddpi_device_step_pending(const struct cddpi_device_step *step);
/** Take the results of the oldest update not taken yet; waits for them. CDDP_ERR_STATE: there is
 *  none. */
CDDP_CHECKED cddp_status cddpi_device_step_take(struct cddpi_device_step *step,
                                                struct cddpi_step_result *out);

#endif
