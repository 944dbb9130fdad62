/* step.h - runs one training step: plan, compute, agree, update, report. */
#ifndef CDDPI_TRAIN_STEP_H
#define CDDPI_TRAIN_STEP_H

#include "train/device/device_step.h"
#include "train/moment.h"
#include "train/trainer.h"

/* The current step. Only step.c writes it; the functions that a step calls read it. */
struct cddpi_train_step {
    struct cddpi_moment begun;
    double lr;
    bool ends_epoch;
    struct cddpi_step_mode mode;
    /* --- while it computes --- */
    int predictions; /* on this rank */
    bool replayed;   /* so far, all work was replayed from captures */
    /* --- after all ranks have agreed --- */
    enum cddpi_request request; /* what to do after this step */
    bool reported;              /* it writes a line of metrics */
    bool keeps;                 /* its end is kept in memory (recovery/keep.h) */
};

/** Run the next step and advance the cursor. Collective. */
CDDP_CHECKED cddp_status cddpi_trainer_step(struct cddpi_trainer *trainer,
                                            struct cddpi_train_step *out);

/* What a step does with its micro-batch @p batch, which comes after @p done others. */
typedef cddp_status (*cddpi_micro_batch_fn)(struct cddpi_trainer *trainer,
                                            struct cddpi_train_step *step,
                                            const struct cddpi_micro_batch *batch, uint64_t done);
/** Take the next micro-batch of @p step from the loader, and count its predictions in the step.
 *  @param logs  Whether this rank logs the batch's sample ids. */
CDDP_CHECKED cddp_status cddpi_trainer_take_batch(struct cddpi_trainer *trainer,
                                                  struct cddpi_train_step *step, bool logs,
                                                  struct cddpi_micro_batch *out);
/** Take those of the batch that other ranks have after this rank's @p last one, if it has taken @p
 *  taken of the batch. */
CDDP_CHECKED cddp_status cddpi_trainer_skip_batches(struct cddpi_trainer *trainer,
                                                    const struct cddpi_micro_batch *last,
                                                    uint64_t taken);
/** Fetch the micro-batches of @p step one by one, and call @p compute on each. */
CDDP_CHECKED cddp_status cddpi_trainer_each_micro_batch(struct cddpi_trainer *trainer,
                                                        struct cddpi_train_step *step,
                                                        cddpi_micro_batch_fn compute);
/** Run forward and backward of one micro-batch, or replay them (device/step_graphs.h). The last
 *  micro-batch reduces the gradients. */
CDDP_CHECKED cddp_status cddpi_trainer_compute_micro_batch(struct cddpi_trainer *trainer,
                                                           struct cddpi_train_step *step,
                                                           const struct cddpi_micro_batch *batch,
                                                           uint64_t done);

/** Bind the gradients again: after the first wait, those of @p trainer are at their final
 *  addresses. */
CDDP_CHECKED cddp_status cddpi_trainer_bind_again(struct cddpi_trainer *trainer);

/* --- micro_batch.c: the passes of one micro-batch --- */

/** What backward calls with a trainer when gradient @p index is complete. */
cddp_status cddpi_trainer_grad_ready(void *trainer, size_t index);
/** What cddp_ddp_begin() is told of @p batch, the micro-batch after @p done others of the step. */
cddp_step cddpi_trainer_step_of(const struct cddpi_trainer *trainer,
                                const struct cddpi_micro_batch *batch, uint64_t done);
/** Run forward and backward of @p batch, the micro-batch after @p done others of the step. On a
 *  device, this only enqueues work in its streams, so it can be part of a capture. */
CDDP_CHECKED cddp_status cddpi_trainer_run_micro_batch(struct cddpi_trainer *trainer,
                                                       const struct cddpi_train_step *step,
                                                       const struct cddpi_micro_batch *batch,
                                                       uint64_t done);

/** CDDP_ERR_STATE if the loss of step @p step is NaN or Inf. Not for skipped steps. */
CDDP_CHECKED cddp_status cddpi_trainer_check_loss(const struct cddpi_trainer *trainer,
                                                  uint64_t step, double loss_sum);

/** Append advice to an out-of-memory error: @p what says which setting needs less memory. Other
 *  errors are returned unchanged. */
CDDP_CHECKED cddp_status cddpi_trainer_add_advice(cddp_status status, const char *what);

/* --- update.c: the end of a step --- */

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
