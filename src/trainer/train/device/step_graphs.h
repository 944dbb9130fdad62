/* step_graphs.h - captures steps on a device as CUDA graphs, replays them, and chooses whether to.
 *
 * Steps with whole batches are all alike: each rank computes the same micro-batches. There is one
 * capture for each kind of micro-batch, which depends on the prefetcher's slot, on whether it is
 * the step's first or last, and on its number of samples. The last micro-batch's capture also
 * contains the reduction over ranks, clipping and the update. Values that change from step to step
 * are written to device memory before the replay.
 *
 * All ranks make the same calls in each step and the same choice. Belongs to the thread that drives
 * compute. */
#ifndef CDDPI_TRAIN_DEVICE_STEP_GRAPHS_H
#define CDDPI_TRAIN_DEVICE_STEP_GRAPHS_H

#include "train/step.h"

struct cddpi_step_graphs;

/** @param out  NULL if train.cuda_graph or the backend excludes captures.
 *  @return CDDP_OK; CDDP_ERR_CONFIG: train.cuda_graph is "always", but steps cannot be captured
 *          (the text says why); CDDP_ERR_NO_MEMORY. */
CDDP_CHECKED cddp_status cddpi_step_graphs_create(struct cddpi_trainer *trainer,
                                                  struct cddpi_step_graphs **out);
void cddpi_step_graphs_destroy(struct cddpi_step_graphs *graphs); /* accepts NULL */

/** As cddpi_graph_choice_is_due(). @p graphs may be NULL. */
bool cddpi_step_graphs_chooses(const struct cddpi_step_graphs *graphs, bool whole);
/** Decide how the step that begins runs. @p graphs may be NULL. Collective. */
CDDP_CHECKED cddp_status cddpi_step_graphs_decide(struct cddpi_step_graphs *graphs, bool whole,
                                                  struct cddpi_step_mode *out);
/** Pass in the time of a step that was timed. */
void cddpi_step_graphs_time(struct cddpi_step_graphs *graphs, bool replayed, int64_t step_ns);

/** Whether this rank's captures refer to memory that has moved; then they are dropped. @p graphs
 *  may be NULL. */
bool cddpi_step_graphs_are_stale(struct cddpi_step_graphs *graphs);
/** Drop this rank's captures because another rank has dropped its own: all ranks capture together.
 *  @p graphs may be NULL. */
void cddpi_step_graphs_drop(struct cddpi_step_graphs *graphs);

/* How a micro-batch ran. */
enum cddpi_replay { CDDPI_REPLAYED, CDDPI_CAPTURED, CDDPI_NOT_REPLAYED };

/** As cddpi_trainer_run_micro_batch(), for a replayed step. The last micro-batch includes the
 *  update (cddpi_device_step_prepare() and cddpi_device_step_work()), which all ranks have agreed
 *  on. A micro-batch without a capture is captured, then replayed. If some rank cannot capture it,
 *  it runs directly, and so do all steps from then on. */
CDDP_CHECKED cddp_status cddpi_step_graphs_micro_batch(struct cddpi_step_graphs *graphs,
                                                       const struct cddpi_train_step *step,
                                                       const struct cddpi_micro_batch *batch,
                                                       uint64_t done, enum cddpi_replay *out);

/* --- the choice, by timing a few steps of both ways and taking the faster --- */

/* Of each way, alternating: a device's speed changes over time. */
enum { CDDPI_GRAPH_TIMED_STEPS = 5 };

/* Times of one of the two ways. */
struct cddpi_step_times {
    double ms[CDDPI_GRAPH_TIMED_STEPS];
    int count;
};

struct cddpi_graph_choice {
    bool always;    /* replay always; there is no choice */
    bool off;       /* do not replay any more */
    uint64_t steps; /* whole steps since the run began */
    struct cddpi_step_times plain, replayed;
};

/** Whether the choice for all later steps is due before the next step, whose batch is @p whole or
 *  not. All measured times must have been passed in before. */
bool cddpi_graph_choice_is_due(const struct cddpi_graph_choice *choice, bool whole);
/** Choose by the times of the slowest rank. Collective.
 *  @param out_ms  Its times per step: plain, and replayed; not finite: not timed. */
CDDP_CHECKED cddp_status cddpi_graph_choice_make(struct cddpi_graph_choice *choice,
                                                 cddp_group *group, double out_ms[2]);
/** How the next step runs. */
struct cddpi_step_mode cddpi_graph_choice_next(struct cddpi_graph_choice *choice, bool whole);
/** Pass in the time of a step that was timed. */
void cddpi_graph_choice_time(struct cddpi_graph_choice *choice, bool replayed, int64_t step_ns);

#endif
