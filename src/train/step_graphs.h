/* step_graphs.h - steps on a device that are recorded as CUDA graphs and replayed, and the choice
 * whether they are.
 *
 * Steps whose batches are whole are all alike: each rank computes the same micro-batches. There is
 * one recording a kind of micro-batch: where the feed has it, whether it is the step's first, its
 * last, and of how many samples; the last one's goes on to the reduction over ranks, clipping and
 * the update. What changes from step to step is written into the device's memory before it.
 *
 * All ranks call the same in each step and come to the same choice. Belongs to the thread that
 * drives compute. */
#ifndef CDDPI_TRAIN_STEP_GRAPHS_H
#define CDDPI_TRAIN_STEP_GRAPHS_H

#include "train/trainer.h"

struct cddpi_step_graphs;

/** @param out  NULL where train.cuda_graph or the backend excludes recordings.
 *  @return CDDP_OK; CDDP_ERR_CONFIG: they are wanted always, but cannot be: why;
 *          CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_step_graphs_create(struct cddpi_trainer *trainer,
                                                  struct cddpi_step_graphs **out);
void cddpi_step_graphs_destroy(struct cddpi_step_graphs *graphs); /* accepts NULL */

/** A step begins, of a batch that is @p whole or not: sets trainer->replays and trainer->timed.
 *  Once both ways have been timed it waits for the last step, and chooses. @p graphs may be NULL.
 *  Collective. */
CDDP_CHECKED cddp_status cddpi_step_graphs_begin(struct cddpi_step_graphs *graphs, bool whole);
/** Whether memory has moved that this rank's recordings name. They are dropped. @p graphs may be
 *  NULL. */
bool cddpi_step_graphs_are_stale(struct cddpi_step_graphs *graphs);
/** In each step, replayed or not, once it is known of all ranks (trainer->agreed): this one's are
 *  dropped, too, for all record together. @p graphs may be NULL. */
void cddpi_step_graphs_heard(struct cddpi_step_graphs *graphs);
/** As cddpi_trainer_run_micro_batch() in a step that is replayed, and with its last micro-batch the
 *  update (cddpi_device_step_prepare() and _work()). What has no recording yet gets one. What
 * cannot be recorded on some rank is done at once, and so are all steps from then on. */
CDDP_CHECKED cddp_status cddpi_step_graphs_micro_batch(struct cddpi_step_graphs *graphs,
                                                       const struct cddpi_fed *fed, uint64_t done);
/** Whether recordings did all of the present step. @p graphs may be NULL. */
bool cddpi_step_graphs_replayed(const struct cddpi_step_graphs *graphs);
/** A step that was timed took so long. */
void cddpi_step_graphs_time(struct cddpi_step_graphs *graphs, bool replayed, int64_t step_ns);

#endif
