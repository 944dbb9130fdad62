/* statistics.h - owns the running statistics of batch normalisation in runs with the same bits on
 * any number of ranks (train.micro_batch).
 *
 * Each micro-batch's forward writes its statistics, by its part of the step's samples, to memory of
 * a reducer of their own. That adds them up as the gradients', and the running statistics have one
 * update a step, from the sums, on all ranks: (1 - momentum) x running + momentum x sum. So they
 * are equal on all ranks.
 *
 *      create             when the models have their buffers
 *      each micro-batch:
 *        bind             before its forward, if several objects take turns with a model
 *        add              after the forward, with what the gradients' cddp_ddp_begin() was told
 *
 * In a rank's last micro-batch of a step, or its only call of a step without any, add is a
 * collective. Then it comes after the gradients' cddp_ddp_wait(), so that all ranks have these
 * collectives in one order, however many micro-batches each has.
 *
 * In a pipeline, a forward may come before the backward of the micro-batch before, and chunks are
 * at different micro-batches at the same time. So a step has instead:
 *
 *      begin_run          before the first forward
 *      forwarded(chunk)   after each forward
 *      end_run            after the gradients' cddp_ddp_wait(); also on a rank without
 * micro-batches
 *
 * A model that sees several batches in one micro-batch (the discriminator of dcgan: real and made
 * images) has an object for each of them: bind one, forward, bind the next, forward; then add them
 * in the order in which they update the running statistics. */
#ifndef CDDPI_TRAIN_STATISTICS_H
#define CDDPI_TRAIN_STATISTICS_H

#include "train/trainer.h"

struct cddpi_statistics;

/** Keep the statistics of all models of @p trainer apart, and bind them.
 *  @param out  NULL if the run updates running statistics in each forward, or has none. All other
 *              functions accept NULL.
 *  @return CDDP_OK; CDDP_ERR_CONFIG: a batch_norm is on a GPU beside others of this rank;
 *          CDDP_ERR_NO_MEMORY, or an error of the group. Collective among replicas. */
CDDP_CHECKED cddp_status cddpi_statistics_create(struct cddpi_trainer *trainer,
                                                 struct cddpi_statistics **out);
/** Collective: ordered. */
void cddpi_statistics_destroy(struct cddpi_statistics *statistics);
/** The next training forwards write their statistics to this object. */
void cddpi_statistics_bind(const struct cddpi_statistics *statistics);
/** The forward of micro-batch @p step has run (a rank without any: nothing has). In the rank's last
 *  one of the step, update the running statistics. */
CDDP_CHECKED cddp_status cddpi_statistics_add(struct cddpi_statistics *statistics,
                                              const cddp_step *step);

/** All of this rank's micro-batches of @p step begin; its micro_batch is not read. */
CDDP_CHECKED cddp_status cddpi_statistics_begin_run(struct cddpi_statistics *statistics,
                                                    const cddp_step *step);
/** In a run, a forward of trainer->models.list[@p model] has ended. */
CDDP_CHECKED cddp_status cddpi_statistics_forwarded(struct cddpi_statistics *statistics, int model);
/** Update the running statistics. Collective. */
CDDP_CHECKED cddp_status cddpi_statistics_end_run(struct cddpi_statistics *statistics);

#endif
