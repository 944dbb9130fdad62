/* step_graphs.h - steps on a device that are captured as CUDA graphs and replayed, and the choice
 * whether they are.
 *
 * Steps whose batches are whole are all alike: each rank computes the same micro-batches. There is
 * one capture a kind of micro-batch: where the prefetcher has it, whether it is the step's first,
 * its last, and of how many samples; the last one's goes on to the reduction over ranks, clipping
 * and the update. What changes from step to step is written into the device's memory before it.
 *
 * All ranks call the same in each step and come to the same choice. Belongs to the thread that
 * drives compute. */
#ifndef CDDPI_TRAIN_DEVICE_STEP_GRAPHS_H
#define CDDPI_TRAIN_DEVICE_STEP_GRAPHS_H

#include "train/step.h"

struct cddpi_step_graphs;

/** @param out  NULL where train.cuda_graph or the backend excludes captures.
 *  @return CDDP_OK; CDDP_ERR_CONFIG: they are wanted always, but cannot be: why;
 *          CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_step_graphs_create(struct cddpi_trainer *trainer,
                                                  struct cddpi_step_graphs **out);
void cddpi_step_graphs_destroy(struct cddpi_step_graphs *graphs); /* accepts NULL */

/** Whether the next step, of a batch that is @p whole or not, is the one before which the way of
 * all later steps is chosen: all times must have been told by then. @p graphs may be NULL. */
bool cddpi_step_graphs_chooses(const struct cddpi_step_graphs *graphs, bool whole);
/** A step begins: how it is to be done. @p graphs may be NULL. Collective. */
CDDP_CHECKED cddp_status cddpi_step_graphs_decide(struct cddpi_step_graphs *graphs, bool whole,
                                                  struct cddpi_step_mode *out);
/** A step that was timed took so long. */
void cddpi_step_graphs_time(struct cddpi_step_graphs *graphs, bool replayed, int64_t step_ns);

/** Whether memory has moved that this rank's captures name. They are dropped. @p graphs may be
 *  NULL. */
bool cddpi_step_graphs_are_stale(struct cddpi_step_graphs *graphs);
/** Another rank has dropped what it captured: so does this one, since all ranks capture together.
 *  @p graphs may be NULL. */
void cddpi_step_graphs_drop(struct cddpi_step_graphs *graphs);

/* What was done of a micro-batch. */
enum cddpi_replay { CDDPI_REPLAYED, CDDPI_CAPTURED, CDDPI_NOT_REPLAYED };

/** As cddpi_trainer_run_micro_batch() in a step that is replayed, and with its last micro-batch the
 *  update (cddpi_device_step_prepare() and cddpi_device_step_work()), for which all ranks have
 *  agreed. What has no capture yet gets one, which is then replayed. What cannot be captured on
 *  some rank is done at once, and so are all steps from then on. */
CDDP_CHECKED cddp_status cddpi_step_graphs_micro_batch(struct cddpi_step_graphs *graphs,
                                                       const struct cddpi_train_step *step,
                                                       const struct cddpi_micro_batch *batch,
                                                       uint64_t done, enum cddpi_replay *out);

#endif
